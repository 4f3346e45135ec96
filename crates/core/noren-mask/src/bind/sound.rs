//! Checks that each fact is valid and fits the shape, also facts that the mask does not use.

use crate::Error;
use crate::facts::shape::Shape;
use crate::facts::{Facts, RealTokens};
use crate::mask::basis::{check_lengths, queries_end};
use crate::sets::frame::PlacedKeys;
use crate::sets::scalar::Rows;

/// Checks that each fact is valid and fits the shape.
pub(super) fn check_facts(facts: &Facts, shape: &Shape) -> Result<(), Error> {
    let (batch, kv_len) = (shape.batch_len(), shape.kv_len());
    let rows = |name: &str, given: Option<usize>| match given {
        Some(n) if n != batch => Err(Error::fact(
            name,
            format!(
                "{n} entries are given but the batch has {batch} rows: give one entry per batch row, or one for all rows"
            ),
        )),
        _ => Ok(()),
    };
    if let Some((name, len)) = facts.table.0.filter(|(_, len)| *len != kv_len) {
        return Err(Error::fact(
            name,
            format!(
                "each batch row has {len} entries but the shape has {kv_len} keys: give one entry for each key, cached keys included"
            ),
        ));
    }
    match &facts.real {
        Some(RealTokens::Lengths { lengths, .. }) => {
            check_lengths(lengths, batch, kv_len, "keys").map_err(|problem| Error::fact("lengths", problem))?
        }
        Some(RealTokens::Keys(keys)) => {
            rows("real keys", Some(keys.len()))?;
            if let Some(end) =
                keys.iter().filter_map(|k| k.covering_range()).map(|h| h.end as usize).find(|&e| e > kv_len)
            {
                return Err(Error::fact(
                    "real keys",
                    format!("the set contains key {}, but there are only {kv_len} keys, counted from 0", end - 1),
                ));
            }
        }
        None => {}
    }
    if let Some(lengths) = &facts.query_lengths {
        check_lengths(lengths, batch, shape.q_len(), "queries")
            .map_err(|problem| Error::fact("query_lengths", problem))?;
    }
    if let Some(documents) = &facts.documents {
        rows("documents", documents.rows())?;
    }
    for (label, at) in &facts.labels {
        rows(&format!("label {label:?}"), at.rows())?;
    }
    check_labels(facts, shape)?;
    if let Some(levels) = &facts.levels {
        rows("levels", levels.rows())?;
    }
    if let Some(positions) = &facts.positions {
        rows("positions", positions.rows())?;
        check_positions(positions, kv_len)?;
    }
    if let Some(runs) = &facts.runs {
        rows("position_runs", Some(runs.len()))?;
        runs.iter().enumerate().try_for_each(|(row, runs)| check_runs(row, runs, kv_len))?;
    }
    Ok(())
}

fn check_labels(facts: &Facts, shape: &Shape) -> Result<(), Error> {
    let extent = (0..shape.batch_len()).map(|row| queries_end(shape, row)).fold(shape.kv_len(), usize::max);
    for (label, rows) in &facts.labels {
        for span in rows.values().iter().flatten() {
            let last = span.end.map_or(span.start, |e| e.saturating_sub(1));
            if !facts.place_keys() && last >= extent {
                return Err(Error::fact(
                    format!("label {label:?}"),
                    format!("position {last} is beyond the end: the sequence has {extent} positions, counted from 0"),
                ));
            }
        }
    }
    Ok(())
}

fn check_runs(row: usize, runs: &[PlacedKeys], kv_len: usize) -> Result<(), Error> {
    let refuse = |problem: String| Err(Error::fact("position_runs", format!("batch row {row}: {problem}")));
    let mut next = 0;
    for run in runs {
        let keys = run.keys;
        if keys.is_empty() || keys.start < next || keys.end as usize > kv_len {
            return refuse(format!(
                "the run of keys {keys:?} is invalid for {kv_len} keys: each run must have a key, begin after the run \
                 before it, and end within the keys"
            ));
        }
        next = keys.end;
        if !(0..=Shape::MAX_LEN as i64 - i64::from(keys.len())).contains(&run.position) {
            return refuse(format!(
                "the run of keys {keys:?} begins at position {}, but the positions of its keys must be from 0 to {}",
                run.position,
                Shape::MAX_LEN - 1
            ));
        }
    }
    let mut held: Vec<_> = runs.iter().map(|run| (run.position, run.end())).collect();
    held.sort_unstable();
    match held.windows(2).find(|w| w[0].1 > w[1].0) {
        Some(w) => refuse(format!("two keys have position {}: give each key its own position", w[1].0)),
        None => Ok(()),
    }
}

fn check_positions(positions: &Rows<Vec<i64>>, kv_len: usize) -> Result<(), Error> {
    let refuse = |problem: String| Err(Error::fact("positions", problem));
    for (row, list) in positions.values().iter().enumerate() {
        if list.len() != kv_len {
            return refuse(format!(
                "batch row {row} has {} entries but there are {kv_len} keys: give one position per key",
                list.len()
            ));
        }
        let mut held: Vec<i64> = list.iter().copied().filter(|p| *p >= 0).collect();
        held.sort_unstable();
        if let Some(w) = held.windows(2).find(|w| w[0] == w[1]) {
            return refuse(format!(
                "batch row {row} has two keys at position {}: position ids that restart mark packed documents, \
                     give them as position_ids",
                w[0]
            ));
        }
        if let Some(p) = held.last().filter(|p| **p > Shape::MAX_LEN as i64) {
            return refuse(format!("position {p} is too large: give at most {}", Shape::MAX_LEN));
        }
    }
    Ok(())
}
