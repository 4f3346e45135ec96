//! [`Line`] (a set of distances or positions) and [`Rank`] (an order of atoms), which the canonical form of masks uses.

use super::places::Places;
use super::runs::Runs;
use crate::sets::set::Span;

/// The number on which the cells of an atom depend: a distance or a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axis {
    /// The distance `k - q`, any integer.
    Distance,
    /// The position `k` of the key, from 0. An empty slot of a ring buffer has no position: every mask denies it.
    Key,
    /// The position `q` of the query, any integer. A query may have a negative position.
    Query,
}

impl Axis {
    /// Returns the smallest number of the axis: 0 for positions of keys, `i64::MIN` for distances and positions of queries.
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
    /// Returns the set of distances `first <= k - q <= last`. The values `i64::MIN` for `first` and `i64::MAX` for
    /// `last` mean no limit on that side. Returns `None` if another value has a magnitude of 2^62 or more.
    pub fn distances(first: i64, last: i64) -> Option<Self> {
        let far = |at: i64| at != i64::MIN && at != i64::MAX && at.unsigned_abs() >= super::limits::LIMIT as u64;
        let line = || Line { axis: Axis::Distance, runs: Runs::of([(first, last)]) };
        (!far(first) && !far(last)).then(line)
    }

    /// Returns the set of the key positions in `spans`.
    pub fn keys(spans: &[Span]) -> Self {
        Line { axis: Axis::Key, runs: Runs::of_spans(spans) }
    }

    /// Returns the set of the query positions in `spans`.
    pub fn queries(spans: &[Span]) -> Self {
        Line { axis: Axis::Query, runs: Runs::of_spans(spans) }
    }

    /// Returns the places at which the cells of the set change.
    pub(crate) fn places(&self) -> Places {
        match self.axis {
            Axis::Distance => self.runs.as_slice().iter().fold(Places::new(), |places, &(first, last)| {
                // the distances of places are `q - k`
                let places = if first == i64::MIN { places } else { places.distance(1 - first) };
                if last == i64::MAX { places } else { places.distance(-last) }
            }),
            Axis::Key => Places::new().key_spans(&self.runs.spans()),
            Axis::Query => Places::new().query_spans(&self.runs.spans()),
        }
    }
}

/// The family of an elementary mask (atom). In the canonical form, the operands of `&` and `|` are sorted by family, in
/// the order of the variants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Family {
    /// Elementary masks that allow cells by their distance `q - k`: `causal`, `window`, `sliding` and `distances`.
    Band,
    /// Elementary masks that repeat: `chunk` (equal blocks of positions) and `stride` (positions at equal distances).
    Block,
    /// The elementary mask `documents`.
    Documents,
    /// Elementary masks of spans, trees and grids.
    Structure,
    /// Elementary masks that deny padding tokens.
    Padding,
    /// Elementary masks that allow a set of keys.
    Keys,
    /// Elementary masks that allow a set of queries.
    Queries,
    /// The elementary mask `global`, which selects both queries and keys.
    Global,
    /// The elementary mask `clearance`, which compares clearance levels.
    Levels,
    /// Elementary masks whose cells are drawn at random.
    Random,
    /// Elementary masks whose cells are given as an array or function in the facts.
    Given,
    /// All other elementary masks, such as those that the user implements.
    Own,
}

/// The rank (place in an order) of an elementary mask. The canonical form sorts the operands of `&` and `|` by rank: by
/// family, then by a number within the family, then by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    family: Family,
    number: u8,
}

impl Family {
    /// Returns the rank with the family `self` and the number `number`. In a family, smaller numbers come first, and
    /// ranks without a number come last.
    pub const fn at(self, number: u8) -> Rank {
        Rank { family: self, number }
    }
}

/// Returns a rank of this family without a number: it comes after all ranks of the family that have a number.
impl From<Family> for Rank {
    fn from(family: Family) -> Self {
        family.at(u8::MAX)
    }
}

impl Rank {
    /// Returns the family of elementary masks, such as distances, to which the rank belongs.
    pub fn family(self) -> Family {
        self.family
    }
}
