//! [`Simplified`] and [`Family`]: what `simplify` asks of an atom.

use crate::mask::Mask;
use crate::set::Span;
use crate::simplify::{Axis, Runs};

/// The answer of [`Atom::simplify`](super::Atom::simplify).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Simplified {
    /// The atom is in its simplest form.
    Same,
    /// This mask allows the same cells and is in its simplest form, perhaps the atom itself.
    Mask(Mask),
    /// The cells depend on one number only, so that any number of such atoms joins into one.
    Line(Line),
}

/// A set of distances `k - q`, of keys or of queries.
#[derive(Clone, Debug)]
pub struct Line {
    pub(crate) axis: Axis,
    pub(crate) runs: Runs,
}

impl Simplified {
    /// `first <= k - q <= last`; `i64::MIN` and `i64::MAX` mean "without end". Distances of 2^62 and more stay as they are.
    pub fn distances(first: i64, last: i64) -> Self {
        let far = |at: i64| at != i64::MIN && at != i64::MAX && at.unsigned_abs() >= crate::check::LIMIT;
        match far(first) || far(last) {
            true => Simplified::Same,
            false => Simplified::Line(Line { axis: Axis::Distance, runs: Runs::of([(first, last)]) }),
        }
    }

    /// The keys at these positions.
    pub fn keys(spans: &[Span]) -> Self {
        Simplified::Line(Line { axis: Axis::Key, runs: Runs::of_spans(spans) })
    }

    /// The queries at these positions.
    pub fn queries(spans: &[Span]) -> Self {
        Simplified::Line(Line { axis: Axis::Query, runs: Runs::of_spans(spans) })
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
