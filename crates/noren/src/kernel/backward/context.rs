//! The data that all items of a backward pass read, and functions that divide ranges of rows or keys into parts.

use crate::View;
use crate::kernel::rows::Rows;
use crate::kernel::scores::Modifiers;
use crate::kernel::simd::{Product, Simd};
use noren_mask::Plan;
use std::ops::Range;

/// The limit of the log-sum-exp: a row whose log-sum-exp has a larger absolute value is careful. At half of this limit,
/// an `f32` has a rounding error of 2e-6.
pub(super) const CAREFUL: f32 = 64.0;

/// The data that all items of a backward pass read.
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
    /// The option `partial`: whether rows also read keys that are not in the plan.
    pub(crate) partial: bool,
    /// The bases, factors and deltas of all query rows, `[batch, heads, q_len]`; empty before they are computed.
    pub(crate) stats: Vec<RowStats>,
}

/// The numbers that the backward pass needs for each query row.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RowStats {
    /// The integer `base` in the row's softmax weights, which are `2^(score - base) * factor`.
    pub(super) base: f64,
    /// The `factor` in the row's softmax weights, which are `2^(score - base) * factor`; 0 for rows that read no key.
    pub(super) factor: f32,
    /// The sum of `dout * out` over the row, multiplied by `factor`.
    pub(super) delta: f32,
    pub(super) careful: bool,
}

/// The row lengths `head_dim` of keys (`k`) and `v_dim` of values (`v`), rounded up to whole vectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    pub(super) k: usize,
    pub(super) v: usize,
}

impl Context<'_> {
    /// Returns the lengths of key and value rows, rounded up to whole vectors of the path.
    pub(super) fn widths<S: Simd>(&self) -> Widths {
        let width = |view: &Rows<'_>| view.shape()[3].next_multiple_of(S::LANES);
        Widths { k: width(&self.k), v: width(&self.v) }
    }

    /// Returns the number of multiplications of one of the five matrix products of the backward pass.
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

/// Returns whether matrix products on this path multiply pairs of `bf16` numbers.
pub(super) const fn of_pairs<S: Simd>() -> bool {
    S::Product::TERMS == 2
}

/// Divides the row range `range` into ranges of `most` rows (an even number) or `most + 1` rows. Each of them except
/// the last ends before a row with an even index, so no pair of rows is split.
pub(super) fn even_pieces(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = move |from: usize| range.end.min((from + most).next_multiple_of(2));
    let first = Some(range.start..end(range.start));
    let next = move |piece: &Range<usize>| Some(piece.end..end(piece.end));
    std::iter::successors(first, next).take_while(|piece| !piece.is_empty())
}

/// Divides `range` into consecutive ranges of at most `most` indices.
pub(super) fn pieces(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(most).map(move |from| from..range.end.min(from + most))
}
