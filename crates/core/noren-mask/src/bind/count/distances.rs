//! Sets of allowed distances `key position - query position`: intervals of distances, each with the residues that are
//! allowed in the interval.

use crate::sets::leaf::gcd;
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// The lower limit of distances: every distance is larger than `NEAREST` and smaller than [`FURTHEST`].
pub(super) const NEAREST: i64 = -(1 << 61);
/// The upper limit of distances: every distance is smaller than `FURTHEST`.
pub(super) const FURTHEST: i64 = 1 << 61;

/// A set of distances that is defined by divisibility, such as all even distances. So the set is periodic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Residues {
    /// The empty set of distances.
    Never,
    /// The set of all distances.
    Always,
    /// The distances for which a sum is 1; for all others the sum is 0. The list has pairs `(modulus, factor)`, and the
    /// sum adds `factor` for each `modulus` that divides the distance. For example, `[(2, 1), (6, -1)]` is the set of
    /// the even distances that 3 does not divide. Moduli ascend and no factor is 0.
    ///
    /// A distance is divisible by two moduli if it is divisible by their least common multiple. Therefore the results
    /// of `and`, `or` and `not` have the same form.
    Sum(Rc<[(i64, i64)]>),
}

use Residues::{Always, Never, Sum};

impl Residues {
    pub(super) fn multiples_of(step: i64) -> Self {
        if step == 1 { Always } else { Sum([(step, 1)].into()) }
    }

    pub(super) fn terms(&self) -> &[(i64, i64)] {
        match self {
            Never => &[],
            Always => &[(1, 1)],
            Sum(terms) => terms,
        }
    }

    pub(super) fn holds(&self, distance: i64) -> bool {
        self.terms().iter().filter(|(modulus, _)| distance % modulus == 0).map(|(_, factor)| factor).sum::<i64>() > 0
    }

    /// Returns a number that divides every distance in the set, for example 2 for the even distances.
    pub(super) fn common(&self) -> i64 {
        self.terms().iter().fold(0, |all, (modulus, _)| gcd(all, *modulus as u64)) as i64
    }

    /// Returns a number `n` such that any `n` consecutive distances contain a distance of the set. Returns `None` if
    /// such a number does not exist or is too costly to find.
    pub(super) fn gap(&self) -> Option<i64> {
        const LONGEST: i64 = 1 << 12;
        match self.terms() {
            [(modulus, 1)] => return Some(*modulus),
            [(1, 1), (_, -1)] => return Some(2),
            _ => {}
        }
        let moduli = self.terms().iter().map(|term| term.0);
        let period =
            moduli.into_iter().try_fold(1, |all, modulus| Some(lcm(all, modulus)).filter(|p| *p <= LONGEST))?;
        let (mut longest, mut run, mut any) = (0, 0, false);
        for distance in 0..2 * period {
            run = if self.holds(distance) { 0 } else { run + 1 };
            any |= run == 0;
            longest = longest.max(run);
        }
        any.then_some(longest + 1)
    }

    fn combine(terms: impl Iterator<Item = (i64, i64)>) -> Self {
        let mut all: SmallVec<[(i64, i64); 8]> = terms.collect();
        all.sort_unstable();
        let mut out: SmallVec<[(i64, i64); 8]> = SmallVec::new();
        for (modulus, factor) in all {
            match out.last_mut() {
                Some(last) if last.0 == modulus => last.1 += factor,
                _ => out.push((modulus, factor)),
            }
        }
        out.retain(|(_, factor)| *factor != 0);
        match out[..] {
            [] => Never,
            [(1, 1)] => Always,
            _ => Sum(out[..].into()),
        }
    }

    fn not(&self) -> Self {
        match self {
            Never => Always,
            Always => Never,
            Sum(terms) => Residues::combine(terms.iter().map(|&(modulus, factor)| (modulus, -factor)).chain([(1, 1)])),
        }
    }

    fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Never, _) | (_, Never) => Never,
            (Always, one) | (one, Always) => one.clone(),
            (Sum(a), Sum(b)) => Residues::combine(products(a, b)),
        }
    }

    fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Always, _) | (_, Always) => Always,
            (Never, one) | (one, Never) => one.clone(),
            (Sum(a), Sum(b)) => {
                let products = products(a, b).map(|(modulus, factor)| (modulus, -factor));
                Residues::combine(a.iter().chain(b.iter()).copied().chain(products))
            }
        }
    }
}

fn products(a: &[(i64, i64)], b: &[(i64, i64)]) -> impl Iterator<Item = (i64, i64)> {
    a.iter().flat_map(|a| b.iter().map(|b| (lcm(a.0, b.0), a.1 * b.1)))
}

/// Returns the least common multiple of `a` and `b`, or [`FURTHEST`] if the multiple is larger than every distance.
fn lcm(a: i64, b: i64) -> i64 {
    (a / gcd(a as u64, b as u64) as i64).checked_mul(b).map_or(FURTHEST, |m| m.min(FURTHEST))
}

/// A set of distances as a list of intervals `(first distance, residues)`, ascending. An interval ends where the next
/// interval begins. A distance is in the set if the `residues` of its interval contain it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Distances(SmallVec<[(i64, Residues); 3]>);

impl Distances {
    pub(super) fn always() -> Self {
        Distances::residues(Always)
    }

    pub(super) fn residues(residues: Residues) -> Self {
        Distances(smallvec![(NEAREST, residues)])
    }

    /// Returns the distances `from..to`.
    pub(super) fn between(from: i64, to: i64) -> Self {
        let (from, to) = (from.max(NEAREST), to.min(FURTHEST));
        let mut out = Distances(SmallVec::new());
        if from > NEAREST {
            out.push(NEAREST, Never);
        }
        if from < to {
            out.push(from, Always);
        }
        if to < FURTHEST {
            out.push(to.max(NEAREST), Never);
        }
        out
    }

    pub(super) fn is_never(&self) -> bool {
        self.0.iter().all(|(_, residues)| *residues == Never)
    }

    pub(super) fn is_always(&self) -> bool {
        matches!(self.0[..], [(_, Always)])
    }

    /// Returns the intervals `from..to` that contain allowed distances, as `(from, to, residues)`.
    pub(super) fn parts(&self) -> impl Iterator<Item = (i64, i64, &Residues)> {
        let ends = self.0[1..].iter().map(|part| part.0).chain([FURTHEST]);
        self.0.iter().zip(ends).filter(|(part, _)| part.1 != Never).map(|(part, end)| (part.0, end, &part.1))
    }

    /// Returns the number of intervals plus the number of their terms. The cost of an operation is proportional to this
    /// number.
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(|part| 1 + part.1.terms().len()).sum()
    }

    fn push(&mut self, from: i64, residues: Residues) {
        match self.0.last() {
            Some(last) if last.1 == residues => {}
            _ => self.0.push((from, residues)),
        }
    }

    pub(super) fn not(&self) -> Self {
        Distances(self.0.iter().map(|(from, residues)| (*from, residues.not())).collect())
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        self.merge(other, Residues::and)
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        self.merge(other, Residues::or)
    }

    fn merge(&self, other: &Self, combine: impl Fn(&Residues, &Residues) -> Residues) -> Self {
        let (mut a, mut b) = (0, 0);
        let mut out = Distances(SmallVec::new());
        let mut at = NEAREST;
        loop {
            out.push(at, combine(&self.0[a].1, &other.0[b].1));
            let (next_a, next_b) = (self.0.get(a + 1).map(|p| p.0), other.0.get(b + 1).map(|p| p.0));
            at = match (next_a, next_b) {
                (None, None) => return out,
                (Some(x), None) => x,
                (None, Some(y)) => y,
                (Some(x), Some(y)) => x.min(y),
            };
            a += usize::from(next_a == Some(at));
            b += usize::from(next_b == Some(at));
        }
    }
}
