//! The forward and backward passes of [`Varlen`]: one pass over each sequence, in parallel.

use super::call::{Prepared, Varlen, VarlenOutput};
use super::planner::Planner;
use super::sequences::SequenceRows;
use crate::attention::{Run, check_outputs, thread_count};
use crate::backward::{SavedRows, check_gradients, check_saved_shapes};
use crate::inputs::options::Cancel;
use crate::kernel::arrays::rows::SharedRows;
use crate::kernel::backward::Wanted;
use crate::kernel::threads::{on_threads, worth_threads};
use crate::{Element, Error, GradientsMut, Inputs, Isa, Outputs, Saved, View, ViewMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The methods that compute the forward and the backward pass. The arrays have four dimensions: `[1, heads, tokens,
/// head_dim]` for packed sequences ([`packed`](super::packed) makes such a view), and `[batch, heads, len, head_dim]`
/// for padded sequences.
impl Varlen<'_> {
    /// Computes the attention of all sequences.
    ///
    /// # Errors
    /// Returns the errors of [`forward_into`](Self::forward_into).
    pub fn forward<T: Element>(&self, planner: &Planner, inputs: &Inputs<'_, T>) -> Result<VarlenOutput<T>, Error> {
        let prepared = self.prepare(planner, inputs)?;
        let shape @ [batch, heads, q_len, v_dim] = prepared.shape;
        let mut lse = vec![0.0; batch * heads * q_len];
        let mut out = vec![T::from_f32(0.0); lse.len() * v_dim];
        let width = v_dim as isize;
        let (head, token) = match self.is_packed() {
            true => (width, heads as isize * width),
            false => (q_len as isize * width, width),
        };
        let row = (heads * q_len) as isize * width;
        let view = ViewMut::strided(&mut out, shape, [row, head, token, 1], 0)?;
        self.compute(&prepared, inputs, Outputs { out: view, lse: Some(&mut lse) })?;
        Ok(VarlenOutput { out, lse })
    }

    /// Computes the attention of all sequences and writes the outputs to the caller's memory. Every row is written: for
    /// a query that reads no key, or belongs to no sequence, the output is 0 and the log-sum-exp is minus infinity.
    ///
    /// # Errors
    /// Returns an error if arrays, outputs or arguments do not fit each other, if the sequences are not inside the
    /// arrays, or if the mask does not fit a sequence. Returns [`Error::Cancelled`] if the call was cancelled.
    pub fn forward_into<T: Element>(
        &self,
        planner: &Planner,
        inputs: &Inputs<'_, T>,
        outputs: Outputs<'_, T>,
    ) -> Result<(), Error> {
        let prepared = self.prepare(planner, inputs)?;
        check_outputs(&outputs, prepared.shape)?;
        self.compute(&prepared, inputs, outputs)
    }

    fn compute<T: Element>(
        &self,
        prepared: &Prepared<'_>,
        inputs: &Inputs<'_, T>,
        Outputs { mut out, lse }: Outputs<'_, T>,
    ) -> Result<(), Error> {
        let [batch, heads, q_len, _] = prepared.shape;
        let mut lse = lse.map(|lse| ViewMut::new(lse, [batch, heads, q_len, 1])).transpose()?;
        let idle = self.sequences.rows.iter().zip(&prepared.plans).filter(|(_, plan)| plan.is_none());
        let idle = idle.map(|(rows, _)| (rows.batch, rows.q.clone()));
        for (batch, rows) in idle.chain(self.sequences.unused(batch, true, q_len)) {
            out.fill_rows(batch, rows.clone(), T::from_f32(0.0));
            if let Some(lse) = &mut lse {
                lse.fill_rows(batch, rows, f32::NEG_INFINITY);
            }
        }
        let (out, lse) = (SharedRows::of(out), lse.map(SharedRows::of));
        let options = prepared.options(0);
        let (isa, cancel) = (Isa::choose(options.isa)?, Cancel::new(options));
        each(thread_count(options), &prepared.costs(inputs), |i, threads| {
            let Some(ready) = &prepared.plans[i] else { return };
            let rows @ SequenceRows { batch, q, .. } = &self.sequences.rows[i];
            let results = (out.narrow(*batch, q.clone()), lse.as_ref().map(|lse| lse.narrow(*batch, q.clone())));
            let run = Run { plan: &ready.plan, options: prepared.options(i), isa, threads, cancel: &cancel };
            run.forward(&rows.of(inputs), &ready.jobs, results);
        });
        cancel.finished()
    }

    /// Computes the gradients of `sum(out * dout)` and writes them to the caller's memory, as
    /// [`attention_backward_into`](crate::attention_backward_into) does. `saved` has the output of the forward pass,
    /// the gradient of the output (both in the layout of the queries), and the log-sum-exps as
    /// [`forward_into`](Self::forward_into) writes them. Every element of the gradients is written. The gradients of
    /// keys and values that no query reads, and of rows that belong to no sequence, are 0.
    ///
    /// ```
    /// use noren::varlen::{Planner, Sequences, Varlen, packed, packed_mut};
    /// use noren::{GradientsMut, Inputs, Saved};
    ///
    /// let (planner, shape) = (Planner::default(), [5, 1, 1]); // [tokens, heads, head_dim]
    /// let (x, ones) = ([0.5f32, -1.0, 2.0, 1.0, 0.0], [1.0; 5]);
    /// let x = packed(&x, shape)?;
    /// let inputs = Inputs { q: x, k: x, v: x };
    /// let call = Varlen::new(Sequences::packed(&[0, 3, 5], &[0, 3, 5])?).causal(true);
    /// let forward = call.forward(&planner, &inputs)?;
    ///
    /// let saved = Saved { out: packed(&forward.out, shape)?, lse: &forward.lse, dout: packed(&ones, shape)? };
    /// let (mut dq, mut dk, mut dv) = ([0.0; 5], [0.0; 5], [0.0; 5]);
    /// let [dq, dk, dv_view] = [&mut dq, &mut dk, &mut dv].map(|x| packed_mut(x, shape));
    /// call.backward_into(&planner, &inputs, &saved, GradientsMut::new(dq?, dk?, dv_view?))?;
    /// assert!((dv.iter().sum::<f32>() - 5.0).abs() < 1e-6); // the weights of each of the five queries sum to 1
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`forward_into`](Self::forward_into), and an error if `saved` or a gradient has a wrong
    /// shape. Returns an error if the gradient of a bias or of soft weights is requested: a `Varlen` has neither.
    pub fn backward_into<T: Element>(
        &self,
        planner: &Planner,
        inputs: &Inputs<'_, T>,
        saved: &Saved<'_, T>,
        gradients: GradientsMut<'_, T>,
    ) -> Result<(), Error> {
        let prepared = self.prepare(planner, inputs)?;
        let [batch, heads, q_len, _] = prepared.shape;
        let kv_len = inputs.k.shape()[2];
        check_saved_shapes(saved, prepared.shape)?;
        check_gradients(inputs, prepared.options(0), &gradients)?;
        let lse = View::new(saved.lse, [batch, heads, q_len, 1])?;
        let GradientsMut { mut dq, mut dk, mut dv, sinks, .. } = gradients;
        let zero = T::from_f32(0.0);
        let idle = self.sequences.rows.iter().zip(&prepared.plans).filter(|(_, plan)| plan.is_none());
        for (rows, _) in idle {
            dq.fill_rows(rows.batch, rows.q.clone(), zero);
            dk.fill_rows(rows.batch, rows.k.clone(), zero);
            dv.fill_rows(rows.batch, rows.k.clone(), zero);
        }
        for (batch, rows) in self.sequences.unused(batch, true, q_len) {
            dq.fill_rows(batch, rows, zero);
        }
        for (batch, rows) in self.sequences.unused(batch, false, kv_len) {
            dk.fill_rows(batch, rows.clone(), zero);
            dv.fill_rows(batch, rows, zero);
        }
        let [dq, dk, dv] = [dq, dk, dv].map(SharedRows::of);
        let options = prepared.options(0);
        let (isa, cancel) = (Isa::choose(options.isa)?, Cancel::new(options));
        // The gradients of sinks of each sequence, to be added in the order of the sequences
        let of_sinks: Vec<Mutex<Vec<f32>>> = match sinks {
            None => Vec::new(),
            Some(_) => self.sequences.rows.iter().map(|_| Mutex::default()).collect(),
        };
        let failed = Mutex::new(None);
        each(thread_count(options), &prepared.costs(inputs), |i, threads| {
            let Some(ready) = &prepared.plans[i] else { return };
            let rows @ SequenceRows { batch, q, k } = &self.sequences.rows[i];
            let mut of_sequence = vec![0.0; if of_sinks.is_empty() { 0 } else { heads }];
            let wanted = Wanted { arrays: Vec::new(), sinks: (!of_sinks.is_empty()).then_some(&mut of_sequence[..]) };
            let saved = SavedRows {
                out: saved.out.narrow(*batch, q.clone()),
                lse: lse.narrow(*batch, q.clone()),
                dout: saved.dout.narrow(*batch, q.clone()),
            };
            let gradients = [dq.narrow(*batch, q.clone()), dk.narrow(*batch, k.clone()), dv.narrow(*batch, k.clone())];
            let run = Run { plan: ready.in_place(), options: prepared.options(i), isa, threads, cancel: &cancel };
            let result = run.backward(&rows.of(inputs), &saved, gradients, wanted);
            if let Err(error) = result {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
            if let Some(sum) = of_sinks.get(i) {
                *sum.lock().unwrap_or_else(PoisonError::into_inner) = of_sequence;
            }
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        if let Some(sinks) = sinks {
            let mut sums = vec![0.0f64; sinks.len()];
            for of_sequence in of_sinks {
                let of_sequence = of_sequence.into_inner().unwrap_or_else(PoisonError::into_inner);
                sums.iter_mut().zip(of_sequence).for_each(|(sum, x)| *sum += f64::from(x));
            }
            sinks.iter_mut().zip(sums).for_each(|(sink, sum)| *sink = sum as f32);
        }
        cancel.finished()
    }
}

impl Prepared<'_> {
    /// Returns the cost of each sequence in multiplications; 0 for a sequence without a plan.
    fn costs<T: Element>(&self, inputs: &Inputs<'_, T>) -> Vec<u64> {
        let head_dim = inputs.q.shape()[3] as u64;
        let cost = |ready: &std::sync::Arc<super::planner::Ready>| ready.jobs.cost().saturating_mul(head_dim);
        self.plans.iter().map(|plan| plan.as_ref().map_or(0, cost)).collect()
    }
}

impl SequenceRows {
    /// Returns views of the rows of one sequence in the arrays `q`, `k` and `v` of the call.
    fn of<'a, T: Element>(&self, Inputs { q, k, v }: &Inputs<'a, T>) -> Inputs<'a, T> {
        let SequenceRows { batch, q: queries, k: keys } = self;
        Inputs {
            q: q.narrow(*batch, queries.clone()),
            k: k.narrow(*batch, keys.clone()),
            v: v.narrow(*batch, keys.clone()),
        }
    }
}

/// Calls `run(i, n)` for each sequence `i`; `n` is the number of threads that the call may use. All calls together use
/// at most `threads` threads. `costs` has the number of multiplications of each sequence. First, all threads together
/// compute the long sequences, one after another. Then each thread computes short sequences alone, one after another.
fn each(threads: usize, costs: &[u64], run: impl Fn(usize, usize) + Sync) {
    let total = costs.iter().fold(0u64, |total, cost| total.saturating_add(*cost));
    let threads = worth_threads(threads, total);
    if threads <= 1 || costs.len() == 1 {
        return (0..costs.len()).for_each(|i| run(i, threads));
    }
    let is_long = |cost: u64| {
        let share = total / (2 * threads as u64);
        cost > share && worth_threads(threads, cost) == threads
    };
    let mut short = Vec::with_capacity(costs.len());
    for (i, cost) in costs.iter().enumerate() {
        match is_long(*cost) {
            true => run(i, threads),
            false => short.push(i),
        }
    }
    short.sort_by_key(|i| std::cmp::Reverse(costs[*i]));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(i) = short.get(next.fetch_add(1, Ordering::Relaxed)) {
            run(*i, 1);
        }
    };
    on_threads(threads.min(short.len()), work);
}
