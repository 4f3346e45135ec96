//! [`Bounds`]: bounds on the keys that a range of query rows reads, and their combination.

use crate::sets::interval::IntervalSet;

/// Bounds on the keys that a range of query rows reads: the keys that at least one row may read (`upper`), and the keys
/// that every row may read (`lower`).
///
/// `upper` may hold too many keys and `lower` too few. Inexact bounds make planning slower but never wrong.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bounds {
    pub(crate) upper: IntervalSet,
    pub(crate) lower: IntervalSet,
}

impl Bounds {
    /// Returns the bounds of query rows that all read exactly the keys of `set`.
    pub(crate) fn exact(set: IntervalSet) -> Self {
        Bounds { upper: set.clone(), lower: set }
    }

    /// Returns the bounds of query rows that read no key.
    pub(crate) fn nothing() -> Self {
        Bounds::exact(IntervalSet::new())
    }

    /// Returns bounds without information: `upper` has all keys and `lower` none.
    pub(crate) fn unknown(kv_len: u32) -> Self {
        Bounds { upper: IntervalSet::all(kv_len), lower: IntervalSet::new() }
    }

    /// Returns the bounds with `of` applied to both sets.
    pub(crate) fn map(self, of: impl Fn(IntervalSet) -> IntervalSet) -> Self {
        Bounds { upper: of(self.upper), lower: of(self.lower) }
    }

    pub(crate) fn and(self, other: &Self) -> Self {
        Bounds { upper: self.upper.intersect(&other.upper), lower: self.lower.intersect(&other.lower) }
    }

    pub(crate) fn or(self, other: &Self) -> Self {
        Bounds { upper: self.upper.union(&other.upper), lower: self.lower.union(&other.lower) }
    }

    /// Joins the bounds of two ranges of query rows. `upper` of the result is the union: the keys that at least one row
    /// of either range may read. `lower` is the intersection: the keys that every row of both ranges may read.
    pub(crate) fn any_of(self, other: &Self) -> Self {
        Bounds { upper: self.upper.union(&other.upper), lower: self.lower.intersect(&other.lower) }
    }

    /// Joins the bounds of several ranges of query rows, as [`any_of`](Self::any_of) does.
    pub(crate) fn of_all(ranges: impl Iterator<Item = Bounds>) -> Self {
        ranges.reduce(|a, b| a.any_of(&b)).unwrap_or_else(Bounds::nothing)
    }

    pub(crate) fn not(self, kv_len: u32) -> Self {
        Bounds { upper: self.lower.complement(kv_len), lower: self.upper.complement(kv_len) }
    }
}
