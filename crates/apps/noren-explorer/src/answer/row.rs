//! The attention of one query, step by step: scores, masked scores, exponentials, weights, and the weighted sum of the
//! values.

use crate::request::cause::Cause;
use crate::request::problem::{Problem, Result};
use crate::request::scene::Known;
use crate::request::state::{Answer, State, json};
use serde::{Deserialize, Serialize};

/// The maximum number of keys for which the attention of a query is computed step by step.
const MOST_KEYS: usize = 64;
/// The maximum number of components of the value vector of a key.
const MOST_VALUES: usize = 1024;

/// The request for one row. The scores and values are numbers that the user typed, or the numbers of a model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowRequest {
    /// The index of the query row; the first row is 0.
    q: usize,
    #[serde(default)]
    batch: usize,
    #[serde(default)]
    head: usize,
    /// One score for each key, before the mask.
    scores: Vec<f64>,
    /// The value vector of each key, all vectors with the same number of components. If the list is empty, there is no
    /// weighted sum.
    #[serde(default)]
    values: Vec<Vec<f64>>,
    /// Keys that are hidden from this query in addition to the keys that the mask hides.
    #[serde(default)]
    off: Vec<usize>,
    /// The number that is added to the scores of hidden keys in 32-bit arithmetic, as programs with an additive mask
    /// do. `None` excludes hidden keys from the softmax.
    #[serde(default)]
    fill: Option<f32>,
    /// A logit that is added to the softmax denominator but has no value vector; `None` for no sink.
    #[serde(default)]
    sink: Option<f64>,
}

/// One row of attention. Each list has one entry for each key, except `sum`.
#[derive(Serialize)]
struct Row {
    query_position: i64,
    /// For each key, whether the query reads the key: the mask allows the cell, and the key is not switched off.
    allowed: Vec<bool>,
    scores: Vec<f64>,
    /// The scores after the mask; `None` is minus infinity.
    masked: Vec<Option<f64>>,
    /// The largest masked score, which is subtracted before the exponential; `None` if the row has no score.
    top: Option<f64>,
    exponentials: Vec<f64>,
    /// The exponential of the sink, a logit that is only in the denominator of the softmax; 0 without a sink.
    sink: f64,
    /// The denominator of the softmax: the sum of the exponentials of the scores and of the sink.
    denominator: f64,
    weights: Vec<f64>,
    /// The output of the query: the sum of the value vectors of all keys, each times the weight of its key.
    sum: Vec<f64>,
    /// True if the query reads no key.
    empty: bool,
}

/// Computes one row of attention for the mask with the identity `id`.
pub(super) fn row(state: &mut State, id: &str, body: &[u8]) -> Answer {
    let request: RowRequest = serde_json::from_slice(body)?;
    let known = state.mask(id)?;
    json(&compute(&known, request)?)
}

/// Returns an error if a number of the request does not fit the mask, is too large or is not finite.
fn check(known: &Known, request: &RowRequest) -> Result<()> {
    let shape = known.bound.shape();
    let keys = shape.kv_len();
    if keys > MOST_KEYS {
        return Err(Problem::new(format!("the mask has {keys} keys: a row is shown for at most {MOST_KEYS} keys"))
            .hint(format!("give a length of at most {MOST_KEYS} tokens"))
            .cause(Cause::RowTooLong));
    }
    for (name, given, end) in [
        ("query", request.q, shape.q_len()),
        ("batch row", request.batch, shape.batch_len()),
        ("head", request.head, shape.head_count()),
    ] {
        if given >= end {
            return Err(Problem::new(format!(
                "there is no {name} {given}: give a number from 0 to {}",
                end.saturating_sub(1)
            )));
        }
    }
    if request.scores.len() != keys {
        let given = request.scores.len();
        return Err(Problem::new(format!(
            "{given} scores are given, but the mask has {keys} keys: give one score for each key"
        )));
    }
    if !request.values.is_empty() && request.values.len() != keys {
        let given = request.values.len();
        return Err(Problem::new(format!(
            "{given} values are given, but the mask has {keys} keys: give one value for each key"
        )));
    }
    let width = request.values.first().map_or(0, Vec::len);
    if width > MOST_VALUES || request.values.iter().any(|value| value.len() != width) {
        return Err(Problem::new(format!(
            "the values have different lengths: give the same number of components for each key, at most {MOST_VALUES}"
        )));
    }
    if let Some(key) = request.off.iter().find(|key| **key >= keys) {
        return Err(Problem::new(format!(
            "key {key} cannot be switched off: the mask has {keys} keys, counted from 0"
        )));
    }
    let numbers = request.scores.iter().chain(request.values.iter().flatten()).chain(&request.sink);
    let fill = request.fill.is_none_or(f32::is_finite);
    if !fill || numbers.into_iter().any(|x| !x.is_finite() || x.abs() > f64::from(f32::MAX)) {
        return Err(Problem::new("a score, value, sink or fill is too large: give finite 32-bit numbers"));
    }
    Ok(())
}

fn compute(known: &Known, request: RowRequest) -> Result<Row> {
    check(known, &request)?;
    let RowRequest { q, batch, head, scores, values, off, fill, sink } = request;
    let bound = &known.bound;
    let allowed: Vec<bool> =
        (0..scores.len()).map(|key| bound.allowed(batch, head, q, key) && !off.contains(&key)).collect();
    let empty = !allowed.contains(&true);
    let masked: Vec<Option<f64>> = scores
        .iter()
        .zip(&allowed)
        .map(|(score, allowed)| match (allowed, fill) {
            (true, _) => Some(*score),
            // The rounding to 32 bits is the point: most of the digits of the score are lost.
            (false, Some(fill)) => Some(f64::from((*score as f32 + fill).max(f32::MIN))),
            (false, None) => None,
        })
        .collect();
    let top = masked.iter().flatten().copied().reduce(f64::max);
    // As in the reference, a row without a score ignores its sink: the output is 0.
    let top_with_sink = top.map(|top| sink.map_or(top, |sink| top.max(sink)));
    let exp = |x: Option<f64>| x.zip(top_with_sink).map_or(0.0, |(x, top)| (x - top).exp());
    let exponentials: Vec<f64> = masked.iter().map(|score| exp(*score)).collect();
    let sink = exp(sink);
    let denominator = exponentials.iter().sum::<f64>() + sink;
    let weights: Vec<f64> =
        exponentials.iter().map(|e| if denominator > 0.0 { e / denominator } else { 0.0 }).collect();
    let width = values.first().map_or(0, Vec::len);
    // Only keys with a masked score: a hidden value takes no part, not even times 0.
    let visible = || values.iter().zip(&weights).zip(&masked).filter(|(_, masked)| masked.is_some());
    let sum = (0..width).map(|d| visible().map(|((value, weight), _)| weight * value[d]).sum()).collect();
    let query_position = bound.query_position(batch, q);
    Ok(Row {
        query_position,
        allowed,
        scores,
        masked,
        top: top_with_sink,
        exponentials,
        sink,
        denominator,
        weights,
        sum,
        empty,
    })
}
