//! [`Resolution`]: the cells of an atom for one batch row and head, in the form that planning uses.

use crate::mask::basis::{ByValue, Site};
use crate::mask::pattern::Pattern;
use crate::mask::resolved::ResolvedAtom;
use crate::sets::set::Span;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

/// The result of [`Atom::resolve`](crate::atom::Atom::resolve): the allowed cells in the form that planning uses. A
/// resolution is an elementary form that planning knows (such as [`band`](Self::band)), a [`ResolvedAtom`], or a
/// combination of resolutions with `&`, `|` and `!`.
#[derive(Clone, Debug)]
pub struct Resolution(pub(crate) Pattern);

impl Resolution {
    /// Returns the cells that `resolved` allows.
    pub fn of(resolved: impl ResolvedAtom) -> Self {
        Resolution(Pattern::Atom(ByValue(Arc::new(resolved))))
    }

    /// Returns a band: the cells with `first <= k - q <= last`, where `q` and `k` are the positions of query and key.
    /// If `first` is `None`, there is no lower limit; if `last` is `None`, there is no upper limit.
    pub fn band(first: Option<i64>, last: Option<i64>) -> Self {
        Resolution(Pattern::Band { lo: first, hi: last })
    }

    /// Returns the cells with query and key in the same chunk. Chunk `i` has the positions from `i * size` up to but
    /// not including `(i + 1) * size`. `size` must be at least 1.
    pub fn chunk(size: i64) -> Self {
        Resolution(Pattern::Chunk(size))
    }

    /// Returns the cells whose distance `q - k` is a multiple of `step`, where `q` and `k` are the positions of query
    /// and key. `step` must be at least 1.
    pub fn stride(step: i64) -> Self {
        Resolution(Pattern::Stride(step))
    }

    /// Returns the cells of all keys whose positions are in `spans`, for every query.
    pub fn keys(site: &Site<'_>, spans: &[Span]) -> Self {
        Resolution(Pattern::Keys(Arc::new(site.row.keys_in(spans))))
    }

    /// Returns the cells of all queries whose positions are in `spans`, for every key.
    pub fn queries(site: &Site<'_>, spans: &[Span]) -> Self {
        Resolution(Pattern::Queries(Arc::new(site.row.queries_in(spans))))
    }

    /// Returns the cells with query and key in the same segment. `borders` has, in ascending order, the first position
    /// of the first segment and the end position (not included) of each segment: `[0, 33, 64]` means the segments 0..33
    /// and 33..64.
    pub fn segments(borders: Vec<i64>) -> Self {
        Resolution(Pattern::Documents(borders.into()))
    }
}

impl BitAnd for Resolution {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Resolution(Pattern::And(vec![self.0, other.0]))
    }
}

impl BitOr for Resolution {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Resolution(Pattern::Or(vec![self.0, other.0]))
    }
}

impl Not for Resolution {
    type Output = Self;

    fn not(self) -> Self {
        Resolution(Pattern::Not(Box::new(self.0)))
    }
}
