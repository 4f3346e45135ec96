//! [`Places`], the positions and distances at which the cells of an atom change, and [`Sizes`], the sequence lengths at
//! which the atom can be bound. A comparison of two masks at every sequence length reads both for all atoms.

use crate::sets::set::Span;
use std::collections::BTreeSet;
use std::ops::Range;

/// The case for which an atom returns its [`Places`] and [`Sizes`]: a batch row, and whether the facts mark padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Case {
    /// Index of the batch row.
    pub batch: usize,
    /// True if the facts mark padding. With padding on the left, a list in the parameters of the atom (such as document
    /// lengths) begins at the first non-padding token instead of position 0.
    pub padded: bool,
}

/// The positions and distances at which the cells of an atom change, called places. Only atoms whose cells depend on
/// nothing but the positions of query and key have places.
///
/// Between two neighboring places, all cells of a column (one key) are equal. The only exception is a stride: between
/// two places, its cells repeat with its step.
#[derive(Clone, Default, Debug)]
pub struct Places {
    pub(crate) queries: BTreeSet<i64>,
    pub(crate) keys: BTreeSet<i64>,
    pub(crate) distances: BTreeSet<i64>,
    pub(crate) chunks: BTreeSet<i64>,
    pub(crate) steps: BTreeSet<i64>,
    pub(crate) each: Option<Range<i64>>,
    pub(crate) listed: usize,
    pub(crate) price: usize,
}

/// The maximum position and distance in the comparison of masks, larger than every sequence length. Larger values are
/// replaced by this maximum.
pub(crate) const FAR: i64 = 1 << 33;

impl Places {
    /// Returns the places of an atom whose cells are all equal: no places.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that cells may change between the distances `q - k = distance - 1` and `distance`.
    pub fn distance(mut self, distance: i64) -> Self {
        self.distances.insert(distance.clamp(-FAR, FAR));
        self
    }

    /// Records that cells may change at the starts and ends of these spans of query positions. Each span adds 1 to the cost of
    /// evaluating a cell, in steps of the budget.
    pub fn query_spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.queries);
        self.listed(spans)
    }

    /// Records that cells may change at the starts and ends of these spans of key positions. Each span adds 1 to the cost of
    /// evaluating a cell, in steps of the budget.
    pub fn key_spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.keys);
        self.listed(spans)
    }

    /// Records that cells may change at the starts and ends of these spans, for queries and for keys.
    pub fn spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.queries);
        ends(spans, &mut self.keys);
        self.listed(spans)
    }

    fn listed(mut self, spans: &[Span]) -> Self {
        self.listed += 2 * spans.len();
        self.price += spans.len();
        self
    }

    /// Records that cells may change where the query enters or leaves the chunk of the key. A chunk has `size`
    /// positions.
    pub fn chunk(mut self, size: usize) -> Self {
        // a chunk longer than every length has no end
        if size < FAR as usize {
            self.chunks.insert(size as i64);
        }
        self
    }

    /// Records that the cells depend on `q - k` modulo `step`, and therefore repeat.
    pub fn stride(mut self, step: usize) -> Self {
        // a stride longer than every length allows only the own token
        if step >= FAR as usize {
            return self.distance(0).distance(1);
        }
        self.steps.insert(step as i64);
        self
    }

    /// Records that cells may change at every position of `start..start + count`, for queries and for keys. `price` is
    /// added to the cost of evaluating a cell, in steps of the budget.
    pub fn each(mut self, start: usize, count: usize, price: usize) -> Self {
        let start = start.min(FAR as usize);
        self.each = Some(start as i64..start.saturating_add(count).min(FAR as usize) as i64);
        self.listed = self.listed.saturating_add(count);
        self.price += price;
        self
    }
}

fn ends(spans: &[Span], to: &mut BTreeSet<i64>) {
    for span in spans {
        to.insert(span.start.min(FAR as usize) as i64);
        to.extend(span.end.map(|end| end.min(FAR as usize) as i64));
    }
}

/// The sequence lengths and the number of batch rows with which an atom can be bound.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Sizes {
    /// The smallest length of a sequence at which the atom can be bound without facts (data given when a mask is bound).
    pub first: usize,
    /// The largest length of a sequence at which the atom can be bound; `None` means no limit.
    pub last: Option<usize>,
    /// The required number of batch rows if the atom has a parameter with one entry per batch row; otherwise `None`.
    pub batch: Option<usize>,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { first: 1, last: None, batch: None }
    }
}

impl Sizes {
    /// Sets the smallest sequence length at which the atom can be bound to `first`.
    pub fn from(mut self, first: usize) -> Self {
        self.first = first.max(1);
        self
    }

    /// Sets the largest sequence length at which the atom can be bound to `last`.
    pub fn to(mut self, last: usize) -> Self {
        self.last = Some(last);
        self
    }

    /// Requires `count` batch rows: the atom can be bound only to shapes with this number of batch rows.
    pub fn batch(mut self, count: usize) -> Self {
        self.batch = Some(count);
        self
    }
}
