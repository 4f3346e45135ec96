//! Some query rows of one head, in the memory layouts of the five matrix products of the backward pass.

use super::context::{Context, Widths, of_pairs};
use super::keys::{pair_along, pair_rows, words};
use crate::kernel::simd::{Kernel, Simd, Single, all_finite, floats, floats_mut, zeroed};
use std::ops::Range;

/// The number of query rows that are processed together. If the first row has an odd index, one row more is processed,
/// so that no pair of rows (an even index and the next index) is split. The sums of a key over the rows of a phase stay
/// in registers.
pub(super) const ROWS: usize = 96;

/// Query rows of one head, with all data of these rows that the backward pass needs.
pub(super) struct Queries<S: Simd> {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) rows: Range<usize>,
    /// The queries, `[rows][k_width]`. They are multiplied by `Modifiers::query_factor`, except on a processor path
    /// that multiplies pairs of `bf16`.
    pub(super) q: Vec<S::V>,
    /// The gradients of the output, `[rows][v_width]`. Each row is multiplied by its entry of `factors`, except on a
    /// processor path that multiplies pairs of `bf16`.
    pub(super) dout: Vec<S::V>,
    pub(super) pairs: QueryPairs<S>,
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

/// The rows of [`Queries`] as pairs of `bf16` numbers, in two arrangements: pairs of neighbouring numbers of one row,
/// and pairs of the same component of neighbouring rows. Empty on processor paths that multiply `f32` numbers.
pub(super) struct QueryPairs<S: Simd> {
    /// Pairs of neighbouring components of a query, `[rows][words]`.
    pub(super) q: Vec<S::V>,
    pub(super) dout: Vec<S::V>,
    /// Pairs of the same component of neighbouring queries, `[pairs][width]`. The first row of each pair has an even
    /// index.
    pub(super) q_rows: Vec<S::V>,
    pub(super) dout_rows: Vec<S::V>,
}

impl<S: Simd> QueryPairs<S> {
    fn new(Widths { k, v }: Widths) -> Self {
        let rows = if of_pairs::<S>() { MOST } else { 0 };
        let [q, dout] = [k, v].map(|width| zeroed(rows * words::<S>(width) / S::LANES));
        let [q_rows, dout_rows] = [k, v].map(|width| zeroed(rows.div_ceil(2) * width / S::LANES));
        QueryPairs { q, dout, q_rows, dout_rows }
    }

    /// Combines the numbers of `count` rows of `q` and of `dout` into pairs of `bf16`: neighbouring numbers of each
    /// row, and the same components of neighbouring rows. `odd` is 1 if the first row has an odd index, otherwise 0.
    #[inline(always)]
    fn fill(&mut self, s: S, [q, dout]: [&[S::V]; 2], Widths { k, v }: Widths, count: usize, odd: usize) {
        let arrays = [(q, k, &mut self.q, &mut self.q_rows), (dout, v, &mut self.dout, &mut self.dout_rows)];
        for (rows, width, along, pairs) in arrays {
            let vectors = width / S::LANES;
            for (row, along) in rows.chunks_exact(vectors).zip(along.chunks_exact_mut(vectors.div_ceil(2))).take(count)
            {
                pair_along(s, row, along);
            }
            pair_rows(s, rows, (count, vectors), vectors, odd, pairs);
        }
    }
}

/// The maximum number of query rows that are processed together.
const MOST: usize = ROWS + 1;

impl<S: Simd> Queries<S> {
    pub(super) fn new(widths: Widths) -> Self {
        let Widths { k, v } = widths;
        Queries {
            pairs: QueryPairs::new(widths),
            batch: 0,
            head: 0,
            rows: 0..0,
            q: zeroed(MOST * k / S::LANES),
            dout: zeroed(MOST * v / S::LANES),
            tops: vec![0.0; MOST],
            bases: vec![0.0; MOST],
            factors: vec![0.0; MOST],
            deltas: vec![0.0; MOST],
            words: vec![0; MOST],
            sums: zeroed(MOST * k / S::LANES),
            dead: false,
            careful_rows: vec![false; MOST],
            careful: false,
            non_finite: false,
        }
    }

    /// Copies the query rows `rows` (at most `MOST` rows) and the gradients of their outputs into all memory layouts.
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
        let q = floats_mut(&mut self.q).chunks_exact_mut(k);
        let dout = floats_mut(&mut self.dout).chunks_exact_mut(v);
        for ((r, row), (q, dout)) in rows.clone().enumerate().zip(q.zip(dout)) {
            let at = [batch, head, row];
            let stats = context.stats[context.row(at)];
            context.q.copy_row(at, 0, &mut q[..head_dim]);
            context.dout.copy_row(at, 0, &mut dout[..v_dim]);
            self.deltas[r] = stats.delta;
            if of_pairs::<S>() {
                self.deltas[r] = if stats.factor == 0.0 { 0.0 } else { stats.delta / stats.factor };
            } else {
                q[..head_dim].iter_mut().for_each(|x| *x *= context.modifiers.query_factor);
                dout[..v_dim].iter_mut().for_each(|x| *x *= stats.factor);
            }
            self.tops[r] = stats.base as f32;
            self.bases[r] = stats.base;
            self.factors[r] = stats.factor;
            self.dead |= stats.factor == 0.0;
            self.careful_rows[r] = stats.careful;
            self.careful |= stats.careful;
        }
        let finite = |values: &[S::V], width: usize| all_finite::<Single>(&floats(values)[..rows.len() * width]);
        self.non_finite = !finite(&self.q, k) || !finite(&self.dout, v);
        if of_pairs::<S>() {
            self.pairs.fill(s, [&self.q, &self.dout], Widths { k, v }, rows.len(), rows.start % 2);
        }
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
