//! The facts of a certificate (data given with its masks): lengths, documents, labels, clearance levels, positions and
//! arrays.

pub(crate) mod array;
pub(crate) mod frame;
pub(crate) mod shape;

use crate::facts::array::Array;
use crate::facts::shape::{MOST, Shape};
use crate::read::json::{At, Value};
use crate::read::refusal::{Result, wrong};
use crate::runs::{Runs, is_normal, normal};
use std::sync::Arc;

/// One value for all batch rows, or one value for each batch row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ByRow<T> {
    All(T),
    Rows(Vec<T>),
}

impl<T> ByRow<T> {
    /// Returns the value for batch row `row`. `Rows` must have one value for each batch row.
    pub(crate) fn of(&self, row: usize) -> &T {
        match self {
            ByRow::All(value) => value,
            ByRow::Rows(rows) => &rows[row],
        }
    }
}

/// A half-open range of positions `(start, end)`. If `end` is `None`, the range has no upper limit.
pub(crate) type Span = (i64, Option<i64>);

/// The facts of a certificate: the data that the masks need. A field that is `None` is not in the certificate.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) lengths: Option<Vec<i64>>,
    pub(crate) left: bool,
    pub(crate) real_keys: Option<Vec<Runs>>,
    pub(crate) query_lengths: Option<Vec<i64>>,
    pub(crate) documents: Option<ByRow<Vec<i64>>>,
    pub(crate) labels: Vec<(String, ByRow<Vec<Span>>)>,
    pub(crate) levels: Option<ByRow<Vec<i64>>>,
    pub(crate) positions: Option<ByRow<Vec<i64>>>,
    pub(crate) arrays: Vec<(String, Arc<Array>)>,
}

/// The names of the fields that the facts (data given with a mask) may have in JSON.
const KEYS: &[&str] =
    &["lengths", "side", "real_keys", "query_lengths", "documents", "labels", "levels", "positions", "arrays"];

impl Facts {
    pub(crate) fn read(at: &At<'_>, shape: &Shape) -> Result<Self> {
        let fields = at.object(KEYS)?;
        let mut facts = Facts::default();
        let per_row = |at: At<'_>, most: i64| -> Result<Vec<i64>> {
            let list = at.ints(0, most)?;
            if list.len() == shape.batch {
                Ok(list)
            } else {
                Err(at.refuse(format!("a list with one length for each of the {} batch rows", shape.batch)))
            }
        };
        if let Some(at) = fields.get("lengths") {
            facts.lengths = Some(per_row(at, shape.kv_len)?);
        }
        if let Some(at) = fields.get("query_lengths") {
            facts.query_lengths = Some(per_row(at, shape.q_len)?);
        }
        if let Some(at) = fields.get("side") {
            if facts.lengths.is_none() {
                return Err(at.refuse("facts with `lengths`, because `side` needs `lengths`"));
            }
            facts.left = match at.text()? {
                "left" => true,
                "right" => false,
                _ => return Err(at.refuse("\"left\" or \"right\"")),
            };
        }
        if let Some(at) = fields.get("real_keys") {
            if facts.lengths.is_some() {
                return Err(at.refuse("facts with only one of `lengths` and `real_keys`"));
            }
            let rows = at.list(|row| real_keys(&row, shape.kv_len))?;
            if rows.len() != shape.batch {
                return Err(
                    at.refuse(format!("a list that contains one list for each of the {} batch rows", shape.batch))
                );
            }
            facts.real_keys = Some(rows);
        }
        if let Some(at) = fields.get("documents") {
            let documents = by_row(&at, shape.batch, at.is_nested(), |row| row.ints(0, MOST))?;
            let sums = match &documents {
                ByRow::All(list) => vec![list.iter().sum::<i64>()],
                ByRow::Rows(rows) => rows.iter().map(|list| list.iter().sum()).collect(),
            };
            if sums.iter().any(|sum| !(0..=2 * MOST).contains(sum)) {
                return Err(at.refuse("documents whose lengths have a sum of at most 2^32 tokens"));
            }
            facts.documents = Some(documents);
        }
        if let Some(at) = fields.get("levels") {
            facts.levels = Some(by_row(&at, shape.batch, at.is_nested(), |row| row.ints(i64::MIN, i64::MAX))?);
        }
        if let Some(at) = fields.get("positions") {
            facts.positions = Some(by_row(&at, shape.batch, at.is_nested(), |row| positions(&row, shape.kv_len))?);
        }
        if let Some(at) = fields.get("labels") {
            for (name, at) in at.entries()? {
                facts.labels.push((
                    name.to_string(),
                    by_row(&at, shape.batch, at.is_nested(), |row| row.list(|at| span(&at)))?,
                ));
            }
        }
        if let Some(at) = fields.get("arrays") {
            for (name, at) in at.entries()? {
                facts.arrays.push((name.to_string(), Arc::new(Array::read(&at, shape)?)));
            }
        }
        Ok(facts)
    }

    /// Returns the indices of the non-padding keys of batch row `row`; `None` if the facts (data given with a mask) have
    /// neither `lengths` nor `real_keys`.
    pub(crate) fn real(&self, row: usize, kv_len: i64) -> Option<Runs> {
        match (&self.lengths, &self.real_keys) {
            (Some(lengths), _) => Some(at_end(self.left, lengths[row], kv_len)),
            (None, Some(rows)) => Some(rows[row].clone()),
            (None, None) => None,
        }
    }

    /// Returns the position at which the first document of batch row `row` begins. `list` contains the lengths of the
    /// documents. The result is the position of the first non-padding token if three conditions hold: padding is on the
    /// left, the facts (data given with a mask) have no `positions`, and the total length of the documents equals the
    /// number of non-padding tokens. Otherwise the result is 0.
    pub(crate) fn documents_begin(&self, list: &[i64], row: usize, kv_len: i64) -> i64 {
        match &self.lengths {
            Some(lengths) if self.left && self.positions.is_none() && list.iter().sum::<i64>() == lengths[row] => {
                kv_len - lengths[row]
            }
            _ => 0,
        }
    }
}

/// Returns the `length` non-padding indices in `0..len`: the last ones if padding is on the left (`left` is true),
/// otherwise the first ones.
pub(crate) fn at_end(left: bool, length: i64, len: i64) -> Runs {
    normal(vec![if left { (len - length, len) } else { (0, length) }])
}

fn by_row<T>(at: &At<'_>, batch: usize, nested: bool, mut read: impl FnMut(At<'_>) -> Result<T>) -> Result<ByRow<T>> {
    if !nested {
        return Ok(ByRow::All(read(at.clone())?));
    }
    let rows = at.list(read)?;
    if rows.len() == batch {
        Ok(ByRow::Rows(rows))
    } else {
        Err(at.refuse(format!("one list for all batch rows, or one list for each of the {batch} batch rows")))
    }
}

/// Reads a position (`3`) or a half-open range of positions (`"3..9"`, `"3.."`, `"..9"`).
fn span(at: &At<'_>) -> Result<Span> {
    let expected = "a position or a range such as \"3..9\"";
    match at.value {
        Value::Int(value) if (0..=MOST).contains(value) => Ok((*value, Some(value + 1))),
        Value::Text(text) => {
            let end = |text: &str| text.trim().parse::<i64>().ok().filter(|value| (0..=MOST).contains(value));
            let (a, b) = text.split_once("..").ok_or_else(|| at.refuse(expected))?;
            let start = if a.trim().is_empty() { Some(0) } else { end(a) };
            let stop = if b.trim().is_empty() { Some(None) } else { end(b).map(Some) };
            match (start, stop) {
                (Some(start), Some(stop)) if stop.is_none_or(|stop| start <= stop) => Ok((start, stop)),
                _ => Err(at.refuse(expected)),
            }
        }
        _ => Err(at.refuse(expected)),
    }
}

fn real_keys(at: &At<'_>, kv_len: i64) -> Result<Runs> {
    let spans = at.list(|at| span(&at))?;
    let runs = normal(spans.iter().map(|span| (span.0, span.1.unwrap_or(kv_len))).collect());
    match runs.last() {
        Some(last) if last.1 > kv_len => Err(at.refuse(format!("keys below {kv_len}"))),
        _ => Ok(runs),
    }
}

fn positions(at: &At<'_>, kv_len: i64) -> Result<Vec<i64>> {
    let list = at.ints(-MOST, MOST)?;
    if list.len() as i64 != kv_len {
        return Err(at.refuse(format!("one position for each of the {kv_len} keys")));
    }
    let mut sorted: Vec<i64> = list.iter().copied().filter(|&position| position >= 0).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(wrong(at.path.clone(), format!("position {} twice", pair[0]), "each position only once")),
        None => Ok(list),
    }
}

/// Reads a list of ranges `[[start, end], ...]`. The ranges must be half-open, sorted, inside `0..len`, not empty, and
/// with a gap of at least one number between neighbouring ranges.
pub(crate) fn ranges(at: &At<'_>, len: i64) -> Result<Runs> {
    let runs = at.list(|at| match at.ints(0, len)?[..] {
        [start, end] => Ok((start, end)),
        _ => Err(at.refuse("[start, end]")),
    })?;
    if is_normal(&runs) {
        Ok(runs)
    } else {
        Err(at.refuse("ascending ranges that are not empty and do not touch or overlap"))
    }
}
