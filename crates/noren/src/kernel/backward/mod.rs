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
mod items;
mod keys;
mod micro;
mod queries;
mod walk;

pub(crate) use walk::{Gradient, Wanted};

use super::isa::{Isa, Task};
use super::micro::Product;
use super::rows::{Rows, SharedRows};
use super::scores::Modifiers;
use super::simd::Simd;
use super::worth_threads;
use crate::Dtype;
use crate::options::Cancel;
use noren_mask::Plan;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows with a larger log-sum-exp are careful: at half of it an `f32` has 2e-6.
const CAREFUL: f32 = 64.0;

/// What all work of a call reads.
pub(crate) struct Context<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) q: Rows<'a>,
    pub(crate) k: Rows<'a>,
    pub(crate) v: Rows<'a>,
    pub(crate) out: Rows<'a>,
    pub(crate) dout: Rows<'a>,
    /// `[batch, heads, q_len]`.
    pub(crate) lse: &'a [f32],
    pub(crate) modifiers: Modifiers<'a>,
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f64>,
    /// Whether rows read keys that the plan does not know.
    pub(crate) partial: bool,
    /// `[batch, heads, q_len]`, empty before they are made.
    pub(crate) stats: Vec<RowStats>,
}

/// What the backward pass must know of a row.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RowStats {
    /// Weights are `2^(score - base) * factor`; an integer.
    base: f64,
    /// 0 for rows that read nothing.
    factor: f32,
    /// The sum of `dout * out`, times the factor.
    delta: f32,
    careful: bool,
}

/// Head dimensions, rounded up to whole vectors.
#[derive(Clone, Copy, Debug)]
struct Widths {
    k: usize,
    v: usize,
}

/// The backward pass of arguments that were checked.
pub(crate) struct Backward<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) dq: SharedRows<'a>,
    /// Sums of `dq` on their way, where its type cannot hold them.
    pub(crate) dq_sums: Option<SharedRows<'a>>,
    pub(crate) dk: SharedRows<'a>,
    pub(crate) dv: SharedRows<'a>,
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
        let shape = self.context.plan.shape();
        let cells = (self.context.plan.patterns().iter().enumerate())
            .map(|(i, pattern)| {
                let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
                let uses = pairs.filter(|(b, h)| self.context.plan.pattern_of(*b, *h) == i).count() as u64;
                uses * pattern.tiles().map(|tile| tile.computed()).sum::<u64>()
            })
            .sum::<u64>();
        let work = cells.saturating_mul(self.context.q.shape()[3] as u64);
        let threads = worth_threads(self.threads, work);
        self.context.stats = walk::stats(&self.context, threads);
        walk::refine(s, &mut self.context, threads);
        items::run(s, &self, threads);
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

impl Context<'_> {
    fn widths<S: Simd>(&self) -> Widths {
        let width = |view: &Rows<'_>| view.shape()[3].next_multiple_of(S::LANES);
        Widths { k: width(&self.k), v: width(&self.v) }
    }

    /// Where a row `[batch, head, row]` is in arrays of all rows.
    fn row(&self, [batch, head, row]: [usize; 3]) -> usize {
        let [_, heads, q_len, _] = self.q.shape();
        (batch * heads + head) * q_len + row
    }
}

/// Calls `work` on up to `threads` threads, this one included.
///
/// Work may wait for work that another thread has begun, so a thread that is in the midst of some must not begin more: it
/// might while a user's closure waits for the pool.
fn on_threads(threads: usize, work: impl Fn() + Sync) {
    thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let inside = || {
        let _leave = Leave(INSIDE.replace(true));
        work();
    };
    if threads <= 1 {
        return inside();
    }
    let unless_inside = || {
        if !INSIDE.get() {
            inside();
        }
    };
    rayon::in_place_scope(|scope| {
        (1..threads).for_each(|_| scope.spawn(|_| unless_inside()));
        inside();
    });
}

/// Calls `work` with each of `0..count`, on up to `threads` threads.
fn for_each(threads: usize, count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    on_threads(threads.min(count), || {
        let numbers = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count);
        std::iter::from_fn(numbers).for_each(&work);
    });
}

/// Whether products are of pairs of `bf16`.
const fn of_pairs<S: Simd>() -> bool {
    S::Product::TERMS == 2
}

/// `range` in pieces of `most`, an even number, or one more: all but the last end before an even number, so that no pair is cut.
fn even_pieces(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = move |from: usize| range.end.min((from + most).next_multiple_of(2));
    let first = Some(range.start..end(range.start));
    let next = move |piece: &Range<usize>| Some(piece.end..end(piece.end));
    std::iter::successors(first, next).take_while(|piece| !piece.is_empty())
}

/// `range` in pieces of at most `most`.
fn pieces(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(most).map(move |from| from..range.end.min(from + most))
}
