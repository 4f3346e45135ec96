//! The data that all threads of a backward pass read, and functions that divide ranges of rows or keys into smaller
//! ranges.

use crate::View;
use crate::kernel::arrays::rows::Rows;
use crate::kernel::math::scores::Modifiers;
use crate::kernel::simd::{Product, Simd};
use crate::processor::tiles::SIDE;
use noren_mask::Plan;
use std::ops::Range;

/// The limit for the absolute value of a row's log-sum-exp up to which the scores of the row are computed in `f32`.
/// Rows beyond the limit are *careful*: their scores are computed in `f64`, because the rounding errors of `f32`
/// numbers above 64 reach 4e-6 or more.
pub(super) const CAREFUL: f32 = 64.0;

/// The data that all threads of a backward pass read.
pub(crate) struct Context<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) q: Rows<'a>,
    pub(crate) k: Rows<'a>,
    pub(crate) v: Rows<'a>,
    pub(crate) out: Rows<'a>,
    pub(crate) dout: Rows<'a>,
    /// The log-sum-exp of each row, `[batch, heads, q_len, 1]`.
    pub(crate) lse: View<'a>,
    pub(crate) modifiers: Modifiers<'a>,
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f64>,
    /// The option `partial`: whether rows may also read keys that are not in the plan.
    pub(crate) partial: bool,
    /// The [`RowStats`] (numbers from which softmax weights and gradients are computed) of all query rows, `[batch,
    /// heads, q_len]`; empty before they are computed.
    pub(crate) stats: Vec<RowStats>,
}

/// The numbers of one query row from which the backward pass computes softmax weights and gradients.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RowStats {
    /// The integer `base` in the row's softmax weights, which are `2^(score - base) * factor`.
    pub(super) base: f64,
    /// The `factor` in the row's softmax weights, which are `2^(score - base) * factor`; 0 for rows that read no key.
    pub(super) factor: f32,
    /// The sum of `dout * out` over the row, multiplied by the [`factor`](Self::factor) of the row's softmax weights.
    pub(super) delta: f32,
    pub(super) careful: bool,
}

/// The lengths of rows: `k` is `head_dim` (queries and keys) and `v` is `v_dim` (values), both rounded up to whole
/// vectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    pub(super) k: usize,
    pub(super) v: usize,
}

impl Context<'_> {
    /// Returns `head_dim` and `v_dim`, rounded up to whole vectors of the processor path.
    pub(super) fn widths<S: Simd>(&self) -> Widths {
        let width = |view: &Rows<'_>| view.shape()[3].next_multiple_of(S::LANES);
        Widths { k: width(&self.k), v: width(&self.v) }
    }

    /// Returns the number of multiplications in one of the five matrix products of the backward pass: computed cells
    /// times `head_dim`.
    pub(super) fn multiplications(&self) -> u64 {
        let shape = self.plan.shape();
        let cells = (self.plan.patterns().iter().enumerate())
            .map(|(i, pattern)| {
                let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
                let uses = pairs.filter(|(b, h)| self.plan.pattern_of(*b, *h) == i).count() as u64;
                uses * pattern.tiles().map(|tile| tile.computed()).sum::<u64>()
            })
            .sum::<u64>();
        cells.saturating_mul(self.q.shape()[3] as u64)
    }

    /// Returns the index of row `[batch, head, row]` in an array with one entry for each row of each head.
    pub(super) fn row(&self, [batch, head, row]: [usize; 3]) -> usize {
        let [_, heads, q_len, _] = self.q.shape();
        (batch * heads + head) * q_len + row
    }
}

/// Returns whether matrix products on this processor path multiply pairs of `bf16` numbers.
pub(super) const fn of_pairs<S: Simd>() -> bool {
    S::Product::TERMS == 2
}

/// Returns the number of query rows that a product for the gradients of keys adds in one step: the terms of a word, or of
/// the words of a tile. Rows that are processed together begin at a multiple of this number.
pub(super) const fn step<S: Simd>() -> usize {
    if S::Product::TILES { S::Product::TERMS * SIDE } else { S::Product::TERMS }
}

/// Returns the number of query rows whose products with keys are computed together.
pub(super) const fn band<S: Simd>() -> usize {
    if S::Product::TILES { S::PHASE } else { S::ROWS }
}

/// Returns the number of keys by whose multiples a block of keys begins: a vector with one key in each lane, or with tiles
/// two of these vectors, the keys that a product for the gradients of queries adds in one step.
pub(super) const fn lanes<S: Simd>() -> usize {
    if S::Product::TILES { S::Product::TERMS * S::LANES } else { S::LANES }
}

/// Divides `range` into consecutive ranges of at most `most` indices.
pub(super) fn pieces(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(most).map(move |from| from..range.end.min(from + most))
}
