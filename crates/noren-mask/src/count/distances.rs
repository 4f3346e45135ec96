//! Sets of distances: which distances `key position - query position` are allowed, as intervals with residues.

use crate::leaf::gcd;
use smallvec::{SmallVec, smallvec};

/// Distances are between these two, both excluded.
pub(super) const NEAREST: i64 = -(1 << 61);
pub(super) const FURTHEST: i64 = 1 << 61;

/// A 0/1 function of a distance as a sum: `factor` for each `(modulus, factor)` whose modulus divides the distance. Moduli
/// ascend and no factor is 0. Never is the empty sum, always is `[(1, 1)]`.
///
/// Products of divisibilities are the divisibility by the least common multiple, so sums stay sums under `and`, `or` and `not`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Residues(SmallVec<[(i64, i64); 2]>);

impl Residues {
    pub(super) fn never() -> Self {
        Residues(SmallVec::new())
    }

    pub(super) fn multiples_of(step: i64) -> Self {
        Residues(smallvec![(step, 1)])
    }

    pub(super) fn is_never(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_always(&self) -> bool {
        self.0[..] == [(1, 1)]
    }

    pub(super) fn terms(&self) -> &[(i64, i64)] {
        &self.0
    }

    pub(super) fn holds(&self, distance: i64) -> bool {
        self.0.iter().filter(|(modulus, _)| distance % modulus == 0).map(|(_, factor)| factor).sum::<i64>() > 0
    }

    /// Distances that are no multiple of this number do not hold.
    pub(super) fn common(&self) -> i64 {
        self.0.iter().fold(0, |all, (modulus, _)| gcd(all, *modulus as u64) as i64 as u64) as i64
    }

    /// The number of neighbouring distances of which at least one holds; `None` when that is not found quickly.
    pub(super) fn gap(&self) -> Option<i64> {
        const LONGEST: i64 = 1 << 12;
        match self.0[..] {
            [(modulus, 1)] => return Some(modulus),
            [(1, 1), (_, -1)] => return Some(2),
            _ => {}
        }
        let period = self.0.iter().try_fold(1, |all, (modulus, _)| Some(lcm(all, *modulus)).filter(|p| *p <= LONGEST))?;
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
        let mut out = Residues::never();
        for (modulus, factor) in all {
            match out.0.last_mut() {
                Some(last) if last.0 == modulus => last.1 += factor,
                _ => out.0.push((modulus, factor)),
            }
        }
        out.0.retain(|(_, factor)| *factor != 0);
        out
    }

    fn not(&self) -> Self {
        Residues::combine(self.0.iter().map(|&(modulus, factor)| (modulus, -factor)).chain([(1, 1)]))
    }

    fn and(&self, other: &Self) -> Self {
        match () {
            () if self.is_always() || other.is_never() => other.clone(),
            () if other.is_always() || self.is_never() => self.clone(),
            () => Residues::combine(self.products(other)),
        }
    }

    fn or(&self, other: &Self) -> Self {
        match () {
            () if self.is_always() || other.is_never() => self.clone(),
            () if other.is_always() || self.is_never() => other.clone(),
            () => {
                let products = self.products(other).map(|(modulus, factor)| (modulus, -factor));
                Residues::combine(self.0.iter().chain(&other.0).copied().chain(products))
            }
        }
    }

    fn products(&self, other: &Self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().flat_map(|a| other.0.iter().map(|b| (lcm(a.0, b.0), a.1 * b.1)))
    }
}

/// The least common multiple; one too large for any distance but 0 counts as [`FURTHEST`].
fn lcm(a: i64, b: i64) -> i64 {
    (a / gcd(a as u64, b as u64) as i64).checked_mul(b).map_or(FURTHEST, |m| m.min(FURTHEST))
}

/// A set of distances: from each listed distance to the next one, those whose residues hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Distances(SmallVec<[(i64, Residues); 2]>);

impl Distances {
    pub(super) fn always() -> Self {
        Distances::residues(Residues::multiples_of(1))
    }

    pub(super) fn residues(residues: Residues) -> Self {
        Distances(smallvec![(NEAREST, residues)])
    }

    /// The distances `from..to`.
    pub(super) fn between(from: i64, to: i64) -> Self {
        let (from, to) = (from.max(NEAREST), to.min(FURTHEST));
        let mut out = Distances(SmallVec::new());
        if from > NEAREST {
            out.push(NEAREST, Residues::never());
        }
        if from < to {
            out.push(from, Residues::multiples_of(1));
        }
        if to < FURTHEST {
            out.push(to.max(NEAREST), Residues::never());
        }
        out
    }

    pub(super) fn is_never(&self) -> bool {
        self.0.iter().all(|(_, residues)| residues.is_never())
    }

    pub(super) fn is_always(&self) -> bool {
        matches!(&self.0[..], [(_, residues)] if residues.is_always())
    }

    /// The parts `(from, to, residues)` that hold somewhere.
    pub(super) fn parts(&self) -> impl Iterator<Item = (i64, i64, &Residues)> {
        let ends = self.0[1..].iter().map(|part| part.0).chain([FURTHEST]);
        self.0.iter().zip(ends).filter(|(part, _)| !part.1.is_never()).map(|(part, end)| (part.0, end, &part.1))
    }

    /// Number of parts and terms, which is what an operation on them costs.
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(|part| 1 + part.1.0.len()).sum()
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
