//! [`Line`] and [`Rank`]: what the canonical form must know of an atom.

use super::runs::Runs;
use crate::set::Span;

/// The number an atom looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axis {
    /// `k - q`, any integer.
    Distance,
    /// `k`, from 0: a slot of a ring buffer that holds no key is never allowed, whatever the mask says of it.
    Key,
    /// `q`, any integer: a query may stand before position 0.
    Query,
}

impl Axis {
    /// The least number on the axis.
    fn first(self) -> i64 {
        if self == Axis::Key { 0 } else { i64::MIN }
    }

    pub(crate) fn complement(self, runs: &Runs) -> Runs {
        runs.missing(self.first(), i64::MAX)
    }

    pub(crate) fn is_all(self, runs: &Runs) -> bool {
        self.complement(runs).is_empty()
    }
}

/// A set of distances `k - q`, of keys or of queries.
#[derive(Clone, Debug)]
pub struct Line {
    pub(crate) axis: Axis,
    pub(crate) runs: Runs,
}

impl Line {
    /// `first <= k - q <= last`; `i64::MIN` and `i64::MAX` mean "without end". `None` for other distances of 2^62 and more, whose
    /// complement would not fit.
    pub fn distances(first: i64, last: i64) -> Option<Self> {
        let far = |at: i64| at != i64::MIN && at != i64::MAX && at.unsigned_abs() >= super::limits::LIMIT;
        let line = || Line { axis: Axis::Distance, runs: Runs::of([(first, last)]) };
        (!far(first) && !far(last)).then(line)
    }

    /// The keys at these positions.
    pub fn keys(spans: &[Span]) -> Self {
        Line { axis: Axis::Key, runs: Runs::of_spans(spans) }
    }

    /// The queries at these positions.
    pub fn queries(spans: &[Span]) -> Self {
        Line { axis: Axis::Query, runs: Runs::of_spans(spans) }
    }
}

/// Where an atom is placed among the operands of `&` and `|` in the canonical form: the ones that shape the picture first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Family {
    /// Distances in a range.
    Band,
    /// Blocks and residues of positions.
    Block,
    /// Documents.
    Documents,
    /// Structures of their own: spans, trees, grids.
    Structure,
    /// Padding.
    Padding,
    /// Sets of keys.
    Keys,
    /// Sets of queries.
    Queries,
    /// Both.
    Global,
    /// Levels.
    Levels,
    /// Drawn cells.
    Random,
    /// Arrays and functions.
    Given,
    /// Everything else.
    Own,
}

/// A place among the operands of `&` and `|` in the canonical form: by family, then by number, then by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    family: Family,
    number: u8,
}

impl Family {
    /// The place of an atom before those of the family that have a larger number or none.
    pub const fn at(self, number: u8) -> Rank {
        Rank { family: self, number }
    }
}

/// The last place of a family.
impl From<Family> for Rank {
    fn from(family: Family) -> Self {
        family.at(u8::MAX)
    }
}

impl Rank {
    /// The family.
    pub fn family(self) -> Family {
        self.family
    }
}
