//! [`Resolution`]: an atom of one batch row and head as a part of a pattern.

use crate::basis::Site;
use crate::pattern::Pattern;
use crate::resolved::{ResolvedAtom, ResolvedRef};
use crate::set::Span;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

/// What [`Atom::resolve`](crate::atom::Atom::resolve) returns: a building block that the planner knows, a [`ResolvedAtom`], or a
/// combination of these by `&`, `|` and `!`.
#[derive(Clone, Debug)]
pub struct Resolution(pub(crate) Pattern);

impl Resolution {
    /// A resolved atom of its own.
    pub fn of(resolved: impl ResolvedAtom) -> Self {
        Resolution(Pattern::Atom(ResolvedRef(Arc::new(resolved))))
    }

    /// Allows `k - q` in a range, both ends included: `first <= k - q <= last`. `None` leaves a side open.
    pub fn band(first: Option<i64>, last: Option<i64>) -> Self {
        Resolution(Pattern::Band { lo: first, hi: last })
    }

    /// Query and key in the same run of `size` positions, counted from position 0; `size` is at least 1.
    pub fn chunk(size: i64) -> Self {
        Resolution(Pattern::Chunk(size))
    }

    /// `q - k` a multiple of `step`, which is at least 1.
    pub fn stride(step: i64) -> Self {
        Resolution(Pattern::Stride(step))
    }

    /// The keys at some positions.
    pub fn keys(site: &Site<'_>, spans: &[Span]) -> Self {
        Resolution(Pattern::Keys(Arc::new(site.row.keys_in(spans))))
    }

    /// The queries at some positions.
    pub fn queries(site: &Site<'_>, spans: &[Span]) -> Self {
        Resolution(Pattern::Queries(Arc::new(site.row.queries_in(spans))))
    }

    /// Query and key between the same two neighbours of `borders`, which are positions in ascending order.
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
