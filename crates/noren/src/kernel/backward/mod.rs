//! The backward pass, on the plan of the forward pass.
//!
//! With weights `P` (recomputed from scores and the log-sum-exp), output gradients `dO` and `dP = dO V^T`, the gradient of
//! the scores is `dS = P (dP - delta)`, where `delta` is the row's sum of `dO` times the output. Then `dV = P^T dO`,
//! `dK = dS^T Q` and `dQ = dS K`: five products, of which two make the cells ([`cells`]) and three add them up ([`items`]).
//!
//! * One traversal does all five. Work comes in *items*, a run of keys of one key-value head: keys, values and their
//!   gradients stay in the second-level cache while the query rows that read them pass by; gradients of queries are read,
//!   added to and written back.
//! * What a sum's order is: `dQ` of a row adds keys in ascending order; `dK` and `dV` of a key add heads of the group, and in
//!   each the query rows, in ascending order. Items of one head take turns at the rows that they share ([`items`]), so the
//!   order, and with it every bit, depends on neither tiles nor threads.
//! * Hidden cells have weight and gradient 0 by selection. Where what they would be multiplied by may be infinite or NaN,
//!   they are left out.
//! * Weights are relative to an integer above the row's log-sum-exp, as in the forward pass; what is left, a factor between
//!   1 and 2, is multiplied into the row of `dO` beforehand, which brings it into every product.
//! * A score of several hundred has an error of 1e-5 and more in `f32`, and so has its weight. Rows whose log-sum-exp is
//!   large are *careful*: their scores are sums of `f64` products, and so are their denominator and `delta` ([`walk`]).

//! * Where a processor multiplies pairs of `bf16`, all five products are of pairs: along head_dim, along neighbouring keys, and
//!   along neighbouring query rows, of which the first is an even one. The factor is then multiplied into the weights.

mod cells;
mod context;
mod items;
mod keys;
mod micro;
mod queries;
mod threads;
mod walk;

pub(crate) use context::Context;
pub(crate) use items::Sums;
pub(crate) use walk::{Gradient, Wanted};

use super::dispatch::Task;
use super::simd::Simd;
use super::worth_threads;
use crate::options::Cancel;
use crate::{Dtype, Isa};

/// The backward pass of arguments that were checked.
pub(crate) struct Backward<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) sums: Sums<'a>,
    pub(crate) wanted: Wanted<'a>,
    pub(crate) threads: usize,
    /// Set when nobody wants the result any more.
    pub(crate) cancel: &'a Cancel<'a>,
}

impl Task for Backward<'_> {
    fn pairs(&self) -> bool {
        self.context.q.dtype() == Dtype::Bf16
    }

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
    /// Not generic, so that the kernels are compiled with this crate and not again with every crate that calls it.
    pub(crate) fn compute_on(self, isa: Isa) {
        isa.run(self);
    }
}
