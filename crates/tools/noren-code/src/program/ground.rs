//! [`Ground`]: the shape and facts of a mask, and the positions that its queries and keys have.

use noren_mask::frame::Frame;
use noren_mask::resolve::{RowFacts, frame};
use noren_mask::{Facts, Shape};

/// The shape and facts of a mask, with the ranges of positions of queries and keys.
pub(crate) struct Ground<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) facts: &'a Facts,
    /// For each batch row, the positions of its queries and keys.
    pub(crate) frames: Vec<Frame>,
    /// The smallest position of a query over all batch rows; it can be negative.
    pub(crate) first_query: i64,
    /// The largest position of a query or key, plus 1.
    pub(crate) len: i64,
}

impl<'a> Ground<'a> {
    pub(crate) fn new(shape: &'a Shape, facts: &'a Facts) -> Self {
        let frames: Vec<Frame> = (0..shape.batch_len()).map(|row| frame(shape, facts, row)).collect();
        let first_query = frames.iter().map(|frame| frame.offset).min().unwrap_or(0);
        let ends = frames.iter().map(|frame| frame.end().max(frame.offset + i64::from(frame.q_len)));
        let len = ends.max().unwrap_or(1).max(1);
        Ground { shape, facts, frames, first_query, len }
    }

    /// Returns the facts of batch row `row`.
    pub(crate) fn row(&self, row: usize) -> RowFacts<'_> {
        RowFacts { facts: self.facts, frame: &self.frames[row], row }
    }

    /// Returns the results of `of` for the facts of each batch row. If all results are equal, returns only one.
    pub(crate) fn rows<T: PartialEq>(&self, of: impl Fn(RowFacts<'_>) -> T) -> Vec<T> {
        together((0..self.frames.len()).map(|row| of(self.row(row))).collect())
    }

    /// Returns the position of the first query of each batch row. If all of them are equal, returns only one.
    pub(crate) fn offsets(&self) -> Vec<i64> {
        self.rows(|row| row.frame.offset)
    }

    /// Returns true if the facts define positions of keys, which may differ from the indices of the keys.
    pub(crate) fn places_keys(&self) -> bool {
        self.frames.iter().any(|frame| frame.runs.is_some())
    }

    /// Returns the positions of the keys for each batch row; -1 for a cache slot without a key. If all rows are equal,
    /// returns only one.
    pub(crate) fn key_positions(&self) -> Vec<Vec<i64>> {
        self.rows(|row| (0..row.frame.kv_len).map(|key| row.frame.key(key).max(-1)).collect())
    }

    /// Returns true if at least one slot of the key cache contains no key.
    pub(crate) fn has_free_slots(&self) -> bool {
        self.frames.iter().any(|frame| frame.live().is_some())
    }
}

/// Returns `rows`, or only its first entry if all entries are equal.
pub(crate) fn together<T: PartialEq>(mut rows: Vec<T>) -> Vec<T> {
    if rows.windows(2).all(|pair| pair[0] == pair[1]) {
        rows.truncate(1);
    }
    rows
}
