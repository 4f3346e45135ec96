//! The softmax of query rows: the scores of a block become weights, relative to the running maximum of each row.
//!
//! Each step is done for all rows of a part before the next step. While the processor waits for one row, for example for
//! the largest lane of a vector, it computes the other rows.

use crate::kernel::exp::{NOTHING, exp2_minus_each};
use crate::kernel::micro::WIDE;
use crate::kernel::simd::{Kernel, Product, Simd, group};
use std::marker::PhantomData;

/// The number of query rows in a phase, a multiple of the rows of a register tile on every processor path. A phase computes
/// the scores of its rows and a block of keys, then the weights, then the sums of weighted values. The scores fit in the
/// first-level cache.
pub(super) const PHASE: usize = 24;

/// Raises the running maxima of rows to the scores of a block, and turns the scores into weights. This is a kernel, which
/// is compiled once for each processor path and kind of product (`f32` or pairs of `bf16`).
pub(super) struct Weigh<'a, S: Simd, P> {
    /// The scores of the rows, `[rows][WIDE / LANES]` vectors. At most `PHASE` rows.
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
    /// Whether the scores stay scores: hidden cells become minus infinity, and the maxima rise.
    pub(super) only_rise: bool,
    pub(super) product: PhantomData<P>,
}

/// Calls the method `$f::<N>` of `$weigh`. The constant `N` has the value of `$vectors`, a result of [`run`].
macro_rules! by_run {
    ($weigh:expr, $vectors:expr, $f:ident($($arg:expr),*)) => {
        match $vectors {
            1 if P::TERMS == 1 => $weigh.$f::<1>($($arg),*),
            3 if P::TERMS == 1 => $weigh.$f::<3>($($arg),*),
            2 => $weigh.$f::<2>($($arg),*),
            4 => $weigh.$f::<4>($($arg),*),
            8 => $weigh.$f::<8>($($arg),*),
            16 if const { 16 * S::LANES <= WIDE } => $weigh.$f::<16>($($arg),*),
            vectors => unreachable!("there is no kernel for {vectors} vectors of scores"),
        }
    };
}

/// Returns the number of vectors of a row to compute next, if `left` vectors are left.
#[inline(always)]
fn run<S: Simd, P: Product>(left: usize) -> usize {
    match left {
        16.. if const { 16 * S::LANES <= WIDE } => 16,
        8.. => 8,
        4.. => 4,
        3 if P::TERMS == 2 => 2,
        left => left,
    }
}

impl<S: Simd, P: Product> Kernel<S> for Weigh<'_, S, P> {
    #[inline(always)]
    fn run(mut self, s: S) {
        let rows = self.maxima.len();
        assert!(rows <= PHASE && self.scores.len() >= rows * Self::PER_ROW);
        assert!(self.sums.len() == rows && self.rounded.len() == rows);
        assert!(self.words.is_none_or(|words| words.len() == rows));
        let mut tops = [s.splat(f32::NEG_INFINITY); PHASE];
        let mut from = 0;
        while from < self.vectors {
            let vectors = run::<S, P>(self.vectors - from);
            by_run!(self, vectors, tops(s, from, &mut tops));
            from += vectors;
        }
        self.rise(s, &tops);
        if self.only_rise {
            return;
        }
        let mut from = 0;
        while from < self.vectors {
            let vectors = run::<S, P>(self.vectors - from);
            by_run!(self, vectors, powers(s, from));
            from += vectors;
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

    /// Raises `tops` to the scores of each row in `N` vectors, from the vector `from` on. Before this, the scores of hidden
    /// cells become minus infinity: cells whose mask bit is not set. The maximum is that of the scores multiplied by
    /// `scale`. With mask bits, these products replace the scores.
    #[inline(always)]
    fn tops<const N: usize>(&mut self, s: S, from: usize, tops: &mut [S::V; PHASE]) {
        let minus_infinity = s.splat(f32::NEG_INFINITY);
        let first = self.first * group::<S, P>() + from * S::LANES;
        for r in 0..self.maxima.len() {
            let at = self.at(r, from);
            let scores = &mut self.scores[at..at + N];
            let mut top = tops[r];
            let word = self.words.map(|words| words[r] >> first);
            for (i, score) in scores.iter_mut().enumerate() {
                let mut x = *score;
                if let Some(scale) = self.scale {
                    x = s.mul(x, scale);
                }
                if let Some(word) = word {
                    x = s.keep(word >> (i * S::LANES), x, minus_infinity);
                    *score = x;
                }
                top = s.max(x, top);
            }
            tops[r] = top;
        }
    }

    /// Raises the running maximum of each row to the largest lane of its vector in `tops`, rounded up to an integer, if
    /// this is larger. The sums of the row are multiplied by the weight of the old maximum.
    #[inline(always)]
    fn rise(&mut self, s: S, tops: &[S::V; PHASE]) {
        let width = self.acc.len() / self.maxima.len();
        for r in 0..self.maxima.len() {
            let maximum = self.maxima[r];
            // The maximum is an integer, so only a score above the old maximum can change it.
            if s.any_above(tops[r], s.splat(maximum)) {
                let top = s.reduce_max(tops[r]).ceil();
                self.maxima[r] = top;
                // Before the first score, the sums are zero and need no change.
                if maximum > NOTHING {
                    let lower = s.splat((maximum - top).max(-300.0));
                    self.sums[r] = s.scale(self.sums[r], lower);
                    self.rounded[r] = s.scale(self.rounded[r], lower);
                    for x in &mut self.acc[r * width..][..width] {
                        *x = s.scale(*x, lower);
                    }
                }
            }
        }
    }

    /// Turns `N` vectors of scores of each row into weights, from the vector `from` on, and adds the weights to the sum of
    /// the row. If words are pairs of `bf16`, the weights are also rounded; pairs of the rounded weights of neighbouring
    /// keys replace the scores, from the vector `first + from / 2` of the row on, and the rounded weights are added to
    /// the row's second sum.
    #[inline(always)]
    fn powers<const N: usize>(&mut self, s: S, from: usize) {
        // The scores of hidden cells are already multiplied.
        let scale = if self.words.is_some() { None } else { self.scale };
        let rows = self.maxima.len();
        let mut r = 0;
        match N {
            1 => {
                while r + 4 <= rows {
                    self.powers_of::<4, 1>(s, r, from, scale);
                    r += 4;
                }
                while r < rows {
                    self.powers_of::<1, 1>(s, r, from, scale);
                    r += 1;
                }
            }
            2 => {
                while r + 2 <= rows {
                    self.powers_of::<2, 2>(s, r, from, scale);
                    r += 2;
                }
                if r < rows {
                    self.powers_of::<1, 2>(s, r, from, scale);
                }
            }
            3 => {
                while r < rows {
                    self.powers_of::<1, 3>(s, r, from, scale);
                    r += 1;
                }
            }
            _ => {
                while r < rows {
                    let mut vector = from;
                    while vector < from + N {
                        self.powers_of::<1, 4>(s, r, vector, scale);
                        vector += 4;
                    }
                    r += 1;
                }
            }
        }
    }

    /// The computation of [`powers`](Self::powers) for `N` vectors of each of `R` rows, from the row `r` on.
    #[inline(always)]
    fn powers_of<const R: usize, const N: usize>(&mut self, s: S, r: usize, from: usize, scale: Option<S::V>) {
        let mut x = [[s.splat(0.0); N]; R];
        let mut maxima = [s.splat(0.0); R];
        for i in 0..R {
            let at = self.at(r + i, from);
            x[i].copy_from_slice(&self.scores[at..at + N]);
            maxima[i] = s.splat(self.maxima[r + i]);
            if let Some(scale) = scale {
                for x in &mut x[i] {
                    *x = s.mul(*x, scale);
                }
            }
        }
        exp2_minus_each(s, &mut x, &maxima);
        for i in 0..R {
            let mut sum = self.sums[r + i];
            for x in &x[i] {
                sum = s.add(sum, *x);
            }
            self.sums[r + i] = sum;
            if P::TERMS == 1 {
                let at = self.at(r + i, from);
                self.scores[at..at + N].copy_from_slice(&x[i]);
                continue;
            }
            let at = (r + i) * Self::PER_ROW + self.first + from / 2;
            let pairs = &mut self.scores[at..at + N / 2];
            let mut sum = self.rounded[r + i];
            for (j, pair) in pairs.iter_mut().enumerate() {
                *pair = s.pair_neighbours(x[i][2 * j], x[i][2 * j + 1]);
                let [low, high] = s.unpair(*pair);
                sum = s.add(sum, s.add(low, high));
            }
            self.rounded[r + i] = sum;
        }
    }
}
