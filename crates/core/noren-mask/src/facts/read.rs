//! The JSON reader of [`Facts`]. Several keys of the JSON object can give the same fact; `facts/agree.rs` checks that
//! they agree.

use super::agree::{Claims, same_documents};
use super::import::{check_rows, real_sets};
use super::{Facts, RealTokens, Table};
use crate::Error;
use crate::facts::array::Array;
use crate::facts::json::{At, Json};
use crate::facts::shape::Shape;
use crate::sets::interval::IntervalSet;
use crate::sets::scalar::{Rows, Side};
use crate::sets::set::Span;
use serde::de::{Deserialize, Deserializer, Error as _};
use std::sync::Arc;

const KEYS: [&str; 18] = [
    "lengths",
    "side",
    "real_keys",
    "query_lengths",
    "documents",
    "labels",
    "levels",
    "positions",
    "arrays",
    "token_ids",
    "pad_id",
    "eos_id",
    "bos_id",
    "attention_mask",
    "segment_ids",
    "segment_padding",
    "position_ids",
    "cu_seqlens",
];
/// The maximum of a length, position or index in the JSON of facts.
const MAX: i64 = Shape::MAX_LEN as i64;
const SPANS: &str = "a list of positions and ranges, such as [3, \"10..14\"]";
const SPAN: &str = "a position or a range such as \"10..14\", \"10..\" or \"..14\"";

impl Facts {
    /// Reads facts from a JSON object. Every key is optional.
    ///
    /// - `lengths`: number of non-padding tokens per batch row, `[5, 3]`, and `side`: the side of the padding, `"right"` (the
    ///   default) or `"left"`. Instead of both, `real_keys`: the non-padding keys per batch row, `[["0..3", 5], [0]]`
    /// - `query_lengths`: number of non-padding queries per batch row
    /// - `documents`: document lengths, `[5, 27]` for all batch rows or `[[5, 27], [16, 16]]` per row
    /// - `labels`: `{"pii": [3, 4, "10..14"]}` for all batch rows or `{"pii": [[3], [4, 5]]}` per row
    /// - `levels`, `positions`: integers, for all batch rows or per row
    /// - `arrays`: for each name, an object with one field.
    ///   `keep` (1 or true = may attend), `drop` (1 or true = ignored) and `additive` (0 or `"-inf"`) hold nested lists
    ///   `[q_len][kv_len]` or `[batch][heads][q_len][kv_len]`;
    ///   `csr` is `{"shape": [q_len, kv_len], "indptr": [..], "indices": [..]}`;
    ///   `cells` is `{"shape": [q_len, kv_len], "list": [[q, k], ..]}`;
    ///   `blocks` is `{"shape": [q_len, kv_len], "block": [rows, keys], "list": [[i, j], ..]}`
    /// - `token_ids` with `pad_id`: [`from_token_ids`](Self::from_token_ids); `eos_id` and `bos_id`, a number or a list, are
    ///   ids of non-padding tokens
    /// - `attention_mask`, `[batch][length]` of 1 (non-padding token) and 0: [`padding_from_keep`](Self::padding_from_keep)
    /// - `segment_ids`: [`from_segment_ids`](Self::from_segment_ids); `segment_padding` is the id of padding, null for none
    /// - `position_ids`: [`with_position_ids`](Self::with_position_ids), with the non-padding tokens of other keys
    /// - `cu_seqlens`: [`from_cu_seqlens`](Self::from_cu_seqlens)
    ///
    /// Keys that give the same fact must agree: lengths with token ids, documents with position ids. JSON has no infinity:
    /// minus infinity in an additive array is the text `"-inf"`.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let facts = Facts::from_json(r#"{"lengths": [5, 3], "documents": [[2, 3], [3]], "labels": {"pii": [3, "0..2"]}}"#)?;
    /// assert_eq!(facts, Facts::new().lengths([5, 3]).documents(vec![vec![2, 3], vec![3]]).label("pii", [3..4, 0..2]));
    ///
    /// let error = Facts::from_json(r#"{"documents": [[5, 27], ["x", 16]]}"#).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"facts: documents[1][0]: got "x", expected a length: a whole number from 0 to 2147483647"#
    /// );
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error for text that is not JSON, an unknown or repeated key, a value of the wrong kind (with its place), keys
    /// that contradict each other, and the errors of the functions that are listed above. [`Mask::bind`](crate::Mask::bind)
    /// compares the facts with the shape.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        Self::read(&At::root(&Json::parse(text, "JSON")?))
    }

    pub(crate) fn read(at: &At<'_>) -> Result<Self, Error> {
        at.only(&KEYS)?;
        let mut facts = Facts::new();
        let each = |key| at.field(key).map(|at| read_lengths(&at)).transpose();
        facts.query_lengths = each("query_lengths")?;
        facts.levels = at.field("levels").map(|at| read_rows(&at, "levels", |n| whole(n, "a level"))).transpose()?;
        facts.positions = at
            .field("positions")
            .map(|at| read_rows(&at, "positions", |n| n.whole("a position", i64::MIN, MAX)))
            .transpose()?;
        if let Some(labels) = at.field("labels") {
            for (name, at) in labels.entries("an object of labels, {\"name\": [positions]}")? {
                facts.labels.insert(name.into(), read_rows(&at, SPANS, |span| read_span(&span))?);
            }
        }
        if let Some(arrays) = at.field("arrays") {
            for (name, at) in arrays.entries("an object of arrays, {\"name\": {\"keep\": [[..]]}}")? {
                facts.arrays.insert(name.into(), Arc::new(Array::read(at)?));
            }
        }
        read_real_and_documents(at, &mut facts)?;
        Ok(facts)
    }
}

/// Reads facts in the format of [`Facts::from_json`].
impl<'de> Deserialize<'de> for Facts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        Facts::read(&At::root(&json)).map_err(D::Error::custom)
    }
}

/// Reads all JSON keys that give non-padding tokens or documents, and sets them in `facts`.
fn read_real_and_documents(at: &At<'_>, facts: &mut Facts) -> Result<(), Error> {
    for (key, to) in
        [("pad_id", "token_ids"), ("eos_id", "token_ids"), ("bos_id", "token_ids"), ("segment_padding", "segment_ids")]
    {
        if let (Some(at), None) = (at.field(key), at.field(to)) {
            return Err(at.error(format!("this field has no effect without `{to}`: give both fields")));
        }
    }
    let mut claims = Claims::default();
    let mut documents: Vec<(&str, Rows<Vec<usize>>)> = Vec::new();
    let given = |key| at.field(key).is_some();

    if let Some(mask) = at.field("attention_mask") {
        let cells = read_table(&mask, "a list of 0 and 1", |cell| cell.flag())?;
        claims.add(
            "attention_mask",
            Facts::padding_from("attention_mask", &cells, |keep| Ok(*keep))?,
            cells[0].len(),
        )?;
    }
    if let Some(ids) = at.field("segment_ids") {
        let ids = read_table(&ids, "a list of segment ids", |n| whole(n, "a segment id"))?;
        let segments = match at.field("segment_padding") {
            None => Facts::from_segment_ids(&ids),
            Some(At { value: Json::Null, .. }) => Facts::from_segment_ids_with(&ids, None),
            Some(padding) => Facts::from_segment_ids_with(&ids, Some(whole(padding, "a segment id, or null")?)),
        }?;
        documents.extend(segments.documents.clone().map(|d| ("segment_ids", d)));
        claims.add("segment_ids", segments, ids[0].len())?;
    }
    // A pad id that is also the id of a non-padding token does not show padding, but padding must have this id.
    let mut padding_ids = None;
    if let Some(ids) = at.field("token_ids") {
        let ids = read_table(&ids, "a list of token ids", |n| whole(n, "a token id"))?;
        let pad_id = match at.field("pad_id") {
            Some(pad_id) => whole(pad_id, "a token id")?,
            None => return Err(Error::fact("token_ids", "the id of padding tokens is not given: give it as `pad_id`")),
        };
        let mut real_ids = Vec::new();
        for key in ["eos_id", "bos_id"] {
            match at.field(key) {
                Some(ids @ At { value: Json::List(_), .. }) => {
                    real_ids.extend(ids.list("token ids", |n| whole(n, "a token id"))?);
                }
                Some(id) => real_ids.push(whole(id, "a token id, or a list of them")?),
                None => {}
            }
        }
        let said_elsewhere = given("lengths") || given("real_keys") || claims.any();
        match real_ids.contains(&pad_id) && said_elsewhere {
            true => padding_ids = Some((ids, pad_id)),
            false => claims.add("token_ids", Facts::from_token_ids_with(&ids, pad_id, &real_ids)?, ids[0].len())?,
        }
    }
    let lengths = at.field("lengths").map(|at| read_lengths(&at)).transpose()?;
    let keys = at.field("real_keys").map(|at| at.list("one list of keys per batch row", |row| read_keys(&row)));
    let side = at.field("side").map(|at| read_side(&at)).transpose()?;
    facts.table = claims.table();
    facts.real = claims.settle(lengths, keys.transpose()?, side)?;
    if let Some((ids, pad_id)) = padding_ids {
        facts.table = Table(facts.table.0.or(Some(("token_ids", ids[0].len()))));
        check_padding_ids(&ids, pad_id, facts.real.as_ref())?;
    }

    if let Some(at) = at.field("documents") {
        documents.push(("documents", read_rows(&at, "document lengths", length)?));
    }
    if let Some(ids) = at.field("position_ids") {
        let ids = read_table(&ids, "a list of position ids", |n| whole(n, "a position id"))?;
        let real = Facts { real: facts.real.clone(), ..Facts::new() };
        documents.extend(real.with_position_ids(&ids)?.documents.map(|d| ("position_ids", d)));
    }
    if let Some(at) = at.field("cu_seqlens") {
        let ends = at.list("a list of ends", |n| whole(n, "the end of a document"))?;
        documents.extend(Facts::from_cu_seqlens(&ends)?.documents.map(|d| ("cu_seqlens", d)));
    }
    facts.documents = same_documents(documents)?;
    Ok(())
}

/// Checks that padding tokens have the id `pad_id`. `ids` is the token ids, and `real` the non-padding tokens from
/// other facts, such as lengths. If `real` is `None`, nothing is checked.
fn check_padding_ids(ids: &[Vec<i64>], pad_id: i64, real: Option<&RealTokens>) -> Result<(), Error> {
    let Some(real) = real else { return Ok(()) };
    let len = check_rows("token_ids", ids)?;
    let sets = real_sets("token_ids", real, ids.len(), len as u32)?;
    for (row, (ids, set)) in ids.iter().zip(sets).enumerate() {
        if let Some((key, id)) = ids.iter().enumerate().find(|(k, id)| **id != pad_id && !set.contains(*k as u32)) {
            return Err(Error::fact(
                format!("token_ids[{row}][{key}]"),
                format!(
                    "the id is {id} and not pad id {pad_id}, but other facts give padding at this key: correct one of the facts"
                ),
            ));
        }
    }
    Ok(())
}

fn whole(at: At<'_>, what: &str) -> Result<i64, Error> {
    at.whole(what, i64::MIN, i64::MAX)
}

fn read_lengths(at: &At<'_>) -> Result<Vec<usize>, Error> {
    at.list("a list of lengths, one per batch row", length)
}

fn length(at: At<'_>) -> Result<usize, Error> {
    at.whole("a length", 0, MAX).map(|n| n as usize)
}

fn read_side(at: &At<'_>) -> Result<Side, Error> {
    const EXPECTED: &str = "\"left\" or \"right\"";
    match at.text(EXPECTED)? {
        "left" => Ok(Side::Left),
        "right" => Ok(Side::Right),
        _ => Err(at.wrong(EXPECTED)),
    }
}

/// Reads one list for all batch rows, or a list of lists, one per batch row. `expected` describes the list in errors,
/// and `read` reads one entry.
fn read_rows<T>(at: &At<'_>, expected: &str, read: impl Fn(At<'_>) -> Result<T, Error>) -> Result<Rows<Vec<T>>, Error> {
    match at.value {
        Json::List(list) if matches!(list.first(), Some(Json::List(_))) => {
            Ok(Rows::Each(at.list(expected, |row| row.list(expected, &read))?))
        }
        _ => Ok(Rows::All(at.list(expected, &read)?)),
    }
}

/// Reads a JSON list of lists, with at least one list, one per batch row. `expected` describes the list of one batch
/// row in errors, and `read` reads one entry of it.
fn read_table<T>(at: &At<'_>, expected: &str, read: impl Fn(At<'_>) -> Result<T, Error>) -> Result<Vec<Vec<T>>, Error> {
    let rows = at.list("a list of batch rows", |row| row.list(expected, &read))?;
    match rows.is_empty() {
        true => Err(at.error("the list has no rows: give one row per batch row")),
        false => Ok(rows),
    }
}

fn read_span(at: &At<'_>) -> Result<Span, Error> {
    let Json::Text(text) = at.value else {
        return match at.value {
            Json::Whole(_) | Json::Huge(_) | Json::Real(_) => {
                at.whole("a position", 0, MAX).map(|n| Span::from(n as usize))
            }
            _ => Err(at.wrong(SPAN)),
        };
    };
    let number =
        |part: &str| match part {
            "" => Ok(None),
            _ if part.len() > 20 || !part.bytes().all(|b| b.is_ascii_digit()) => Err(at.wrong(SPAN)),
            _ => match part.parse::<usize>() {
                Ok(n) if n <= MAX as usize => Ok(Some(n)),
                _ => Err(at
                    .error(format!("{text:?} contains a position that is too large: give positions of at most {MAX}"))),
            },
        };
    let (start, end) = match text.split_once("..") {
        Some((start, end)) => (number(start.trim())?, number(end.trim())?),
        None => return Err(at.wrong(SPAN)),
    };
    match (start, end) {
        (None, None) => Err(at.wrong(SPAN)),
        (Some(start), Some(end)) if end < start => {
            Err(at.error(format!("range {start}..{end} is reversed: write {end}..{start}")))
        }
        _ => Ok(Span { start: start.unwrap_or(0), end }),
    }
}

fn read_keys(at: &At<'_>) -> Result<IntervalSet, Error> {
    let spans = at.list(SPANS, |at| {
        let span = read_span(&at)?;
        match span.end {
            Some(end) => Ok(span.start as u32..end as u32),
            None => Err(at.error(format!("range {}.. has no end: give the end of the range", span.start))),
        }
    })?;
    Ok(spans.into_iter().collect())
}
