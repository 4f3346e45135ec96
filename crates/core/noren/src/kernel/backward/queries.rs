//! Some query rows of one head, in the memory layouts of the five matrix products of the backward pass.

use super::context::{Context, Widths, band, of_pairs, step};
use super::keys::{columns, copy_words, pair_rows, words};
use crate::kernel::simd::{Kernel, Product, Simd, all_finite, floats, floats_mut, zeroed};
use std::ops::Range;

/// The maximum number of query rows that are processed together, a multiple of [`step`] on every processor path. The
/// gradients of a key are read and written once for all these rows.
pub(super) const ROWS: usize = 96;

/// Query rows of one head, with all data of these rows that the backward pass needs.
pub(super) struct Queries<S: Simd> {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) rows: Range<usize>,
    /// The queries as rows of words, `[rows][words]`, see [`words`]. They are multiplied by `Modifiers::query_factor`,
    /// except on a processor path that multiplies pairs of `bf16`. On such a path, a word has two neighbouring components
    /// of a query.
    q: Vec<S::V>,
    /// The gradients of the output as rows of words, `[rows][words]`. Each row is multiplied by its entry of `factors`,
    /// except on a processor path that multiplies pairs of `bf16`.
    dout: Vec<S::V>,
    /// Pairs of the same component of neighbouring queries, `[pairs][k_width]`, on a processor path that multiplies
    /// pairs of `bf16`; otherwise empty. Pairs after the last row, up to a multiple of [`step`] rows, are 0.
    q_pairs: Vec<S::V>,
    /// Pairs of the same component of neighbouring rows of `dout`, `[pairs][v_width]`; see `q_pairs`.
    dout_pairs: Vec<S::V>,
    /// The transposes of `q_pairs` and `dout_pairs`, `[k_width or v_width][PAIRS]`, on a path that multiplies tiles.
    across: [Vec<S::V>; 2],
    /// For each row, the integer `base` in the row's softmax weights, which are `2^(score - base) * factor`.
    pub(super) tops: Vec<f32>,
    /// The values of `tops` (the integer bases of the rows' weights) in `f64`, for careful rows (rows whose scores are
    /// computed in `f64`).
    pub(super) bases: Vec<f64>,
    /// For each row, the `factor` in the row's softmax weights, which are `2^(score - base) * factor`; 0 for rows that
    /// read no key.
    pub(super) factors: Vec<f32>,
    /// For each row, the sum of `dout * out`. The sum is multiplied by the row's entry of `factors`, except on a
    /// processor path that multiplies pairs of `bf16`.
    pub(super) deltas: Vec<f32>,
    /// The mask bits of the current block of keys, one word for each row. Bit 0 is the first key of the block.
    pub(super) words: Vec<u64>,
    /// The partial gradients of the queries, `[rows][k_width]`.
    pub(super) sums: Vec<S::V>,
    /// Whether at least one row reads no key.
    pub(super) dead: bool,
    /// Whether each row is careful (its scores are computed in `f64`). The field `careful` is true if at least one row
    /// is careful.
    pub(super) careful_rows: Vec<bool>,
    pub(super) careful: bool,
    /// Whether `q` or `dout` holds an infinite or NaN value.
    pub(super) non_finite: bool,
}

/// The maximum number of pairs of query rows that are processed together.
pub(super) const PAIRS: usize = ROWS / 2;

impl<S: Simd> Queries<S> {
    pub(super) fn new(widths: Widths) -> Self {
        let Widths { k, v } = widths;
        const { assert!(ROWS.is_multiple_of(step::<S>()) && ROWS.is_multiple_of(band::<S>())) };
        let pairs = if of_pairs::<S>() { PAIRS } else { 0 };
        let [q, dout] = [k, v].map(|width| zeroed(ROWS * words::<S>(width) / S::LANES));
        let [q_pairs, dout_pairs] = [k, v].map(|width| zeroed(pairs * width / S::LANES));
        let turned = if S::Product::TILES { PAIRS } else { 0 };
        Queries {
            q,
            dout,
            q_pairs,
            dout_pairs,
            across: [k, v].map(|width| zeroed(turned * width / S::LANES)),
            batch: 0,
            head: 0,
            rows: 0..0,
            tops: vec![0.0; ROWS],
            bases: vec![0.0; ROWS],
            factors: vec![0.0; ROWS],
            deltas: vec![0.0; ROWS],
            words: vec![0; ROWS],
            sums: zeroed(ROWS * k / S::LANES),
            dead: false,
            careful_rows: vec![false; ROWS],
            careful: false,
            non_finite: false,
        }
    }

    /// Copies the query rows `rows` (at most `ROWS` rows) and the gradients of their outputs into all memory layouts.
    /// `head` is `[batch row, head]`.
    #[inline(always)]
    pub(super) fn fill(&mut self, s: S, context: &Context<'_>, head: [usize; 2], rows: Range<usize>) {
        s.run(Fill { into: self, context, head, rows });
    }

    #[inline(always)]
    fn lay_out(&mut self, s: S, context: &Context<'_>, [batch, head]: [usize; 2], rows: Range<usize>) {
        let Widths { k, v } = context.widths::<S>();
        (self.batch, self.head, self.rows) = (batch, head, rows.clone());
        (self.dead, self.careful) = (false, false);
        let (head_dim, v_dim) = (context.q.shape()[3], context.v.shape()[3]);
        let [of_k, of_v] = [k, v].map(words::<S>);
        let (q, dout) = (self.q.chunks_exact_mut(of_k / S::LANES), self.dout.chunks_exact_mut(of_v / S::LANES));
        for ((r, row), (q, dout)) in rows.clone().enumerate().zip(q.zip(dout)) {
            let at = [batch, head, row];
            let stats = context.stats[context.row(at)];
            copy_words::<S>(&context.q, at, q);
            copy_words::<S>(&context.dout, at, dout);
            self.deltas[r] = stats.delta;
            if of_pairs::<S>() {
                self.deltas[r] = if stats.factor == 0.0 { 0.0 } else { stats.delta / stats.factor };
            } else {
                // Only the numbers of the row: an infinite factor would turn the zeros after them into NaN.
                let rows = [(q, head_dim, context.modifiers.query_factor), (dout, v_dim, stats.factor)];
                for (row, dim, factor) in rows {
                    for x in &mut floats_mut(row)[..dim] {
                        *x *= factor;
                    }
                }
            }
            self.tops[r] = stats.base as f32;
            self.bases[r] = stats.base;
            self.factors[r] = stats.factor;
            self.dead |= stats.factor == 0.0;
            self.careful_rows[r] = stats.careful;
            self.careful |= stats.careful;
        }
        let (q, dout) = (&self.q[..rows.len() * of_k / S::LANES], &self.dout[..rows.len() * of_v / S::LANES]);
        self.non_finite = [q, dout].iter().any(|words| !all_finite::<S::Product>(floats(words)));
        if of_pairs::<S>() {
            pair_rows(s, q, k, &mut self.q_pairs);
            pair_rows(s, dout, v, &mut self.dout_pairs);
        }
        if S::Product::TILES {
            let all = rows.len().next_multiple_of(step::<S>()) / 2;
            for (pairs, width, across) in [(&self.q_pairs, k, 0), (&self.dout_pairs, v, 1)] {
                let rows = floats_mut(&mut self.across[across]).chunks_exact_mut(PAIRS);
                let mut rows: Vec<_> = rows.collect();
                columns(s, &floats(pairs)[..all * width], width, width, |i, column| {
                    rows[i][..all].copy_from_slice(column)
                });
            }
        }
    }

    /// Returns the queries and the gradients of the output as rows of words, `[rows][words]`.
    pub(super) fn rows_along(&self) -> [&[S::V]; 2] {
        [&self.q, &self.dout]
    }

    /// Returns the queries and the gradients of the output as columns of pairs of neighbouring rows, `[width][PAIRS]`, on a
    /// path that multiplies tiles.
    pub(super) fn columns_for_keys(&self) -> [&[f32]; 2] {
        [floats(&self.across[0]), floats(&self.across[1])]
    }

    /// Returns the queries and the gradients of the output as rows with a word for each component: `[rows][width]`, or
    /// `[pairs][width]` if a word is a pair of `bf16`, which has the component of two neighbouring rows.
    pub(super) fn rows_for_keys(&self) -> [&[S::V]; 2] {
        if of_pairs::<S>() { [&self.q_pairs, &self.dout_pairs] } else { [&self.q, &self.dout] }
    }
}

/// The computation of [`Queries::fill`] as a kernel, which is compiled once for each processor path instead of at each
/// call site.
struct Fill<'a, 'b, S: Simd> {
    into: &'a mut Queries<S>,
    context: &'a Context<'b>,
    head: [usize; 2],
    rows: Range<usize>,
}

impl<S: Simd> Kernel<S> for Fill<'_, '_, S> {
    #[inline(always)]
    fn run(self, s: S) {
        self.into.lay_out(s, self.context, self.head, self.rows);
    }
}
