//! Sets of positions. In the text of a mask, they are written as `3`, `0..4`, `[3, 9, 10..14]` or `label="pii"`.

/// A range of positions in a mask: `a..b`, `a..`, `..b` or a single `a`.
///
/// The end is not included, as in Rust. A single position `a` is the range `a..a+1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Span {
    /// The first position in the range.
    pub start: usize,
    /// The first position after the range, or `None` for "to the end of the sequence".
    pub end: Option<usize>,
}

impl Span {
    /// Returns whether the range contains the position `at`.
    pub fn contains(self, at: usize) -> bool {
        self.start <= at && self.end.is_none_or(|end| at < end)
    }

    /// Returns whether the range contains `position`, which may be negative. No range contains a negative position.
    pub fn holds(self, position: i64) -> bool {
        usize::try_from(position).is_ok_and(|at| self.contains(at))
    }
}

impl From<usize> for Span {
    fn from(at: usize) -> Self {
        Span { start: at, end: Some(at.saturating_add(1)) }
    }
}

impl From<std::ops::Range<usize>> for Span {
    fn from(r: std::ops::Range<usize>) -> Self {
        Span { start: r.start, end: Some(r.end) }
    }
}

impl From<std::ops::RangeFrom<usize>> for Span {
    fn from(r: std::ops::RangeFrom<usize>) -> Self {
        Span { start: r.start, end: None }
    }
}

impl From<std::ops::RangeTo<usize>> for Span {
    fn from(r: std::ops::RangeTo<usize>) -> Self {
        Span { start: 0, end: Some(r.end) }
    }
}

/// A set of positions: a list of ranges, or all positions with a label (a name for positions that the facts give).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Positions {
    /// The positions of these ranges.
    Spans(Vec<Span>),
    /// The positions that have this label in the facts.
    Label(String),
}

impl Positions {
    /// Returns the set of positions that have `label`.
    pub fn label(label: impl Into<String>) -> Self {
        Positions::Label(label.into())
    }
}

/// Implements conversions from a span, and from a list of spans, to a set or selector.
macro_rules! from_spans {
    ($target:ident: $($kind:ty),*) => {
        $(
            impl From<$kind> for $target {
                fn from(value: $kind) -> Self {
                    $target::Spans(vec![value.into()])
                }
            }
        )*

        impl<S: Into<Span>, const N: usize> From<[S; N]> for $target {
            fn from(spans: [S; N]) -> Self {
                $target::Spans(spans.into_iter().map(Into::into).collect())
            }
        }
    };
}
from_spans!(Positions: usize, std::ops::Range<usize>, std::ops::RangeFrom<usize>, std::ops::RangeTo<usize>, Span);
from_spans!(Selector: usize, std::ops::Range<usize>, std::ops::RangeFrom<usize>, std::ops::RangeTo<usize>, Span);

impl<S: Into<Span>> From<Vec<S>> for Positions {
    fn from(spans: Vec<S>) -> Self {
        Positions::Spans(spans.into_iter().map(Into::into).collect())
    }
}

/// The heads, batch rows or layers to which one mask in `heads(...)`, `batch(...)` or `layers(...)` applies, as a set
/// of indices from 0.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Selector {
    /// The indices in these ranges.
    Spans(Vec<Span>),
    /// Every `step`-th index, beginning with the index `from`: `every 2` selects 0, 2, 4, ...; `every 6 from 5` selects
    /// 5, 11, 17, and so on.
    Every {
        /// The distance between two indices, at least 1.
        step: usize,
        /// The first index.
        from: usize,
    },
    /// All indices that no other selector in the same `heads(...)`, `batch(...)` or `layers(...)` names.
    Else,
}

impl Selector {
    /// Returns the selector of the indices 0, `step`, 2 `step`, and so on.
    pub fn every(step: usize) -> Self {
        Selector::Every { step, from: 0 }
    }

    /// Returns whether the selector contains `index`, the index of a head, batch row or layer. For `Else`, the result
    /// is always false.
    pub fn names(&self, index: usize) -> bool {
        match self {
            Selector::Spans(spans) => spans.iter().any(|s| s.contains(index)),
            Selector::Every { step, from } => index >= *from && (index - from).is_multiple_of((*step).max(1)),
            Selector::Else => false,
        }
    }
}
