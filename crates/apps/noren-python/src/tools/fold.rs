//! Folds sequences into rows in which each shared prefix occurs once.

use crate::error::{Error, raise};
use noren::noren_mask::{Fold, FoldOptions};
use pyo3::prelude::*;

/// A run, which is a group of consecutive tokens of the prefix tree: (index of the first token in the row, index after
/// the last, index of the parent run or -1, position of the first token in its sequence, index of a sequence that
/// contains the run)
type Run = (usize, usize, i64, usize, usize);
/// The location of a folded sequence: (index of its row, ranges of indices in this row that hold its tokens)
type Place = (usize, Vec<(usize, usize)>);

/// Folds sequences: places them in rows in which each prefix that several sequences share is stored once.
///
/// `tokens` has the token ids of all sequences one after another, as native 64-bit integers; `lengths` has the number
/// of tokens of each sequence. `budget` is the maximum number of tokens of a row, `min_prefix` the minimum number of
/// tokens of a shared prefix, and `max_roots` the maximum number of tree roots in a row (sequences that share their
/// first tokens have one root). Returns (runs of each row, location of each sequence).
#[pyfunction]
#[pyo3(signature = (tokens, lengths, budget, min_prefix, max_roots))]
pub(crate) fn fold_sequences(
    py: Python<'_>,
    tokens: &[u8],
    lengths: Vec<usize>,
    budget: Option<usize>,
    min_prefix: usize,
    max_roots: Option<usize>,
) -> PyResult<(Vec<Vec<Run>>, Vec<Place>)> {
    let fold = py.detach(|| {
        let ids: Vec<i64> = tokens.as_chunks::<8>().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect();
        let mut rest = &ids[..];
        let mut sequences = Vec::with_capacity(lengths.len());
        for length in lengths {
            let Some((sequence, after)) = rest.split_at_checked(length) else {
                return Err(Error::new_err(format!(
                    "the sequence has {length} tokens, but only {} token ids are left in `tokens`",
                    rest.len()
                )));
            };
            sequences.push(sequence);
            rest = after;
        }
        Fold::new(&sequences, FoldOptions { budget, min_prefix, max_roots }).map_err(raise)
    })?;
    let runs = |row: &noren::noren_mask::FoldRow| {
        let run = |run: &noren::noren_mask::FoldRun| {
            let parent = run.parent.map_or(-1, |parent| parent as i64);
            (run.slots.start, run.slots.end, parent, run.position, run.sequence)
        };
        row.runs.iter().map(run).collect()
    };
    let place = |place: &noren::noren_mask::FoldPlace| {
        (place.row, place.slots.iter().map(|slots| (slots.start, slots.end)).collect())
    };
    Ok((fold.rows.iter().map(runs).collect(), fold.places.iter().map(place).collect()))
}
