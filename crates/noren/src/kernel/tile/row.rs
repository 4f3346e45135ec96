//! The softmax of one query row: scores of a block become weights, relative to the running maximum of the row.

use crate::kernel::exp::{NOTHING, exp2_minus_all};
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
    #[inline(always)]
    pub(super) fn rise(&mut self, s: S, word: Option<u64>, scores: &mut [S::V]) {
        let minus_infinity = s.splat(f32::NEG_INFINITY);
        let mut top = minus_infinity;
        for (i, x) in scores.iter_mut().enumerate() {
            if let Some(word) = word {
                *x = s.keep(word >> (i * S::LANES), *x, minus_infinity);
            }
            top = s.max(*x, top);
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
    }

    /// Turns scores into weights and adds the weights to the row's sum. `word` has the mask bits of the row, or is
    /// `None` if all cells are allowed. The caller has one inlined copy of the function for each usual number of
    /// vectors in `scores`.
    #[inline(always)]
    pub(super) fn weigh(&mut self, s: S, word: Option<u64>, scores: &mut [S::V]) {
        self.rise(s, word, scores);
        let maximum = s.splat(*self.maximum);
        exp2_minus_all(s, scores, maximum);
        let mut sum = *self.sum;
        for x in scores.iter() {
            sum = s.add(sum, *x);
        }
        *self.sum = sum;
    }
}
