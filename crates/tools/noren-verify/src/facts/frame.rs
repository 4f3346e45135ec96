//! The positions of the queries and keys of one batch row.

use crate::facts::shape::Shape;
use crate::facts::{Facts, at_end};
use crate::runs::{Runs, holds, normal};

/// Consecutive keys with consecutive positions: keys `index..index + len` have the positions `position..position +
/// len`.
#[derive(Debug, Clone, PartialEq)]
struct Piece {
    index: i64,
    position: i64,
    len: i64,
}

/// The positions of the queries and keys of one batch row, and which queries and keys are non-padding tokens.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) row: usize,
    pub(crate) q_len: i64,
    pub(crate) kv_len: i64,
    pub(crate) offset: i64,
    /// The sequences of keys with consecutive positions, sorted by index. If the facts (data given with a mask) have no
    /// `positions`, one entry contains all keys. Keys with a negative position are empty slots of the cache and are left
    /// out.
    pieces: Vec<Piece>,
    /// The entries of `pieces`, sorted by position.
    by_position: Vec<Piece>,
    /// True if the facts (data given with a mask) have the field `positions`, the positions of the keys.
    placed: bool,
    /// The indices of the non-padding keys; `None` if the facts (data given with a mask) have neither `lengths` nor
    /// `real_keys`.
    pub(crate) real: Option<Runs>,
    /// The number of non-padding queries; `None` if the facts (data given with a mask) have no `query_lengths`.
    query_length: Option<i64>,
    /// True if padding is on the left.
    left: bool,
    /// The length of the batch row without padding on the right, and its full length, in positions. A list of clearance
    /// levels, and the total of the document lengths, must be at least as long as the first number.
    pub(crate) extent: (i64, i64),
}

impl Frame {
    pub(crate) fn new(shape: &Shape, facts: &Facts, row: usize) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        match &facts.positions {
            None => pieces.push(Piece { index: 0, position: 0, len: shape.kv_len }),
            Some(positions) => {
                for (index, &position) in positions.of(row).iter().enumerate().filter(|key| *key.1 >= 0) {
                    let index = index as i64;
                    match pieces.last_mut() {
                        Some(last) if last.index + last.len == index && last.position + last.len == position => {
                            last.len += 1
                        }
                        _ => pieces.push(Piece { index, position, len: 1 }),
                    }
                }
            }
        }
        let mut by_position = pieces.clone();
        by_position.sort_unstable_by_key(|piece| piece.position);
        let mut frame = Self {
            row,
            q_len: shape.q_len,
            kv_len: shape.kv_len,
            offset: shape.offsets[row],
            pieces,
            by_position,
            placed: facts.positions.is_some(),
            real: facts.real(row, shape.kv_len),
            query_length: facts.query_lengths.as_ref().map(|lengths| lengths[row]),
            left: facts.left,
            extent: (0, 0),
        };
        frame.extent = frame.reach();
        frame
    }

    /// Returns the position of query row `i`.
    pub(crate) fn query(&self, i: i64) -> i64 {
        i + self.offset
    }

    /// Returns the position of key `j`; `None` if `j` is an empty slot of the cache.
    pub(crate) fn key(&self, j: i64) -> Option<i64> {
        let at = self.pieces.partition_point(|piece| piece.index + piece.len <= j);
        self.pieces.get(at).filter(|piece| piece.index <= j).map(|piece| j - piece.index + piece.position)
    }

    /// Returns the index of the key at `position`; `None` if no key is at `position`.
    pub(crate) fn key_at(&self, position: i64) -> Option<i64> {
        let at = self.by_position.partition_point(|piece| piece.position + piece.len <= position);
        let piece = self.by_position.get(at).filter(|piece| piece.position <= position)?;
        Some(position - piece.position + piece.index)
    }

    /// Returns the indices of the keys whose positions are in `positions`, a sorted list of ranges.
    pub(crate) fn keys(&self, positions: &[(i64, i64)]) -> Runs {
        if !self.placed {
            let cut = positions.iter().map(|run| (run.0.max(0), run.1.min(self.kv_len)));
            return cut.filter(|run| run.0 < run.1).collect();
        }
        let mut out = Runs::new();
        for piece in &self.pieces {
            let end = piece.position + piece.len;
            let first = positions.partition_point(|run| run.1 <= piece.position);
            for run in positions[first..].iter().take_while(|run| run.0 < end) {
                let shift = piece.index - piece.position;
                out.push((run.0.max(piece.position) + shift, run.1.min(end) + shift));
            }
        }
        normal(out)
    }

    /// Returns the indices of all keys except empty slots of the cache.
    pub(crate) fn slots(&self) -> Runs {
        normal(self.pieces.iter().map(|piece| (piece.index, piece.index + piece.len)).collect())
    }

    /// Returns the number of entries of the field `pieces` (sequences of keys with consecutive positions). The cost of
    /// a search for keys is proportional to this number.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the largest position of a key plus 1; 0 if no key has a position.
    pub(crate) fn key_end(&self) -> i64 {
        self.by_position.last().map_or(0, |piece| piece.position + piece.len)
    }

    /// Returns the query row at the position of key `t`; `None` if no query row has this position.
    pub(crate) fn row_of(&self, t: i64) -> Option<i64> {
        self.key(t).map(|position| position - self.offset).filter(|i| (0..self.q_len).contains(i))
    }

    /// Returns the first query row whose position is not the position of a key; `None` if there is no such query row.
    pub(crate) fn no_token(&self) -> Option<i64> {
        if !self.placed {
            let fits = self.offset >= 0 && self.query(self.q_len) <= self.kv_len;
            return (!fits).then_some(if self.offset < 0 { 0 } else { (self.kv_len - self.offset).max(0) });
        }
        (0..self.q_len).find(|&i| self.key_at(self.query(i)).is_none())
    }

    /// Returns true if the keys at the positions of query rows `first..end` are certainly all in `set`. If the facts
    /// (data given with a mask) have `positions`, the result is always false.
    pub(crate) fn all_within(&self, first: i64, end: i64, set: &[(i64, i64)]) -> bool {
        let (first, end) = (self.query(first), self.query(end));
        let at = set.partition_point(|run| run.1 <= first);
        !self.placed && set.get(at).is_some_and(|run| run.0 <= first && end <= run.1)
    }

    /// Returns true if the queries are the last tokens of the sequence of keys.
    fn aligned(&self) -> bool {
        self.offset + self.q_len == self.kv_len
    }

    /// Returns the non-padding query rows for `padding(on=both)`. `real` contains the non-padding keys, and `left` is
    /// true if padding is on the left. Returns `None` if the facts (data given with a mask) have no `query_lengths` and
    /// the queries are not the last tokens, because it is then unknown which queries are padding.
    pub(crate) fn real_queries(&self, real: &Runs, left: bool) -> Option<Runs> {
        if let Some(length) = self.query_length {
            return Some(at_end(left, length, self.q_len));
        }
        if !self.aligned() {
            return None;
        }
        let rows = (0..self.q_len).filter(|&i| self.key_at(self.query(i)).is_some_and(|j| holds(real, j)));
        Some(normal(rows.map(|i| (i, i + 1)).collect()))
    }

    fn reach(&self) -> (i64, i64) {
        let query_end = self.query(self.q_len).max(0);
        let full = self.key_end().max(query_end);
        if self.left {
            return (full, full);
        }
        // Keys with explicit positions have no padding on the right.
        let real_end = match &self.real {
            Some(real) if !self.placed => real.last().map_or(0, |run| run.1),
            _ => self.key_end(),
        };
        // A query at the position of a padding key is a padding query.
        let last_query = self.query_length.map_or(query_end, |length| self.query(length).max(0));
        let queries = if last_query <= self.key_end() { 0 } else { last_query };
        (real_end.max(queries), full)
    }
}
