//! [`Bounds`]: what a pattern answers about a range of query rows, and how combinations combine.

use crate::interval::IntervalSet;

/// Which keys some row of a range may read, and which every row must read.
///
/// `lower` is always a subset of what every row reads and `upper` a superset of what any row reads. An inexact bound costs
/// time and never correctness.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bounds {
    pub(crate) upper: IntervalSet,
    pub(crate) lower: IntervalSet,
}

impl Bounds {
    /// Both bounds are `set`: all rows read exactly these keys.
    pub(crate) fn exact(set: IntervalSet) -> Self {
        Bounds { upper: set.clone(), lower: set }
    }

    /// No row reads any key.
    pub(crate) fn nothing() -> Self {
        Bounds::exact(IntervalSet::new())
    }

    /// Perhaps everything, surely nothing.
    pub(crate) fn unknown(kv_len: u32) -> Self {
        Bounds { upper: IntervalSet::all(kv_len), lower: IntervalSet::new() }
    }

    pub(crate) fn and(self, other: &Self) -> Self {
        Bounds { upper: self.upper.intersect(&other.upper), lower: self.lower.intersect(&other.lower) }
    }

    pub(crate) fn or(self, other: &Self) -> Self {
        Bounds { upper: self.upper.union(&other.upper), lower: self.lower.union(&other.lower) }
    }

    /// Bounds of the rows of both: `or` and `and` combine masks of the same rows, this combines rows of the same mask.
    pub(crate) fn any_of(self, other: &Self) -> Self {
        Bounds { upper: self.upper.union(&other.upper), lower: self.lower.intersect(&other.lower) }
    }

    pub(crate) fn not(self, kv_len: u32) -> Self {
        Bounds { upper: self.lower.complement(kv_len), lower: self.upper.complement(kv_len) }
    }
}
