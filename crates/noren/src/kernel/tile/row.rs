//! The softmax of one query row: scores of a block become weights, relative to the running maximum of the row.

use crate::kernel::exp::{NOTHING, exp2_minus_all, exp2_minus_each};
use crate::kernel::simd::Simd;

/// The running maximum and sums of a query row over the blocks of keys that were added so far.
pub(super) struct RowState<'a, S: Simd> {
    pub(super) maximum: &'a mut f32,
    pub(super) sum: &'a mut S::V,
    pub(super) rounded: &'a mut S::V,
    pub(super) acc: &'a mut [S::V],
}

impl<S: Simd> RowState<'_, S> {
    /// Sets the scores of hidden cells to minus infinity: cells whose bit in the mask word `word` is not set (`None`:
    /// no cell is hidden). Then raises the row's running maximum to the largest score, rounded up to an integer, if
    /// this is larger.
    ///
    /// `scale` is the number by which the scores still have to be multiplied (`None`: they are complete). The maximum is
    /// that of the products. With a mask word, the products replace the scores, and the result is `None`. Without one,
    /// the scores stay as they are, and the result is `scale`.
    #[inline(always)]
    pub(super) fn rise(&mut self, s: S, word: Option<u64>, scale: Option<S::V>, scores: &mut [S::V]) -> Option<S::V> {
        let minus_infinity = s.splat(f32::NEG_INFINITY);
        let mut top = minus_infinity;
        for (i, score) in scores.iter_mut().enumerate() {
            let mut x = *score;
            if let Some(scale) = scale {
                x = s.mul(x, scale);
            }
            if let Some(word) = word {
                x = s.keep(word >> (i * S::LANES), x, minus_infinity);
                *score = x;
            }
            top = s.max(x, top);
        }
        // The maximum is an integer, so only a score above the old maximum can change it.
        if s.any_above(top, s.splat(*self.maximum)) {
            let top = s.reduce_max(top).ceil();
            let lower = s.splat((*self.maximum - top).max(-300.0));
            // Before the first score, the sums are zero and need no change.
            if *self.maximum > NOTHING {
                *self.sum = s.scale(*self.sum, lower);
                *self.rounded = s.scale(*self.rounded, lower);
                for x in &mut *self.acc {
                    *x = s.scale(*x, lower);
                }
            }
            *self.maximum = top;
        }
        if word.is_none() { scale } else { None }
    }

    /// Multiplies scores by `scale` (`None`: by 1), turns them into weights, and adds the weights to the row's sum. `word`
    /// has the mask bits of the row, or is `None` if all cells are allowed. If `pair` is true, the weights are also
    /// rounded to `bf16`. Pairs of the rounded weights of neighbouring keys are then written to the first half of
    /// `scores`, and the rounded weights are added to the row's second sum, `rounded`. The caller has one inlined copy of
    /// the function for each usual number of vectors in `scores`.
    #[inline(always)]
    pub(super) fn weigh(&mut self, s: S, word: Option<u64>, scale: Option<S::V>, scores: &mut [S::V], pair: bool) {
        let scale = self.rise(s, word, scale, scores);
        let maximum = s.splat(*self.maximum);
        let mut sum = *self.sum;
        if pair {
            let mut rounded = *self.rounded;
            let mut from = 0;
            while from < scores.len() {
                let sums = (&mut sum, &mut rounded);
                from += match scores.len() - from {
                    0..4 => pair_powers::<S, 2>(s, from, scale, maximum, scores, sums),
                    _ => pair_powers::<S, 4>(s, from, scale, maximum, scores, sums),
                };
            }
            *self.rounded = rounded;
        } else {
            if let Some(scale) = scale {
                for x in &mut *scores {
                    *x = s.mul(*x, scale);
                }
            }
            exp2_minus_all(s, scores, maximum);
            for x in scores.iter() {
                sum = s.add(sum, *x);
            }
        }
        *self.sum = sum;
    }
}

/// Turns the `N` vectors of `scores` from `from` on, multiplied by `scale` (`None`: by 1), into pairs of weights, which it
/// writes to `scores` from `from / 2` on. `maximum` is the row's maximum. Adds the weights to `sum`, and the rounded
/// weights to `rounded`. Returns `N`.
#[inline(always)]
fn pair_powers<S: Simd, const N: usize>(
    s: S,
    from: usize,
    scale: Option<S::V>,
    maximum: S::V,
    scores: &mut [S::V],
    (sum, rounded): (&mut S::V, &mut S::V),
) -> usize {
    let mut x = [s.splat(0.0); N];
    x.copy_from_slice(&scores[from..from + N]);
    if let Some(scale) = scale {
        for x in &mut x {
            *x = s.mul(*x, scale);
        }
    }
    exp2_minus_each(s, &mut x, maximum);
    for x in &x {
        *sum = s.add(*sum, *x);
    }
    for i in 0..N / 2 {
        let pairs = s.pair_neighbours(x[2 * i], x[2 * i + 1]);
        let [low, high] = s.unpair(pairs);
        *rounded = s.add(*rounded, s.add(low, high));
        scores[from / 2 + i] = pairs;
    }
    N
}
