//! Measures the operations of `noren bench`: forward pass, backward pass and decode step, each in its own function.

use super::cases::Case;
use super::limits::Work;
use super::op::Op;
use crate::failure::{Failure, Result};
use noren::{
    Dtype, Element, GradientsMut, Inputs, Isa, KvCache, KvShape, Options, Outputs, Saved, View, ViewMut, attention,
    attention_backward_into, attention_into, bf16, f16, machine::computed_cells,
};
use noren_mask::{Plan, PlanOptions, Stats};
use std::time::{Duration, Instant};

/// Number of query rows that the kernels compute together: the number of rows in a tile.
const BLOCK_Q: u32 = 96;
const LEAST_RUNS: usize = 3;
const MOST_RUNS: usize = 1000;

/// The measurement of one case.
pub(super) struct Measured {
    /// The times of the runs, shortest first; the list has at least one time.
    pub(super) times: Vec<Duration>,
    /// The statistics of the plan: numbers of cells and tiles.
    pub(super) stats: Stats,
    /// Computed cells divided by allowed cells; 0 if no cell is allowed.
    pub(super) computed_per_allowed: f64,
    /// The minimum arithmetic and memory traffic of the case.
    pub(super) work: Work,
}

/// Measures one case for about the time `budget`.
pub(super) fn measure(case: &Case, budget: Duration) -> Result<Measured> {
    let plan = case.bind()?.plan_with(&PlanOptions { block_q: BLOCK_Q, ..PlanOptions::default() });
    let stats = plan.stats();
    let computed_per_allowed = case.computed_per_allowed(&plan, &stats)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(case.threads).build();
    let pool = pool.map_err(|e| Failure::new(format!("{} threads cannot be started: {e}", case.threads)))?;
    let setup = Setup { case, plan, options: case.options()?, budget };
    let mut times = pool.install(|| match case.dtype {
        Dtype::F32 => setup.run::<f32>(),
        Dtype::Bf16 => setup.run::<bf16>(),
        Dtype::F16 => setup.run::<f16>(),
    })?;
    times.sort_unstable();
    Ok(Measured { times, work: case.work(&stats), stats, computed_per_allowed })
}

/// The mask, plan, kernel options and time budget of one case, which every measured operation needs.
struct Setup<'a> {
    case: &'a Case,
    plan: Plan,
    options: Options<'a>,
    budget: Duration,
}

impl Setup<'_> {
    fn run<T: Element>(&self) -> Result<Vec<Duration>> {
        match self.case.op {
            Op::Forward => self.forward::<T>(),
            Op::Backward => self.backward::<T>(),
            Op::Decode => self.decode::<T>(),
        }
    }

    /// Measures the forward pass over all queries of a sequence. The time of planning is not included.
    fn forward<T: Element>(&self) -> Result<Vec<Duration>> {
        let [q_shape, kv_shape] = self.case.shapes();
        let [q, k, v] = [(q_shape, 1), (kv_shape, 2), (kv_shape, 3)].map(|(shape, seed)| values::<T>(shape, seed));
        let mut out = values::<T>(q_shape, 4);
        let inputs = Inputs { q: View::new(&q, q_shape)?, k: View::new(&k, kv_shape)?, v: View::new(&v, kv_shape)? };
        self.time(|| {
            let out = ViewMut::new(&mut out, q_shape)?;
            Ok(attention_into(&inputs, &self.plan, &self.options, Outputs { out, lse: None })?)
        })
    }

    /// Measures the backward pass, without the forward pass.
    fn backward<T: Element>(&self) -> Result<Vec<Duration>> {
        let [q_shape, kv_shape] = self.case.shapes();
        let [q, k, v] = [(q_shape, 1), (kv_shape, 2), (kv_shape, 3)].map(|(shape, seed)| values::<T>(shape, seed));
        let inputs = Inputs { q: View::new(&q, q_shape)?, k: View::new(&k, kv_shape)?, v: View::new(&v, kv_shape)? };
        let forward = attention(&inputs, &self.plan, &self.options)?;
        let dout = values::<T>(q_shape, 4);
        let out = View::new(&forward.out, forward.shape)?;
        let saved = Saved { out, lse: &forward.lse, dout: View::new(&dout, q_shape)? };
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(Clone::clone);
        self.time(|| {
            let dq = ViewMut::new(&mut dq, q_shape)?;
            let (dk, dv) = (ViewMut::new(&mut dk, kv_shape)?, ViewMut::new(&mut dv, kv_shape)?);
            let gradients = GradientsMut::new(dq, dk, dv);
            Ok(attention_backward_into(&inputs, &saved, &self.plan, &self.options, gradients)?)
        })
    }

    /// Measures one decode step: appends the newest token to the cache, plans and computes.
    fn decode<T: Element>(&self) -> Result<Vec<Duration>> {
        let Case { len, dim, heads, kv_heads, .. } = *self.case;
        let (chunk, new) = ([1, kv_heads, len.min(256), dim], [1, kv_heads, 1, dim]);
        let (q_shape, mask, facts) = ([1, heads, 1, dim], &self.case.spec.mask, self.case.facts());
        let [q, k, v] = [(q_shape, 1), (chunk, 2), (chunk, 3)].map(|(shape, seed)| values::<T>(shape, seed));
        let mut out = values::<T>(q_shape, 4);
        let mut cache = KvCache::contiguous(&KvShape::new(kv_heads, dim), len)?;
        for from in (0..len).step_by(chunk[2]) {
            let rows = [1, kv_heads, chunk[2].min(len - from), dim];
            cache.append(first(&k, rows)?, first(&v, rows)?)?;
        }
        self.time(|| {
            cache.truncate(0, len - 1)?;
            cache.append(first(&k, new)?, first(&v, new)?)?;
            let plan = cache.plan(mask, &facts, heads, 1)?;
            let out = ViewMut::new(&mut out, q_shape)?;
            Ok(cache.attention_into(View::new(&q, q_shape)?, &plan, &self.options, Outputs { out, lse: None })?)
        })
    }

    /// Runs `once` without timing to warm up, then repeats `once` until the time budget is used, at least `LEAST_RUNS`
    /// and at most `MOST_RUNS` times. Returns the time of each timed run.
    fn time(&self, mut once: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
        once()?;
        let (mut times, begin) = (Vec::new(), Instant::now());
        while times.len() < LEAST_RUNS || times.len() < MOST_RUNS && begin.elapsed() < self.budget {
            let start = Instant::now();
            once()?;
            times.push(start.elapsed());
        }
        Ok(times)
    }
}

impl Case {
    /// Returns two shapes `[batch, heads, length, head_dim]`: the shape of the queries, then the shape of the keys.
    fn shapes(&self) -> [[usize; 4]; 2] {
        [[1, self.heads, self.q_len(), self.dim], [1, self.kv_heads, self.len, self.dim]]
    }

    /// Returns the number of computed cells divided by the number of allowed cells. For the forward pass and for decode
    /// steps, the cells of a tile that the kernels skip are not counted as computed. For the backward pass, all cells
    /// of a tile are counted.
    fn computed_per_allowed(&self, plan: &Plan, stats: &Stats) -> Result<f64> {
        Ok(match self.op {
            Op::Backward => stats.computed_per_allowed,
            _ if stats.allowed == 0 => 0.0,
            _ => computed_cells(plan, Isa::choose(None)?, self.dtype) as f64 / stats.allowed as f64,
        })
    }

    /// Returns the minimum arithmetic and memory traffic of the case. `stats` are the statistics of the plan of the
    /// case.
    fn work(&self, stats: &Stats) -> Work {
        let pairs = stats.allowed as f64;
        // Rows of head_dim numbers that are read or written per query, and per key.
        let (products, by_query, by_key) = match self.op {
            Op::Forward | Op::Decode => (2, 2, 2),
            Op::Backward => (5, 4, 4),
        };
        let keys = match self.op {
            // The heads of a group share the keys; only allowed keys are read.
            Op::Decode => pairs / self.heads as f64,
            _ => self.len as f64,
        };
        let rows = (by_query * self.heads * self.q_len()) as f64 + (by_key * self.kv_heads) as f64 * keys;
        Work {
            flop: 2.0 * f64::from(products) * self.dim as f64 * pairs,
            weights: pairs,
            bytes: rows * (self.dim * self.dtype.size()) as f64,
        }
    }
}

/// Returns a view of the first elements of `values`, with the shape `shape`.
fn first<T: Element>(values: &[T], shape: [usize; 4]) -> Result<View<'_, T>> {
    Ok(View::new(&values[..shape.iter().product()], shape)?)
}

/// Returns test values between -2 and 2 for an array of shape `shape`. `seed` determines the values. The sequence of
/// values repeats only after a long period.
fn values<T: Element>(shape: [usize; 4], seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..shape.iter().product()).map(|_| T::from_f32(next())).collect()
}
