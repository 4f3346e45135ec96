//! Sequences in rows in which each shared prefix occurs once.

use crate::error::{Error, raise};
use noren::noren_mask::{Fold, FoldOptions};
use pyo3::prelude::*;

/// (first token in the row, token after the last, parent run or -1, position of the first token, a sequence of the run)
type Run = (usize, usize, i64, usize, usize);
/// (row, the tokens of the sequence as ranges of indices in the row)
type Place = (usize, Vec<(usize, usize)>);

/// Folds sequences. `tokens` has the token ids of all sequences one after another, as native 64-bit integers; `lengths` has the
/// number of tokens of each sequence. Returns the runs of each row, and the place of each sequence.
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
                return Err(Error::new_err(format!("{} token ids are left for a sequence of {length}", rest.len())));
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
