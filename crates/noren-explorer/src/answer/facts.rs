//! The answer for pasted arrays: the facts in the arrays. An ambiguous array has several readings, which are possible
//! meanings with their facts.

use crate::pasted::{Pasted, arrays};
use crate::problem::{Problem, Result};
use crate::state::{Answer, json};
use noren_mask::Facts;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as object};

const SEGMENTS: [&str; 6] = ["segment_ids", "seq_idx", "sequence_ids", "document_ids", "doc_ids", "document_id"];
const ENDS: [&str; 6] = ["cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seq_lens", "cu_seq_lens_q", "cu_seq_lens_k"];
/// The maximum number of cells of an array that becomes a mask.
const MOST_CELLS: usize = 1 << 20;
/// The name that an array gets in the facts if the array is itself a mask.
const ARRAY: &str = "pasted";

/// The request: a text with one or more arrays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    text: String,
}

/// One possible meaning of the pasted arrays.
#[derive(Clone, Serialize)]
struct Reading {
    /// The kind of the array, such as `cu_seqlens`.
    name: &'static str,
    /// A sentence that explains to the user how the array was interpreted.
    says: String,
    facts: Value,
    /// The number of batch rows. The next field, `len`, is the number of tokens of each batch row.
    rows: usize,
    len: usize,
    /// The text of a mask that uses the facts.
    mask: &'static str,
}

/// Returns the possible meanings (readings) of the arrays in a text. If there are several readings, the page lets the
/// user choose.
pub(crate) fn facts(body: &[u8]) -> Answer {
    let Request { text } = serde_json::from_slice(body)?;
    let found = arrays(&text)?;
    let (readings, refused) = match &found[..] {
        [array] => readings(array)?,
        several => (vec![together(several)?], Vec::new()),
    };
    if readings.is_empty() {
        return Err(Problem::new(format!("the array gives no facts: {}", refused.join("; "))).into());
    }
    json(&object!({ "readings": readings, "refused": refused }))
}

/// Returns the possible meanings (readings) of one array, and for each excluded meaning the reason.
fn readings(array: &Pasted) -> Result<(Vec<Reading>, Vec<String>)> {
    if let Some(kind) = array.name.as_deref().and_then(kind) {
        return Ok((read(kind, array)?, Vec::new()));
    }
    let ends = bare_ends(array);
    let kinds: &[&str] = match ends {
        Some(true) => &["position_ids", "cu_seqlens", "attention_mask"],
        Some(false) => &["cu_seqlens"],
        None => &["attention_mask", "position_ids", "segment_ids", "cells"],
    };
    let (mut found, mut refused): (Vec<Reading>, Vec<String>) = (Vec::new(), Vec::new());
    // In an attention mask without a name, numbers above 1 are ids of documents, which `segment_ids` reads.
    let ids = array.values.iter().any(|value| *value > 1.0);
    for kind in kinds.iter().filter(|kind| !(ids && **kind == "attention_mask")) {
        match read(kind, array) {
            Ok(readings) => found.extend(readings),
            Err(problem) => refused.push(format!("as {kind}: {}", problem.message)),
        }
    }
    // Positions that never begin again give no facts. They are a reading only if ends of documents are another.
    if ends.is_none() {
        found.retain(|reading| reading.name != "position_ids" || reading.facts.get("documents").is_some());
    }
    let mut distinct: Vec<Reading> = Vec::new();
    for reading in found {
        if distinct.iter().all(|other| meaning(other) != meaning(&reading)) {
            distinct.push(reading);
        }
    }
    Ok((distinct, refused))
}

/// Returns the facts of a reading that affect a mask: lengths, side of the padding, arrays and documents. Readings with
/// equal results mean the same. Documents are null if each row has only one document.
fn meaning(reading: &Reading) -> (Value, Value, Value, Value) {
    let fact = |name: &str| reading.facts.get(name).cloned().unwrap_or_default();
    let documents = fact("documents");
    let several = match documents.as_array().map(Vec::as_slice) {
        Some([Value::Array(_), ..]) => {
            documents.as_array().into_iter().flatten().any(|row| row.as_array().is_some_and(|row| row.len() > 1))
        }
        Some(list) => list.len() > 1,
        None => false,
    };
    (fact("lengths"), fact("side"), fact("arrays"), if several { documents } else { Value::Null })
}

/// Returns the kind of an array with the name `name`; `None` for unknown names.
fn kind(name: &str) -> Option<&'static str> {
    let known = ["attention_mask", "position_ids", "key_padding_mask", "lengths", "documents"];
    let plain = name.trim();
    match plain {
        _ if SEGMENTS.contains(&plain) => Some("segment_ids"),
        _ if ENDS.contains(&plain) => Some("cu_seqlens"),
        "src_key_padding_mask" | "padding_mask" => Some("key_padding_mask"),
        _ => known.into_iter().find(|kind| *kind == plain),
    }
}

/// Returns `None` if an array cannot be a list of document ends: one dimension, first number 0, ascending. Otherwise
/// returns true if all documents would have one token each.
fn bare_ends(array: &Pasted) -> Option<bool> {
    let steps = || array.values.windows(2).map(|pair| pair[1] - pair[0]);
    let may =
        array.shape.len() == 1 && array.values.len() > 1 && array.values[0] == 0.0 && steps().all(|step| step > 0.0);
    may.then(|| steps().all(|step| step == 1.0))
}

/// Returns the array as rows of whole numbers. An array `[batch, 1, 1, length]` is read as `[batch, length]`. `kind`
/// names the array in errors.
fn whole(kind: &str, array: &Pasted) -> Result<Vec<Vec<i64>>> {
    let rows = rows(kind, array)?;
    let one = |value: &f64| match value.fract() == 0.0 && value.abs() < 9e15 {
        true => Ok(*value as i64),
        false => Err(Problem::new(format!("{kind} has {value}: give whole numbers"))),
    };
    rows.into_iter().map(|row| row.iter().map(one).collect()).collect()
}

fn rows<'a>(kind: &str, array: &'a Pasted) -> Result<Vec<&'a [f64]>> {
    let len = match array.shape[..] {
        [len] | [_, len] | [_, 1, len] | [_, 1, 1, len] => len,
        _ => return Err(Problem::new(format!("{kind} has {} dimensions: give [batch, length]", array.shape.len()))),
    };
    Ok(array.values.chunks(len.max(1)).collect())
}

/// Reads an array of the given kind. Returns several readings if the array of this kind is ambiguous.
fn read(kind: &str, array: &Pasted) -> Result<Vec<Reading>> {
    match kind {
        "cells" => Ok(vec![cells(array)?]),
        "attention_mask" => Ok(vec![attention_mask(array)?]),
        "key_padding_mask" => {
            let rows = whole(kind, array)?;
            check_flags(kind, &rows)?;
            let drop: Vec<Vec<bool>> = rows.iter().map(|row| row.iter().map(|cell| *cell != 0).collect()).collect();
            let says = "1 is padding and 0 is a token".to_string();
            Ok(vec![reading("key_padding_mask", says, &Facts::padding_from_drop(&drop)?, &rows, "padding")?])
        }
        "position_ids" => {
            let rows = whole(kind, array)?;
            if rows.iter().all(|row| row.windows(2).all(|pair| pair[1] - pair[0] == 1)) {
                let says = format!(
                    "one sequence of {} tokens: positions never begin again, so there are no documents",
                    rows[0].len()
                );
                return Ok(vec![reading("position_ids", says, &Facts::new(), &rows, "causal")?]);
            }
            let says = "positions begin again at 0 in each packed document".to_string();
            Ok(vec![reading("position_ids", says, &Facts::from_position_ids(&rows)?, &rows, "causal & documents")?])
        }
        "segment_ids" => segments(&whole(kind, array)?),
        "cu_seqlens" => {
            let ends: Vec<i64> = whole(kind, array)?.concat();
            let facts = Facts::from_cu_seqlens(&ends)?;
            let len = ends.last().map_or(0, |end| *end as usize);
            let says = format!("0, and then the end of each of {} packed documents", ends.len() - 1);
            let facts = serde_json::to_value(&facts)?;
            Ok(vec![Reading { name: "cu_seqlens", says, facts, rows: 1, len, mask: "causal & documents" }])
        }
        _ => {
            let rows = whole(kind, array)?;
            if let Some(negative) = rows.iter().flatten().find(|n| **n < 0) {
                return Err(Problem::new(format!("{kind} has {negative}: give lengths of at least 0")));
            }
            let lists: Vec<Vec<usize>> = rows.iter().map(|row| row.iter().map(|n| *n as usize).collect()).collect();
            Ok(vec![if kind == "lengths" {
                let lengths = lists.concat();
                let (rows, len) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0));
                let facts = serde_json::to_value(Facts::new().lengths(lengths))?;
                Reading {
                    name: "lengths",
                    says: "the tokens of each batch row".into(),
                    facts,
                    rows,
                    len,
                    mask: "padding",
                }
            } else {
                let (count, len) = (lists.len(), lists.iter().map(|row| row.iter().sum()).max().unwrap_or(0));
                let facts = serde_json::to_value(Facts::new().documents(lists))?;
                let says = "the length of each packed document".to_string();
                Reading { name: "documents", says, facts, rows: count, len, mask: "causal & documents" }
            }])
        }
    }
}

fn reading(name: &'static str, says: String, facts: &Facts, rows: &[Vec<i64>], mask: &'static str) -> Result<Reading> {
    Ok(Reading { name, says, facts: serde_json::to_value(facts)?, rows: rows.len(), len: rows[0].len(), mask })
}

fn check_flags(kind: &str, rows: &[Vec<i64>]) -> Result<()> {
    match rows.iter().flatten().find(|cell| !(0..=1).contains(*cell)) {
        Some(other) => Err(Problem::new(format!("{kind} has {other}: give 0 and 1"))),
        None => Ok(()),
    }
}

fn attention_mask(array: &Pasted) -> Result<Reading> {
    let kind = "attention_mask";
    let given = rows(kind, array)?;
    let additive = array.values.iter().any(|value| *value < 0.0);
    if additive {
        let cells: Vec<Vec<f32>> = given.iter().map(|row| row.iter().map(|cell| *cell as f32).collect()).collect();
        let facts = serde_json::to_value(Facts::padding_from_additive(&cells)?)?;
        let says = "the numbers are added to scores: 0 is a token, and the lowest number is padding".to_string();
        return Ok(Reading { name: kind, says, facts, rows: given.len(), len: given[0].len(), mask: "padding" });
    }
    let rows = whole(kind, array)?;
    if rows.iter().flatten().any(|cell| *cell > 1) {
        let says = "0 is padding, and the other numbers are ids of packed documents".to_string();
        return reading(kind, says, &Facts::from_segment_ids_with(&rows, Some(0))?, &rows, "causal & documents");
    }
    let keep: Vec<Vec<bool>> = rows.iter().map(|row| row.iter().map(|cell| *cell == 1).collect()).collect();
    let padding = keep.iter().flatten().filter(|token| !**token).count();
    let says = format!("1 is a token and 0 is padding; {padding} of {} entries are padding", array.values.len());
    reading(kind, says, &Facts::padding_from_keep(&keep)?, &rows, "padding")
}

/// Reads the document ids of tokens. If id 0 may mean padding or a document, returns a reading for each of the two
/// meanings.
fn segments(rows: &[Vec<i64>]) -> Result<Vec<Reading>> {
    let one = |padding: Option<i64>, says: &str| {
        reading(
            "segment_ids",
            says.to_string(),
            &Facts::from_segment_ids_with(rows, padding)?,
            rows,
            "causal & documents",
        )
    };
    let zeros = rows.iter().flatten().any(|id| *id == 0);
    if rows.iter().flatten().any(|id| *id == -1) {
        return Ok(vec![one(Some(-1), "the number of each token's document; -1 is padding")?]);
    }
    if !zeros {
        return Ok(vec![one(None, "the number of each token's document; no token is padding")?]);
    }
    let text = |row: &Vec<i64>| row.iter().position(|id| *id != 0).unwrap_or(row.len());
    if rows.iter().any(|row| row[text(row)..].contains(&0)) {
        return Ok(vec![one(Some(0), "the number of each token's document; 0 is padding")?]);
    }
    Ok(vec![
        one(Some(0), "the number of each token's document; the first 0s are padding")?,
        one(None, "the number of each token's document; the first 0s are the first document")?,
    ])
}

/// Reads an array of queries and keys as the cells of a mask.
fn cells(array: &Pasted) -> Result<Reading> {
    let (rows, len) = match array.shape[..] {
        [q, k] if q == k && q > 1 => (1, k),
        [batch, _, q, k] if q == k && q > 1 => (batch, k),
        _ => return Err(Problem::new("a mask of queries and keys has as many rows as columns")),
    };
    if array.values.len() > MOST_CELLS {
        return Err(Problem::new(format!("the array has {} cells: give at most {MOST_CELLS}", array.values.len())));
    }
    if array.values.iter().any(|cell| *cell != 0.0 && *cell != 1.0) {
        return Err(Problem::new("a mask of queries and keys has 0 and 1 only"));
    }
    let mut level: Vec<Value> = array.values.iter().map(|cell| object!(*cell as u8)).collect();
    for size in array.shape[1..].iter().rev() {
        level = level.chunks(*size).map(|part| Value::Array(part.to_vec())).collect();
    }
    let facts = object!({ "arrays": { ARRAY: { "keep": level } } });
    let says = format!("the cells of a mask of {len} queries and {len} keys; 1 is allowed");
    Ok(Reading { name: "cells", says, facts, rows, len, mask: "dense(pasted)" })
}

/// Reads several named arrays as the facts of one batch. The arrays of padding are read first, because the position ids
/// of padding tokens have no meaning.
fn together(several: &[Pasted]) -> Result<Reading> {
    let named: Vec<(&'static str, &Pasted)> =
        several.iter().filter_map(|array| Some((kind(array.name.as_deref()?)?, array))).collect();
    let Some((_, first)) = named.first() else {
        return Err(Problem::new(
            "the text has several arrays without names: give one, or name them attention_mask, position_ids, segment_ids or cu_seqlens",
        ));
    };
    let (rows, mut len) = match first.shape[..] {
        [len] => (1, len),
        _ => (first.shape[0], *first.shape.last().unwrap_or(&1)),
    };
    let mut facts = Facts::new();
    let mut says = Vec::new();
    for (kind, array) in &named {
        if *kind == "position_ids" {
            continue;
        }
        let one = match &read(kind, array)?[..] {
            [one] => one.clone(),
            _ => {
                return Err(Problem::new(format!(
                    "{kind} has two readings, because id 0 may be padding or a document: number documents from 1"
                )));
            }
        };
        facts = facts.merge(&Facts::from_json(&one.facts.to_string())?)?;
        if *kind == "cu_seqlens" {
            len = one.len;
        }
        says.push(format!("{kind}: {}", one.says));
    }
    for (kind, array) in named.iter().filter(|(kind, _)| *kind == "position_ids") {
        let ids = whole(kind, array)?;
        let counted = ids.iter().all(|row| row.windows(2).all(|pair| pair[1] - pair[0] == 1));
        if !counted {
            facts = facts.with_position_ids(&ids)?;
        }
        let note =
            if counted { "positions never begin again" } else { "positions begin again at 0 in each packed document" };
        says.push(format!("{kind}: {note}"));
    }
    let value = serde_json::to_value(&facts)?;
    let mask = match (facts.has_documents(), value.get("lengths").or(value.get("real_keys")).is_some()) {
        (true, true) => "causal & documents & padding",
        (true, false) => "causal & documents",
        (false, true) => "padding",
        (false, false) => "causal",
    };
    Ok(Reading { name: "batch", says: says.join("; "), facts: value, rows, len, mask })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Vec<(String, Value)> {
        let found = arrays(text).expect("arrays");
        let readings = match &found[..] {
            [one] => readings(one).expect("readings").0,
            several => vec![together(several).expect("a reading")],
        };
        readings.into_iter().map(|reading| (reading.name.to_string(), reading.facts)).collect()
    }

    #[test]
    fn arrays_are_recognised() {
        for (text, name, facts) in [
            ("[0, 5, 32]", "cu_seqlens", object!({ "documents": [[5, 27]] })),
            ("[[1, 1, 0, 0], [1, 1, 1, 0]]", "attention_mask", object!({ "lengths": [2, 3] })),
            (
                "attention_mask = [[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]]",
                "attention_mask",
                object!({ "lengths": [2, 3, 1, 3], "side": "left" }),
            ),
            ("[0, 1, 2, 0, 1]", "position_ids", object!({ "documents": [[3, 2]] })),
            ("[1, 1, 2, 2, 2]", "segment_ids", object!({ "documents": [[2, 3]] })),
            ("key_padding_mask = [[0, 0, 1]]", "key_padding_mask", object!({ "lengths": [2] })),
            ("[[0.0, 0.0, -inf]]", "attention_mask", object!({ "lengths": [2] })),
            ("[[[[1, 1, 0]]]]", "attention_mask", object!({ "lengths": [2] })),
            ("lengths = [3, 5]", "lengths", object!({ "lengths": [3, 5] })),
            (
                "{'attention_mask': [[1, 1, 1, 0]], 'position_ids': [[0, 1, 0, 1]]}",
                "batch",
                object!({ "lengths": [3], "documents": [[2, 1]] }),
            ),
        ] {
            let found = read_text(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].0, name, "{text}");
            let given = Facts::from_json(&found[0].1.to_string()).expect("facts");
            assert_eq!(given, Facts::from_json(&facts.to_string()).expect("facts"), "{text}: {}", found[0].1);
        }
    }

    #[test]
    fn ambiguous_arrays_have_all_their_readings() {
        let names = |text: &str| read_text(text).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("[0, 1, 2, 3]"), ["position_ids", "cu_seqlens"]);
        assert_eq!(names("[0, 0, 1, 1]"), ["attention_mask", "segment_ids"]);
        assert_eq!(names("[[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]]"), ["attention_mask", "segment_ids"]);
        assert_eq!(names("[0, 0, 1, 1, 2]"), ["segment_ids", "segment_ids"]);
        assert_eq!(names("[[1, 0], [1, 1]]"), ["attention_mask", "cells"]);
    }
}
