//! The start and the end of a tile: queries are copied, and outputs are written.

use super::TileKernel;
use crate::kernel::keys::pack::prefetch;
use crate::kernel::math::exp::NOTHING;
use crate::kernel::math::scores::Place;
use crate::kernel::simd::{Kernel, Product, Simd, floats, floats_mut, pair_up};

/// The number of query rows between the row that is being copied and the row that is prefetched meanwhile.
const AHEAD: usize = 8;

/// Computes `to = from * factor`. The function uses a `for` loop, because a closure in `for_each` is compiled
/// separately, without the vector instructions of the processor path.
#[inline(always)]
fn multiply(from: &[f32], factor: f32, to: &mut [f32]) {
    for (to, x) in to.iter_mut().zip(from) {
        *to = x * factor;
    }
}

/// The computation of [`TileKernel::start`] as a kernel, which is compiled once for each processor path and kind of
/// product (`f32` or pairs of `bf16`) instead of at each call site.
struct Start<'t, 'a, 'b, S: Simd, P>(&'t mut TileKernel<'a, 'b, S, P>);

impl<S: Simd, P: Product> Kernel<S> for Start<'_, '_, '_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        self.0.take_queries(s);
    }
}

/// The computation of [`TileKernel::finish`] as a kernel, which is compiled once for each processor path and kind of
/// product (`f32` or pairs of `bf16`) instead of at each call site.
struct Finish<'t, 'a, 'b, S: Simd, P>(&'t mut TileKernel<'a, 'b, S, P>);

impl<S: Simd, P: Product> Kernel<S> for Finish<'_, '_, '_, S, P> {
    #[inline(always)]
    fn run(self, s: S) {
        self.0.write_rows(s);
    }
}

impl<S: Simd, P: Product> TileKernel<'_, '_, S, P> {
    /// Returns the index `[batch, head, row]`, in the arrays of queries and outputs, of the row with the index `i` among the
    /// rows of the head `head`.
    #[inline(always)]
    fn index(&self, head: usize, i: usize) -> [usize; 3] {
        self.context.row(Place { batch: self.job.batch, head, row: self.scratch.rows[i], key: 0 })
    }

    /// Resets the maximum and the denominator of each row, and copies the queries. `f32` queries are multiplied by
    /// `query_factor`; with pairs of `bf16`, the scores are multiplied later. The sums of weighted values are not reset,
    /// because the first product of a row replaces them.
    #[inline(always)]
    pub(super) fn start(&mut self, s: S) {
        s.run(Start(self));
    }

    /// Divides the weighted values of each row by the denominator of the row, and writes outputs and log-sum-exps.
    #[inline(always)]
    pub(super) fn finish(&mut self, s: S) {
        s.run(Finish(self));
    }

    #[inline(always)]
    fn take_queries(&mut self, s: S) {
        let plan = &self.context.plan.patterns()[self.job.pattern];
        self.scratch.rows.clear();
        self.scratch.rows.extend(self.job.rows.clone().map(|place| plan.query_at(place as u32) as usize));
        let (rows, words) = (self.row_count(), self.source.words());
        let factor = self.context.modifiers.query_factor;
        let (heads, count) = (self.job.heads.clone(), self.job.rows.len());
        for head in heads.clone() {
            for i in 0..count {
                let from = self.index(head, i);
                if self.ahead.is_none() {
                    self.context.out.prefetch(s, from);
                }
                let (next, later) = if i + AHEAD < count { (head, i + AHEAD) } else { (head + 1, i + AHEAD - count) };
                if next < heads.end
                    && later < count
                    && let Some(row) = self.context.q.row_words::<P>(self.index(next, later))
                {
                    prefetch(s, row);
                }
                let to =
                    &mut floats_mut(&mut self.scratch.queries)[((head - heads.start) * count + i) * words..][..words];
                match self.context.q.row_words::<P>(from) {
                    Some(row) if P::TERMS == 1 => multiply(row, factor, to),
                    Some(row) => {
                        to[..row.len()].copy_from_slice(row);
                        to[row.len()..].fill(0.0);
                    }
                    None => {
                        let query = &mut self.scratch.query[..];
                        self.context.q.copy_row(from, 0, query);
                        match P::TERMS {
                            1 => multiply(query, factor, to),
                            _ => {
                                to.fill(0.0);
                                for (to, pair) in to.iter_mut().zip(query.chunks(2)) {
                                    *to = pair_up(pair[0], pair.get(1).copied().unwrap_or(0.0));
                                }
                            }
                        }
                    }
                }
            }
        }
        self.scratch.begun.fill(false);
        self.scratch.sums[..rows].fill(s.splat(0.0));
        self.scratch.rounded[..rows].fill(s.splat(0.0));
        self.scratch.maxima[..rows].fill(NOTHING);
    }

    #[inline(always)]
    fn write_rows(&mut self, s: S) {
        let (heads, count) = (self.job.heads.clone(), self.job.rows.len());
        for head in heads.clone() {
            for i in 0..count {
                self.write_row(s, (head - heads.start) * count + i, head, self.index(head, i));
            }
        }
    }

    /// Writes output and log-sum-exp of the row with the index `r` in the job. The row belongs to the head `head`, and has
    /// the index `place` in the array of outputs.
    #[inline(always)]
    fn write_row(&mut self, s: S, r: usize, head: usize, place: [usize; 3]) {
        let v_dim = self.source.v_dim();
        let width = self.source.v_width() / S::LANES;
        let scratch = &mut *self.scratch;
        let sum = f64::from(s.reduce_add(scratch.sums[r]));
        // Outputs are divided by the sum of the weights by which the values were multiplied. If weights are pairs, this is
        // the sum of the rounded weights.
        let mut divisor = if P::TERMS == 1 { sum } else { f64::from(s.reduce_add(scratch.rounded[r])) };
        let maximum = f64::from(scratch.maxima[r]);
        let (mut denominator, mut top) = (sum, maximum);
        if let Some(sinks) = self.context.modifiers.sinks {
            let sink = f64::from(sinks[head]) * std::f64::consts::LOG2_E;
            top = maximum.max(sink.ceil());
            let (factor, sink) = ((maximum - top).exp2(), (sink - top).exp2());
            denominator = sum * factor + sink;
            divisor = (divisor * factor + sink) / factor;
        }
        // A row that read no key, or only scores of minus infinity, is empty: its output is 0, not 0 / 0.
        let empty = sum == 0.0;
        let divisor = s.splat(divisor as f32);
        let reciprocal = s.div(s.splat(1.0), divisor);
        // SAFETY: no other job writes this row (`Jobs::new` guarantees this), and this job writes each of its rows once.
        let row = unsafe { self.context.out.row_mut(place) };
        let in_place = row.as_ref().is_some_and(|row| row.len() == width * S::LANES);
        let line = match row {
            Some(row) if in_place => row,
            _ => floats_mut(&mut scratch.line),
        };
        for (to, from) in line.chunks_exact_mut(S::LANES).zip(&scratch.acc[r * width..][..width]) {
            // Adding 0 turns -0 into 0. The result is then equal whether products of 0 were added or skipped.
            // Outputs of tiles are rounded to `bf16`, where a product with the reciprocal is exact enough, and much faster.
            let x = if P::TILES { s.mul(*from, reciprocal) } else { s.div(*from, divisor) };
            let x = if empty { s.splat(0.0) } else { s.add(x, s.splat(0.0)) };
            to.copy_from_slice(floats(std::slice::from_ref(&x)));
        }
        if !in_place {
            // SAFETY: as above; the borrow of `row` has ended.
            unsafe { self.context.out.write(place, &floats(&scratch.line)[..v_dim]) };
        }
        if let Some(lse) = &self.context.lse {
            let value = match empty {
                true => f32::NEG_INFINITY,
                false => ((denominator.log2() + top) * std::f64::consts::LN_2) as f32,
            };
            // SAFETY: no other job writes this row, as for the output above.
            unsafe { lse.write(place, &[value]) };
        }
    }
}
