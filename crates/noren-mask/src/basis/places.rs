//! [`Places`] and [`Sizes`]: what a comparison at every length must know of an atom.

use crate::set::Span;
use std::ops::Range;

/// The shapes for which an atom gives its [`Places`] and [`Sizes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Case {
    /// Batch row.
    pub batch: u64,
    /// Whether the facts say which tokens are padding, at either end: lists of positions may then begin elsewhere.
    pub padded: bool,
}

/// The places at which the cells of an atom change, for atoms whose cells depend on the positions of query and key alone.
///
/// Between two neighbouring places all cells of a column (one key) are equal, but for strides, which repeat.
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

/// Positions and distances from here on are beyond every length.
pub(crate) const FAR: i64 = 1 << 33;

impl Places {
    /// Nothing changes anywhere.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cells change where `q - k` passes from `distance - 1` to `distance`.
    pub fn distance(mut self, distance: i64) -> Self {
        self.distances.push(distance.clamp(-FAR, FAR));
        self
    }

    /// Cells change at the ends of these spans of queries. Every span is looked at for every cell.
    pub fn query_spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.queries);
        self.listed(spans)
    }

    /// Cells change at the ends of these spans of keys. Every span is looked at for every cell.
    pub fn key_spans(mut self, spans: &[Span]) -> Self {
        ends(spans, &mut self.keys);
        self.listed(spans)
    }

    /// Cells change at the ends of these spans, of queries and of keys.
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

    /// Cells change where a query enters or leaves the key's chunk of `size` positions.
    pub fn chunk(mut self, size: u64) -> Self {
        // a chunk that no length leaves has no end
        if size < FAR as u64 {
            self.chunks.push(size as i64);
        }
        self
    }

    /// Cells repeat with `q - k` modulo `step`.
    pub fn stride(mut self, step: u64) -> Self {
        // a stride that no length holds twice allows its own token only
        if step >= FAR as u64 {
            return self.distance(0).distance(1);
        }
        self.steps.push(step as i64);
        self
    }

    /// Cells may change at every position of `start..start + count`, of queries and of keys; each takes `price` steps.
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

/// The sizes that the lists of an atom are for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Sizes {
    /// The shortest length to which the atom binds without facts.
    pub first: u64,
    /// The longest length, where there is one.
    pub last: Option<u64>,
    /// The number of batch rows, where a list has one entry for each.
    pub batch: Option<usize>,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { first: 1, last: None, batch: None }
    }
}

impl Sizes {
    /// Lengths from `first` on.
    pub fn from(mut self, first: u64) -> Self {
        self.first = first.max(1);
        self
    }

    /// Lengths up to `last`.
    pub fn to(mut self, last: u64) -> Self {
        self.last = Some(last);
        self
    }

    /// A batch of `count` rows.
    pub fn batch(mut self, count: usize) -> Self {
        self.batch = Some(count);
        self
    }
}
