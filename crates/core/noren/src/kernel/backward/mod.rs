//! The backward pass, on the plan of the forward pass.
//!
//! With weights `P` (recomputed from scores and the log-sum-exp), output gradients `dO` and `dP = dO V^T`, the gradient
//! of the scores is `dS = P (dP - delta)`. For each row, `delta` is the sum of `dO` times the output. Then
//! `dV = P^T dO`, `dK = dS^T Q` and `dQ = dS K`. Of these five matrix products, two compute the cells ([`cells`]), and
//! three add the cells to gradients ([`items`]).
//!
//! * One traversal of the cells computes all five products. Work is divided into *items*: an item is a range of keys of
//!   one key-value head. Keys, values and their gradients stay in the second-level cache while the thread of the item
//!   reads the query rows one after another. For each range of query rows, the thread reads the partial gradients of
//!   the queries, adds to these gradients and writes them back.
//! * The order of every sum is fixed. The sum `dQ` of a row adds keys in ascending order. The sums `dK` and `dV` of a
//!   key add the query heads that share the key in ascending order, and in each head the query rows. Items of one head
//!   take turns at the rows that they share ([`items`]). Every bit of a sum is therefore independent of tiles and
//!   threads.
//! * Hidden cells get weight and gradient 0 by selection, not by multiplication. If numbers that belong to hidden cells
//!   may be infinite or NaN, the hidden cells are left out of the products, because 0 times such a number is NaN.
//! * A weight is `2^(score - base) * factor`. `base` is an integer, the row's log-sum-exp in base 2 rounded up, and
//!   `factor` is a number from 1 to 2 for each row. The row of `dO` is multiplied by the factor before the products, so
//!   every product with `dO` contains the factor.
//! * In `f32`, a score of several hundred has an absolute error of 1e-5 or more, and the weight of this score then has
//!   a relative error of the same size. Rows whose log-sum-exp has a large absolute value are *careful*: their scores,
//!   denominator and `delta` are computed in `f64` ([`walk`]).
//! * On processors that multiply pairs of `bf16`, all five products use pairs: of neighbouring components, of
//!   neighbouring keys, or of neighbouring query rows. The first row of a pair of query rows has an even index. On
//!   these processors, keys, values and queries are kept only as pairs, and the weights are multiplied by the factor
//!   instead of `dO`. Tiles consist of the same pairs, of 32 neighbouring components, keys or query rows; rows that are
//!   processed together begin at a multiple of 32 ([`parts`]), and the sums `dK` and `dV` are transposed, because cells
//!   are then right operands in the order in which they are computed.

mod cells;
mod context;
mod items;
mod keys;
mod micro;
mod parts;
mod queries;
mod walk;

pub(crate) use context::Context;
pub(crate) use items::Sums;
pub(crate) use walk::{Gradient, Wanted};

use super::dispatch::Task;
use super::simd::Simd;
use super::threads::worth_threads;
use crate::inputs::options::Cancel;
use crate::{Dtype, Isa};

/// The backward pass of one call. The arguments of the call are already checked.
pub(crate) struct Backward<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) sums: Sums<'a>,
    pub(crate) wanted: Wanted<'a>,
    pub(crate) threads: usize,
    /// The signal by which the caller cancels the computation.
    pub(crate) cancel: &'a Cancel<'a>,
}

impl Task for Backward<'_> {
    fn pairs(&self) -> bool {
        self.context.q.dtype() == Dtype::Bf16
    }

    const TILES: bool = true;

    fn run<S: Simd>(mut self, s: S) {
        let threads = worth_threads(self.threads, self.context.multiplications());
        self.context.stats = walk::stats(&self.context, threads);
        walk::refine(s, &mut self.context, threads);
        items::run(s, &self.context, &self.sums, threads, self.cancel);
        if self.cancel.now() {
            return;
        }
        walk::modifiers(s, &self.context, self.wanted, threads);
    }
}

impl Backward<'_> {
    /// Runs the backward pass on an ISA. This function is not generic, so the kernels are compiled once in this crate,
    /// not again in each crate that calls it.
    pub(crate) fn compute_on(self, isa: Isa) {
        isa.run(self);
    }
}
