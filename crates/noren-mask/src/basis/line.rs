//! [`Line`] and [`Rank`]: the properties of an atom that the canonical form uses.

use super::runs::Runs;
use crate::set::Span;

/// The number that decides a cell of an atom: a distance or a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axis {
    /// The distance `k - q`, any integer.
    Distance,
    /// The position `k` of the key, from 0. A slot of a ring buffer without a key is never allowed, whatever the mask
    /// is.
    Key,
    /// The position `q` of the query, any integer. A query may have a negative position.
    Query,
}

impl Axis {
    /// Returns the smallest number on the axis.
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

/// A set of distances `k - q`, of key positions or of query positions.
#[derive(Clone, Debug)]
pub struct Line {
    pub(crate) axis: Axis,
    pub(crate) runs: Runs,
}

impl Line {
    /// Returns the distances `first <= k - q <= last`. `i64::MIN` and `i64::MAX` mean "without end". Returns `None` if
    /// another number has a magnitude of 2^62 or more, because the complement would not fit.
    pub fn distances(first: i64, last: i64) -> Option<Self> {
        let far = |at: i64| at != i64::MIN && at != i64::MAX && at.unsigned_abs() >= super::limits::LIMIT;
        let line = || Line { axis: Axis::Distance, runs: Runs::of([(first, last)]) };
        (!far(first) && !far(last)).then(line)
    }

    /// Returns the keys at these positions.
    pub fn keys(spans: &[Span]) -> Self {
        Line { axis: Axis::Key, runs: Runs::of_spans(spans) }
    }

    /// Returns the queries at these positions.
    pub fn queries(spans: &[Span]) -> Self {
        Line { axis: Axis::Query, runs: Runs::of_spans(spans) }
    }
}

/// The family of an atom, which gives its place among the operands of `&` and `|` in the canonical form. Atoms that
/// decide the overall form of the mask come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Family {
    /// Distances in a range.
    Band,
    /// Blocks and residues of positions.
    Block,
    /// Documents.
    Documents,
    /// Atoms with a structure: spans, trees, grids.
    Structure,
    /// Padding.
    Padding,
    /// Sets of keys.
    Keys,
    /// Sets of queries.
    Queries,
    /// Sets of queries and keys.
    Global,
    /// Levels.
    Levels,
    /// Random cells.
    Random,
    /// Arrays and functions that the facts give.
    Given,
    /// All other atoms, such as those of the user.
    Own,
}

/// A place among the operands of `&` and `|` in the canonical form: ordered by family, then by number, then by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    family: Family,
    number: u8,
}

impl Family {
    /// Returns the place with this number in the family. A smaller number comes first, and places without a number come
    /// last.
    pub const fn at(self, number: u8) -> Rank {
        Rank { family: self, number }
    }
}

/// Returns the last place of the family.
impl From<Family> for Rank {
    fn from(family: Family) -> Self {
        family.at(u8::MAX)
    }
}

impl Rank {
    /// Returns the family.
    pub fn family(self) -> Family {
        self.family
    }
}
