//! [`Pair`], a cell for which an atom is evaluated, and [`Site`], the batch row and head for which planning prepares an
//! atom.

use crate::facts::Facts;
use crate::facts::resolve::RowFacts;
use crate::sets::frame::Frame;
use crate::sets::set::Span;
use std::sync::{Arc, LazyLock};

/// A query and a key of one batch row and head, with the facts of the batch row.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Pair<'a> {
    /// Position of the query. A negative position is before the first token.
    pub q: i64,
    /// Position of the key, at least 0.
    pub k: i64,
    /// Index of the query row.
    pub row: usize,
    /// Index of the key.
    pub key: usize,
    /// Index of the batch row.
    pub batch: usize,
    /// Index of the query head.
    pub head: usize,
    pub(crate) facts: RowFacts<'a>,
}

/// Empty facts, and a [`Frame`] (map from indices to positions) in which every index is its own position. [`Pair::at`]
/// uses them, because it has no shape and no facts.
static NOWHERE: LazyLock<(Facts, Frame)> = LazyLock::new(|| {
    let frame = Frame { q_len: u32::MAX, kv_len: u32::MAX, offset: 0, runs: None };
    (Facts::new(), frame)
});

impl Pair<'static> {
    /// Returns the pair of two positions in batch row 0 and head 0 without facts, for atoms that read positions only.
    pub fn at(q: i64, k: i64) -> Self {
        let (facts, frame) = &*NOWHERE;
        let facts = RowFacts { facts, frame, row: 0 };
        Pair { q, k, row: q.max(0) as usize, key: k.max(0) as usize, batch: 0, head: 0, facts }
    }
}

impl Pair<'_> {
    /// Returns the facts that the mask is bound to.
    pub fn facts(&self) -> &Facts {
        self.facts.facts
    }

    /// Returns the number of keys of the shape.
    pub fn kv_len(&self) -> usize {
        self.facts.frame.kv_len as usize
    }

    /// Returns true if `position` has the label `label` in this batch row.
    pub fn has_label(&self, label: &str, position: i64) -> bool {
        self.facts.label(label).is_some_and(|spans| spans.iter().any(|span| span.holds(position)))
    }

    /// Returns the clearance level of `position` in this batch row, or `None` if the facts (data given when the mask is
    /// bound) give no clearance level for this position.
    pub fn level(&self, position: i64) -> Option<i64> {
        self.facts.level(position)
    }

    /// Returns the index of the document that contains `position` in this batch row, or `None` if the facts give no
    /// document for this position.
    pub fn document(&self, position: i64) -> Option<usize> {
        Some(self.facts.documents(None)?.at(position)?.0)
    }
}

/// The batch row and head for which planning prepares an atom, with the facts and the lengths of the shape.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub(crate) row: RowFacts<'a>,
    pub(crate) shared: &'a Arc<Facts>,
    pub(crate) head: usize,
}

impl<'a> Site<'a> {
    /// Returns the index of the batch row.
    pub fn batch(&self) -> usize {
        self.row.row
    }

    /// Returns the index of the query head.
    pub fn head(&self) -> usize {
        self.head
    }

    /// Returns the facts that the mask is bound to.
    pub fn facts(&self) -> &'a Facts {
        self.row.facts
    }

    /// Returns the number of query rows.
    pub fn q_len(&self) -> usize {
        self.row.frame.q_len as usize
    }

    /// Returns the number of keys.
    pub fn kv_len(&self) -> usize {
        self.row.frame.kv_len as usize
    }

    /// Returns the position of the first query row.
    pub fn query_offset(&self) -> i64 {
        self.row.frame.offset
    }

    /// Returns the first position after the last key.
    pub fn keys_end(&self) -> i64 {
        self.row.frame.end()
    }

    /// Returns the positions that have `label` in this batch row, or `None` if the facts do not declare the label.
    pub fn label(&self, label: &str) -> Option<&'a [Span]> {
        self.row.label(label)
    }

    /// Returns the clearance levels of this batch row by position, or `None` if the facts give no clearance levels.
    pub fn levels(&self) -> Option<&'a [i64]> {
        self.row.levels()
    }
}
