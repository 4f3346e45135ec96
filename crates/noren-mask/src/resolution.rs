//! [`Resolution`]: an atom for one batch row and head, as a part of a pattern.

use crate::basis::Site;
use crate::pattern::Pattern;
use crate::resolved::{ResolvedAtom, ResolvedRef};
use crate::set::Span;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

/// The result of [`Atom::resolve`](crate::atom::Atom::resolve): a part that the planner supports, a [`ResolvedAtom`],
/// or a combination of these with `&`, `|` and `!`.
#[derive(Clone, Debug)]
pub struct Resolution(pub(crate) Pattern);

impl Resolution {
    /// Returns the resolution that consists of one resolved atom.
    pub fn of(resolved: impl ResolvedAtom) -> Self {
        Resolution(Pattern::Atom(ResolvedRef(Arc::new(resolved))))
    }

    /// Returns a band: cells with `first <= k - q <= last`. `None` means no limit on that side.
    pub fn band(first: Option<i64>, last: Option<i64>) -> Self {
        Resolution(Pattern::Band { lo: first, hi: last })
    }

    /// Returns the cells with query and key in the same chunk of `size` positions, from position 0. `size` must be at
    /// least 1.
    pub fn chunk(size: i64) -> Self {
        Resolution(Pattern::Chunk(size))
    }

    /// Returns the cells for which `q - k` is a multiple of `step`. `step` must be at least 1.
    pub fn stride(step: i64) -> Self {
        Resolution(Pattern::Stride(step))
    }

    /// Returns all cells of the keys at these positions.
    pub fn keys(site: &Site<'_>, spans: &[Span]) -> Self {
        Resolution(Pattern::Keys(Arc::new(site.row.keys_in(spans))))
    }

    /// Returns all cells of the queries at these positions.
    pub fn queries(site: &Site<'_>, spans: &[Span]) -> Self {
        Resolution(Pattern::Queries(Arc::new(site.row.queries_in(spans))))
    }

    /// Returns the cells with query and key in the same segment. `borders` are the ends of segments, as positions in
    /// ascending order.
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
