//! The softmax of query rows: the scores of a block become weights, relative to the running maximum of each row.
//!
//! Each step is done for all rows of a phase or of a register tile before the next step. While the processor waits for one
//! row, for example for the largest lane of a vector, it computes the other rows.

use crate::kernel::math::exp::{NOTHING, exp2_minus_each};
use crate::kernel::math::micro::WIDE;
use crate::kernel::simd::{Kernel, Product, Simd, group};
use std::marker::PhantomData;

/// The maximum number of query rows in a phase ([`Simd::PHASE`]) on every processor path. A phase computes the scores of its
/// rows and a block of keys, then the weights, then the sums of weighted values. The scores fit in the first-level cache.
pub(super) const MOST_ROWS: usize = 32;

/// Raises the running maxima of rows to the scores of a block, and turns the scores into weights. This is a kernel, which
/// is compiled once for each processor path and kind of product (`f32` or pairs of `bf16`).
pub(super) struct Weigh<'a, S: Simd, P> {
    /// The scores of the rows, `[rows][WIDE / LANES]` vectors. At most `MOST_ROWS` rows.
    pub(super) scores: &'a mut [S::V],
    /// The first lane group (consecutive keys that the kernels read together) of each row whose scores are used.
    pub(super) first: usize,
    /// The number of vectors of each row that are used, from the lane group `first` on.
    pub(super) vectors: usize,
    /// The mask bits of each row, or `None` if all cells are allowed.
    pub(super) words: Option<&'a [u64]>,
    /// The number by which the scores still have to be multiplied, or `None` if they are complete.
    pub(super) scale: Option<S::V>,
    /// The running maximum of each row. The number of rows is the length of this slice.
    pub(super) maxima: &'a mut [f32],
    /// The sum of the weights of each row.
    pub(super) sums: &'a mut [S::V],
    /// The sum of the rounded weights of each row.
    pub(super) rounded: &'a mut [S::V],
    /// The weighted values of each row, `[rows][width]` vectors.
    pub(super) acc: &'a mut [S::V],
    /// If true, only the maxima rise, and the scores of hidden cells become minus infinity. The scores are not turned into
    /// weights.
    pub(super) only_maxima: bool,
    pub(super) product: PhantomData<P>,
}

impl<S: Simd, P: Product> Kernel<S> for Weigh<'_, S, P> {
    #[inline(always)]
    fn run(mut self, s: S) {
        let rows = self.maxima.len();
        assert!(rows <= MOST_ROWS && self.scores.len() >= rows * Self::PER_ROW);
        assert!(self.sums.len() == rows && self.rounded.len() == rows);
        assert!(self.words.is_none_or(|words| words.len() == rows));
        let mut tops = [s.splat(f32::NEG_INFINITY); MOST_ROWS];
        for (r, top) in tops[..rows].iter_mut().enumerate() {
            *top = self.find_maximum(s, r);
        }
        for (r, top) in tops[..rows].iter().enumerate() {
            self.raise_maximum(s, r, *top);
        }
        if !self.only_maxima {
            for r in 0..rows {
                self.write_weights(s, r);
            }
        }
    }
}

impl<S: Simd, P: Product> Weigh<'_, S, P> {
    /// The number of vectors for the scores of a row.
    const PER_ROW: usize = WIDE / S::LANES;

    /// Returns the index of the vector `from` of row `r` in `scores`.
    #[inline(always)]
    fn at(&self, r: usize, from: usize) -> usize {
        r * Self::PER_ROW + self.first * P::TERMS + from
    }

    /// Returns a vector whose largest lane is the largest score of row `r`, multiplied by `scale`. Before this, the scores of
    /// hidden cells become minus infinity: cells whose mask bit is not set. With mask bits, the products with `scale`
    /// replace the scores.
    #[inline(always)]
    fn find_maximum(&mut self, s: S, r: usize) -> S::V {
        let minus_infinity = s.splat(f32::NEG_INFINITY);
        let at = self.at(r, 0);
        let scores = &mut self.scores[at..at + self.vectors];
        let mut word = self.words.map(|words| words[r] >> (self.first * group::<S, P>()));
        let mut top = minus_infinity;
        for score in scores {
            let mut x = *score;
            if let Some(scale) = self.scale {
                x = s.mul(x, scale);
            }
            if let Some(word) = &mut word {
                x = s.keep(*word, x, minus_infinity);
                *score = x;
                *word >>= S::LANES;
            }
            top = s.max(x, top);
        }
        top
    }

    /// Raises the running maximum of row `r` to the largest lane of `top`, rounded up to an integer, if this is larger. The
    /// sums of the row are multiplied by the weight of the old maximum.
    #[inline(always)]
    fn raise_maximum(&mut self, s: S, r: usize, top: S::V) {
        let maximum = self.maxima[r];
        // The maximum is an integer, so only a score above the old maximum can change it.
        if s.any_above(top, s.splat(maximum)) {
            let top = s.reduce_max(top).ceil();
            self.maxima[r] = top;
            // Before the first score, the sums are zero and need no change.
            if maximum > NOTHING {
                let lower = s.splat((maximum - top).max(-300.0));
                self.sums[r] = s.scale(self.sums[r], lower);
                self.rounded[r] = s.scale(self.rounded[r], lower);
                let width = self.acc.len() / self.maxima.len();
                for x in &mut self.acc[r * width..][..width] {
                    *x = s.scale(*x, lower);
                }
            }
        }
    }

    /// Turns the scores of row `r` into weights, and adds the weights to the sum of the row. If words are pairs of `bf16`,
    /// the weights are also rounded; pairs of the rounded weights of neighbouring keys replace the scores, from the vector
    /// `first` of the row on, and the rounded weights are added to the row's second sum.
    #[inline(always)]
    fn write_weights(&mut self, s: S, r: usize) {
        let maximum = s.splat(self.maxima[r]);
        let mut sums = [self.sums[r], self.rounded[r]];
        let mut from = 0;
        while from + 4 <= self.vectors {
            self.write_some::<4>(s, r, from, maximum, &mut sums);
            from += 4;
        }
        if from + 2 <= self.vectors {
            self.write_some::<2>(s, r, from, maximum, &mut sums);
            from += 2;
        }
        if P::TERMS == 1 && from < self.vectors {
            self.write_some::<1>(s, r, from, maximum, &mut sums);
        }
        [self.sums[r], self.rounded[r]] = sums;
    }

    /// The computation of [`write_weights`](Self::write_weights) for `N` vectors of the row `r`, from the vector `from` on.
    #[inline(always)]
    fn write_some<const N: usize>(&mut self, s: S, r: usize, from: usize, maximum: S::V, sums: &mut [S::V; 2]) {
        // The scores of rows with mask bits are already multiplied.
        let scale = if self.words.is_some() { None } else { self.scale };
        let at = self.at(r, from);
        let scores = &mut self.scores[at..at + N];
        let mut x = [s.splat(0.0); N];
        x.copy_from_slice(scores);
        if let Some(scale) = scale {
            for x in &mut x {
                *x = s.mul(*x, scale);
            }
        }
        exp2_minus_each(s, &mut x, maximum);
        for x in &x {
            sums[0] = s.add(sums[0], *x);
        }
        if P::TERMS == 1 {
            scores.copy_from_slice(&x);
            return;
        }
        let at = r * Self::PER_ROW + self.first + from / 2;
        let pairs = &mut self.scores[at..at + N / 2];
        for (j, pair) in pairs.iter_mut().enumerate() {
            *pair = s.pair_neighbours(x[2 * j], x[2 * j + 1]);
            let [low, high] = s.unpair(*pair);
            sums[1] = s.add(sums[1], s.add(low, high));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::math::exp::exp2_minus_all;
    use crate::kernel::simd::{Pairs, Single, floats, floats_mut, zeroed};

    /// The state of some rows: scores, and then weights or pairs, running maxima, both sums, and weighted values.
    #[derive(Clone)]
    struct State<S: Simd> {
        scores: Vec<S::V>,
        maxima: Vec<f32>,
        sums: Vec<S::V>,
        rounded: Vec<S::V>,
        acc: Vec<S::V>,
    }

    impl<S: Simd> State<S> {
        /// Returns random scores for `rows` rows, of which every third has read keys before.
        fn random(rows: usize, random: &mut impl FnMut() -> f32) -> Self {
            let mut vectors = |len| -> Vec<S::V> {
                let mut vectors = zeroed(len);
                floats_mut(&mut vectors).iter_mut().for_each(|x| *x = random());
                vectors
            };
            let (scores, sums, rounded) = (vectors(rows * WIDE / S::LANES), vectors(rows), vectors(rows));
            let acc = vectors(3 * rows);
            let maxima = (0..rows).map(|r| if r % 3 == 0 { (random() / 2.0).ceil() } else { NOTHING }).collect();
            State { scores, maxima, sums, rounded, acc }
        }

        fn bits(&self) -> Vec<u32> {
            let vectors = [&self.scores, &self.sums, &self.rounded, &self.acc];
            let numbers = vectors.into_iter().flat_map(|vectors| floats(vectors)).chain(&self.maxima);
            numbers.map(|x| x.to_bits()).collect()
        }

        /// Computes what [`Weigh`] computes, one row after another.
        fn one_by_one<P: Product>(&mut self, s: S, used: [usize; 2], words: Option<&[u64]>, scale: Option<f32>) {
            let (first, vectors) = (used[0] * P::TERMS, used[1]);
            for r in 0..self.maxima.len() {
                let row = &mut self.scores[r * WIDE / S::LANES..][..WIDE / S::LANES];
                let used = &mut row[first..first + vectors];
                let mut top = f32::NEG_INFINITY;
                for (i, x) in floats_mut(used).iter_mut().enumerate() {
                    *x *= scale.unwrap_or(1.0);
                    if words.is_some_and(|words| words[r] >> (first * S::LANES + i) & 1 == 0) {
                        *x = f32::NEG_INFINITY;
                    }
                    top = top.max(*x);
                }
                if top > self.maxima[r] {
                    let (before, top) = (self.maxima[r], top.ceil());
                    self.maxima[r] = top;
                    if before > NOTHING {
                        let sums =
                            [&mut self.sums[r..r + 1], &mut self.rounded[r..r + 1], &mut self.acc[3 * r..3 * r + 3]];
                        for x in sums.into_iter().flatten() {
                            *x = s.scale(*x, s.splat(before - top));
                        }
                    }
                }
                exp2_minus_all(s, used, s.splat(self.maxima[r]));
                self.sums[r] = used.iter().fold(self.sums[r], |sum, x| s.add(sum, *x));
                for pair in 0..if P::TERMS == 2 { vectors / 2 } else { 0 } {
                    let pairs = s.pair_neighbours(row[first + 2 * pair], row[first + 2 * pair + 1]);
                    let [low, high] = s.unpair(pairs);
                    self.rounded[r] = s.add(self.rounded[r], s.add(low, high));
                    row[first / 2 + pair] = pairs;
                }
            }
        }
    }

    /// Compares [`Weigh`] with the same computation one row after another, for all numbers of rows and vectors.
    fn check<S: Simd, P: Product>(s: S) {
        let mut state = 1u64;
        let mut word = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 8 ^ state << 40
        };
        for rows in 1..=MOST_ROWS {
            for vectors in (P::TERMS..=WIDE / S::LANES).step_by(P::TERMS) {
                // Rows with mask bits read at most 64 keys.
                let masked = vectors * S::LANES <= 64 && word() % 2 == 0;
                let most = if masked { 64 / S::LANES } else { WIDE / S::LANES } - vectors;
                let first = word() as usize % (most / P::TERMS + 1);
                let words: Option<Vec<u64>> = masked.then(|| (0..rows).map(|_| word() & word()).collect());
                let scale = (P::TERMS == 2 && word() % 2 == 0).then_some(0.37);
                let mut random = || (word() % 4001) as f32 * 0.01 - 20.0;
                let given = State::<S>::random(rows, &mut random);
                let (mut expected, mut got) = (given.clone(), given);
                expected.one_by_one::<P>(s, [first, vectors], words.as_deref(), scale);
                let State { scores, maxima, sums, rounded, acc } = &mut got;
                s.run(Weigh::<S, P> {
                    scores,
                    first,
                    vectors,
                    words: words.as_deref(),
                    scale: scale.map(|scale| s.splat(scale)),
                    maxima,
                    sums,
                    rounded,
                    acc,
                    only_maxima: false,
                    product: PhantomData,
                });
                // With pairs, what follows the pairs has no meaning.
                for state in [&mut expected, &mut got] {
                    for r in 0..if P::TERMS == 2 { rows } else { 0 } {
                        let row = &mut state.scores[r * WIDE / S::LANES..][..WIDE / S::LANES];
                        row[first + vectors / 2..].fill(s.splat(0.0));
                    }
                }
                assert!(got.bits() == expected.bits(), "{rows} rows of {vectors} vectors from {first} on, {words:?}");
            }
        }
    }

    #[test]
    fn rows_together_have_the_bits_of_each_row_alone() {
        check::<_, Single>(crate::kernel::simd::portable::Portable);
        #[cfg(target_arch = "aarch64")]
        crate::kernel::simd::neon::Neon::detect().into_iter().for_each(check::<_, Single>);
        #[cfg(target_arch = "x86_64")]
        {
            use crate::kernel::simd::{avx2::Avx2, avx512};
            Avx2::detect().into_iter().for_each(check::<_, Single>);
            avx512::Avx512::detect().into_iter().for_each(check::<_, Single>);
            avx512::Avx512Bf16::detect().into_iter().for_each(check::<_, Pairs>);
        }
    }
}
