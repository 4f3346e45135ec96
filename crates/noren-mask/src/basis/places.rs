//! [`Places`], the positions at which the cells of an atom change, and [`Sizes`], the lengths at which the atom can be bound. A
//! comparison of two masks at every sequence length reads both.

use crate::set::Span;
use std::ops::Range;

/// The batch row, and whether its tokens may be padding: an atom returns its [`Places`] and [`Sizes`] for this case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Case {
    /// Batch row.
    pub batch: u64,
    /// True if the facts mark padding. With padding on the left, a list of the atom (such as document lengths) does not
    /// begin at position 0.
    pub padded: bool,
}

/// The places at which the cells of an atom change, for atoms whose cells depend only on the positions of query and
/// key.
///
/// Between two neighboring places, all cells of a column (one key) are equal. Only the cells of a stride vary between
/// two places: they repeat with the step of the stride.
#[derive(Clone, Default, Debug)]
pub struct Places {
    pub(crate) queries: Vec<i64>,
    pub(crate) keys: Vec<i64>,
    pub(crate) distances: Vec<i64>,
    pub(crate) chunks: Vec<i64>,
    pub(crate) steps: Vec<i64>,
    pub(crate) each: Option<Range<i64>>,
    pub(crate) listed: u64,
    pub(crate) price: u64,
}

/// Positions and distances of at least this value are larger than every length.
pub(crate) const FAR: i64 = 1 << 33;

impl Places {
    /// Returns the places of an atom whose cells are all equal: no places.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change of cells between the distances `q - k = distance - 1` and `distance`.
    pub fn distance(mut self, distance: i64) -> Self {
        self.distances.push(distance.clamp(-FAR, FAR));
        self
    }

    /// Adds changes of cells at the starts and ends of these spans of queries. Each span adds one step to the cost of
    /// evaluating a cell.
    pub fn query_spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.queries);
        self.listed(spans)
    }

    /// Adds changes of cells at the starts and ends of these spans of keys. Each span adds one step to the cost of
    /// evaluating a cell.
    pub fn key_spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.keys);
        self.listed(spans)
    }

    /// Adds changes of cells at the starts and ends of these spans, for queries and for keys.
    pub fn spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.queries);
        ends(spans, &mut self.keys);
        self.listed(spans)
    }

    fn listed(mut self, spans: &[Span]) -> Self {
        self.listed += 2 * spans.len() as u64;
        self.price += spans.len() as u64;
        self
    }

    /// Adds changes of cells where a query enters or leaves the key's chunk of `size` positions.
    pub fn chunk(mut self, size: u64) -> Self {
        // a chunk longer than every length has no end
        if size < FAR as u64 {
            self.chunks.push(size as i64);
        }
        self
    }

    /// Adds a repetition: the cells depend on `q - k` modulo `step`.
    pub fn stride(mut self, step: u64) -> Self {
        // a stride longer than every length allows only the own token
        if step >= FAR as u64 {
            return self.distance(0).distance(1);
        }
        self.steps.push(step as i64);
        self
    }

    /// Adds possible changes of cells at every position of `start..start + count`, for queries and for keys. The list
    /// adds `price` steps to the cost of evaluating a cell.
    pub fn each(mut self, start: u64, count: u64, price: u64) -> Self {
        let start = start.min(FAR as u64);
        self.each = Some(start as i64..start.saturating_add(count).min(FAR as u64) as i64);
        self.listed = self.listed.saturating_add(count);
        self.price += price;
        self
    }
}

fn ends(spans: &[Span], to: &mut Vec<i64>) {
    for span in spans {
        to.push(span.start.min(FAR as u64) as i64);
        to.extend(span.end.map(|end| end.min(FAR as u64) as i64));
    }
}

/// The sequence lengths and the number of batch rows with which an atom can be bound.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Sizes {
    /// The smallest length of a sequence at which the atom can be bound without facts.
    pub first: u64,
    /// The largest length of a sequence at which the atom can be bound; `None` means no limit.
    pub last: Option<u64>,
    /// The required number of batch rows, if a list of the atom has one entry per batch row; otherwise `None`.
    pub batch: Option<usize>,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { first: 1, last: None, batch: None }
    }
}

impl Sizes {
    /// Sets the smallest length to `first`.
    pub fn from(mut self, first: u64) -> Self {
        self.first = first.max(1);
        self
    }

    /// Sets the largest length to `last`.
    pub fn to(mut self, last: u64) -> Self {
        self.last = Some(last);
        self
    }

    /// Sets the number of batch rows to `count`.
    pub fn batch(mut self, count: usize) -> Self {
        self.batch = Some(count);
        self
    }
}
