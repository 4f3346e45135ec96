//! [`StepPlan`]: the plan of a decoder step, and the attention of the step.

use super::{Form, KvCache, refuse};
use crate::inputs::options::Cancel;
use crate::kernel::arrays::rows::{Rows, SharedRows};
use crate::kernel::forward::{Forward, Jobs, Keys};
use crate::kernel::keys::store::{Ring, StoredHead};
use crate::kernel::{math::scores::Modifiers, tile::Context};
use crate::{Attention, Element, Error, Options, Outputs, View, ViewMut};
use noren_mask::{Budget, Facts, Mask, Plan, PlanOptions, Reorder, Shape, Side, atoms};
use std::borrow::Cow;
use std::ops::Range;

/// The plan of one step: the keys that the new tokens of each sequence read.
///
/// [`KvCache::plan`] makes a step plan in microseconds, after the new tokens were appended. A step plan is valid for
/// every cache with the same form and the same numbers of tokens, such as the caches of other layers. After more tokens
/// are appended to a cache or removed from it, the step plan is no longer valid for this cache.
#[derive(Clone, Debug)]
pub struct StepPlan {
    plan: Plan,
    new: Queries,
    held: Vec<Held>,
}

/// The number of queries (new tokens) of each sequence in a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Queries {
    /// The number of queries `new`, equal for every sequence. Queries are `[sequences, heads, new, head_dim]`.
    Each(usize),
    /// Numbers of queries that may differ between sequences, given as the list `cu_seqlens`: sequence `b` has the
    /// queries `cu_seqlens[b]..cu_seqlens[b + 1]`. Queries are `[1, heads, total, head_dim]`.
    Ragged(Vec<usize>),
}

impl Queries {
    /// Returns the number of queries of sequence `b`.
    fn count(&self, b: usize) -> usize {
        match self {
            Queries::Each(new) => *new,
            Queries::Ragged(starts) => starts[b + 1] - starts[b],
        }
    }
}

/// The keys of one sequence that the queries of a step may read. `len` is the number of tokens of the sequence, and
/// `ring` maps the index of a key in the plan to a slot in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    len: usize,
    /// The lowest position that the queries of the step read, apart from the sink tokens.
    first: usize,
    ring: Ring,
}

impl Held {
    /// Returns the number of key indices that the plan has for the sequence. In a rotating cache, some indices between
    /// those of the sink tokens and those of the window have no key.
    fn kv_len(&self) -> usize {
        if self.len <= self.ring.sink_tokens { self.len } else { self.ring.kept + self.len - self.ring.first }
    }

    /// Returns the ranges of key indices that have a key: the range of the sink tokens, then the range of the window
    /// (the last tokens). Each entry is `(range of indices, position in the sequence of the first key)`. Empty ranges
    /// are left out.
    fn runs(&self) -> Vec<(Range<usize>, i64)> {
        let Held { len, first, ring } = *self;
        let index = |position: usize| ring.kept + position - ring.first;
        let sinks = (0..ring.sink_tokens.min(len), 0);
        let window = (index(first)..index(len.max(first)), first as i64);
        [sinks, window].into_iter().filter(|(keys, _)| !keys.is_empty()).collect()
    }
}

impl StepPlan {
    /// Returns the plan for attention. The batch rows of the plan are the sequences. The number of queries of the plan
    /// is the maximum number of new tokens over the sequences. The keys of the plan are those that the step reads from
    /// the cache.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the position in the sequence of the key with index `key` in the plan, or a negative number if the
    /// sequence has no such key. Arrays, for example of biases, have the entry of a key at its index in the plan, not
    /// at its position.
    pub fn key_position(&self, sequence: usize, key: usize) -> i64 {
        self.plan.key_position(sequence, key)
    }
}

impl<T: Element> KvCache<T> {
    /// Plans a step in which the last `new` tokens of every sequence are queries of `heads` heads.
    ///
    /// `facts` are the data to which `mask` is bound. They describe the current state of the sequences: documents and
    /// clearance levels of all tokens so far, and the lengths of padded rows. The cache itself gives the positions of
    /// keys.
    ///
    /// ```
    /// use noren::{Facts, KvCache, KvShape, Mask, Options, View};
    /// let mut layers = [(); 2].map(|_| KvCache::<f32>::contiguous(&KvShape::new(2, 4), 64).unwrap());
    /// let prompt = [0.25; 2 * 5 * 4];
    /// let (x, mask) = (View::new(&prompt, [1, 2, 5, 4])?, "sliding(3)".parse::<Mask>().unwrap());
    /// layers.iter_mut().try_for_each(|layer| layer.append(x, x))?;
    /// let plan = layers[0].plan(&mask, &Facts::new(), 2, 5)?;
    /// for layer in &layers {
    ///     let out = layer.attention(x, &plan, &Options::default())?;
    ///     assert_eq!(out.shape, [1, 2, 5, 4]);
    /// }
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if there are more queries than a sequence has tokens, and the errors of [`Mask::bind`].
    pub fn plan(&self, mask: &Mask, facts: &Facts, heads: usize, new: usize) -> Result<StepPlan, Error> {
        self.plan_within(mask, facts, heads, Queries::Each(new), &Budget::unlimited())
    }

    /// Plans a step as [`plan`](Self::plan) does, for sequences with different numbers of queries. The queries of
    /// sequence `b` are the tokens `cu_seqlens[b]..cu_seqlens[b + 1]` of all new tokens. The range may be empty.
    ///
    /// # Errors
    /// Returns the errors of [`plan`](Self::plan), and an error if `cu_seqlens` does not ascend from 0 or does not
    /// have one entry more than the number of sequences.
    pub fn plan_ragged(
        &self,
        mask: &Mask,
        facts: &Facts,
        heads: usize,
        cu_seqlens: &[usize],
    ) -> Result<StepPlan, Error> {
        self.plan_within(mask, facts, heads, Queries::Ragged(cu_seqlens.to_vec()), &Budget::unlimited())
    }

    /// Plans a step as [`plan`](Self::plan) and [`plan_ragged`](Self::plan_ragged) do, with limits on the work of
    /// planning. The watch function of `budget` is called during planning and can cancel the planning.
    ///
    /// # Errors
    /// Returns the errors of [`plan`](Self::plan), and an error if planning exceeds `budget` or if the watch function
    /// cancels.
    pub fn plan_within(
        &self,
        mask: &Mask,
        facts: &Facts,
        heads: usize,
        new: Queries,
        budget: &Budget<'_>,
    ) -> Result<StepPlan, Error> {
        if let Queries::Ragged(cu_seqlens) = &new {
            self.check_starts(cu_seqlens, None)?;
        }
        let count = self.sequences.len();
        let held = (0..count).map(|b| self.held(b, new.count(b))).collect::<Result<Vec<_>, _>>()?;
        let q_len = (0..count).map(|b| new.count(b)).max().unwrap_or(0);
        let kv_len = held.iter().map(Held::kv_len).max().unwrap_or(0);
        if q_len == 0 || kv_len == 0 {
            return refuse(
                "the step has no queries: append tokens, and plan at least one of them as a query".to_owned(),
            );
        }
        let offsets: Vec<i64> = held.iter().enumerate().map(|(b, held)| (held.len - new.count(b)) as i64).collect();
        let shape = Shape::new(q_len, kv_len, 0).batch(count).heads(heads).kv_heads(self.shape.kv_heads);
        let shape = shape.query_offsets(offsets);
        let (mask, facts) = (self.windowed(mask, q_len), self.counted(facts, &new));
        let runs: Vec<_> = held.iter().map(Held::runs).collect();
        let bound = match runs.iter().all(|runs| *runs == [(0..kv_len, 0)]) {
            true => mask.bind(&shape, &facts)?,
            false => mask.bind(&shape, &facts.into_owned().position_runs(runs))?,
        };
        // Keys are read in place, in the order of positions.
        let plan = bound.plan_within(&PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() }, budget)?;
        Ok(StepPlan { plan, new, held })
    }

    /// Returns the mask of a step with at most `new` queries in each sequence. In a rotating cache, the window of a
    /// query is the last tokens up to the query. The keys of the step include the window of its first query, and the
    /// returned mask hides from each later query the keys before its own window.
    fn windowed<'a>(&self, mask: &'a Mask, new: usize) -> Cow<'a, Mask> {
        match self.form {
            Form::Rotating { window, ring, .. } if new > 1 => {
                let near = atoms::window(window - 1, None);
                let shown = if ring.sink_tokens > 0 { near | atoms::keys(0..ring.sink_tokens) } else { near };
                Cow::Owned(mask.clone() & shown)
            }
            _ => Cow::Borrowed(mask),
        }
    }

    /// Returns the facts (data to which the mask is bound) of a step. Adds the numbers of queries in `new` to `facts`
    /// if they are given for each sequence, `facts` has no query lengths, and the padding is on the right.
    fn counted<'a>(&self, facts: &'a Facts, new: &Queries) -> Cow<'a, Facts> {
        match new {
            Queries::Ragged(starts) if !facts.has_query_lengths() && facts.padding_side() == Side::Right => {
                let counts: Vec<usize> = starts.windows(2).map(|w| w[1] - w[0]).collect();
                Cow::Owned(facts.clone().query_lengths(counts))
            }
            _ => Cow::Borrowed(facts),
        }
    }

    /// Returns the keys of sequence `b` that the queries of its last `new` tokens may read. Returns an error if some of
    /// these keys are overwritten.
    fn held(&self, b: usize, new: usize) -> Result<Held, Error> {
        let sequence = &self.sequences[b];
        let len = sequence.len;
        let Some(past) = len.checked_sub(new) else {
            return refuse(format!(
                "sequence {b} has {len} tokens, but the step has {new} queries: append their tokens first"
            ));
        };
        let Form::Rotating { window, mut ring, .. } = self.form else {
            return Ok(Held { len, first: 0, ring: Ring::ENDLESS });
        };
        let first = past.saturating_sub(window - 1).max(ring.sink_tokens);
        if first < len && first + ring.len < sequence.written {
            return refuse(format!(
                "the {new} queries of sequence {b} read from position {first} on, which is overwritten: make the plan before \
                 more tokens are appended"
            ));
        }
        ring.first = first / self.store.packing.group() * self.store.packing.group();
        Ok(Held { len, first, ring })
    }

    /// Runs [`plan`](Self::plan) without facts (data that some masks need, such as documents), then
    /// [`attention`](Self::attention). `q` is `[sequences, heads, new, head_dim]`.
    ///
    /// # Errors
    /// Returns the errors of [`plan`](Self::plan) and [`attention`](Self::attention).
    pub fn attend(&self, q: View<'_, T>, mask: &Mask, options: &Options<'_>) -> Result<Attention<T>, Error> {
        let [_, heads, new, _] = q.shape();
        self.attention(q, &self.plan(mask, &Facts::new(), heads, new)?, options)
    }

    /// Returns the attention of new tokens: `q` is `[sequences, heads, new, head_dim]`, or `[1, heads, total,
    /// head_dim]` for a ragged plan.
    ///
    /// # Errors
    /// Returns an error if the plan was made for a cache of another form or with other numbers of tokens, or if `q` has
    /// another shape. Returns an error if an option is invalid, or not supported with a cache, such as dropout.
    pub fn attention(&self, q: View<'_, T>, plan: &StepPlan, options: &Options<'_>) -> Result<Attention<T>, Error> {
        let shape = self.check_step(&q, plan, options)?;
        let rows = shape[..3].iter().product::<usize>();
        let mut out = vec![T::from_f32(0.0); rows * shape[3]];
        let mut lse = vec![0.0; rows];
        self.compute(q, plan, options, Outputs { out: ViewMut::new(&mut out, shape)?, lse: Some(&mut lse) })?;
        Ok(Attention { out, shape, lse })
    }

    /// Computes [`attention`](Self::attention) and writes the result to the caller's memory.
    ///
    /// # Errors
    /// Returns the errors of [`attention`](Self::attention), and [`Error::Shape`] if the memory for an output has
    /// another size than the output.
    pub fn attention_into(
        &self,
        q: View<'_, T>,
        plan: &StepPlan,
        options: &Options<'_>,
        outputs: Outputs<'_, T>,
    ) -> Result<(), Error> {
        let shape = self.check_step(&q, plan, options)?;
        crate::attention::check_outputs(&outputs, shape)?;
        self.compute(q, plan, options, outputs)
    }

    /// Returns the shape of the output of [`attention`](Self::attention): `[sequences, heads, new, v_dim]`, or
    /// `[1, heads, total, v_dim]` for a ragged plan.
    pub fn out_shape(&self, plan: &StepPlan) -> [usize; 4] {
        let (batch, rows) = match &plan.new {
            Queries::Each(new) => (self.sequences.len(), *new),
            Queries::Ragged(starts) => (1, starts.last().copied().unwrap_or(0)),
        };
        [batch, plan.plan.shape().head_count(), rows, self.shape.v_dim]
    }

    /// Returns the shape of the output, or an error if the queries, the plan or the options do not fit the cache.
    fn check_step(&self, q: &View<'_, T>, step: &StepPlan, options: &Options<'_>) -> Result<[usize; 4], Error> {
        let shape = step.plan.shape();
        for (what, made, here) in [
            ("key-value heads", shape.kv_head_count(), self.shape.kv_heads),
            ("sequences", step.held.len(), self.sequences.len()),
        ] {
            if made != here {
                return refuse(format!(
                    "the plan was made for a cache with {made} {what}, but this cache has {here} {what}: make the plan \
                     with this cache"
                ));
            }
        }
        let made: Vec<usize> = step.held.iter().map(|held| held.len).collect();
        let here: Vec<usize> = self.sequences.iter().map(|sequence| sequence.len).collect();
        if made != here {
            return refuse(format!(
                "the plan was made when sequences had {made:?} tokens, but now they have {here:?}: make a plan after appending"
            ));
        }
        for (b, held) in step.held.iter().enumerate() {
            if self.held(b, step.new.count(b))? != *held {
                return refuse(format!(
                    "the plan was made for a cache that keeps other keys of sequence {b} (its form, window or number of sink tokens \
                     differs): make the plan with this cache, or with a cache of the same form and sizes"
                ));
            }
        }
        let out = self.out_shape(step);
        let expected = [out[0], out[1], out[2], self.shape.head_dim];
        if q.shape() != expected {
            let what = match &step.new {
                Queries::Each(_) => "[sequences, heads, new, head_dim]",
                Queries::Ragged(_) => "[1, heads, total, head_dim]",
            };
            let expected = format!(
                "the queries of this plan and cache have the shape {what} = {expected:?}: give queries of this shape"
            );
            return Err(Error::Shape { name: "q", given: q.shape().to_vec(), expected });
        }
        options.check(shape)?;
        if let Some(dropout) = options.dropout {
            let problem = "attention with a cache does not support dropout: omit the option `dropout`".to_owned();
            return Err(Error::Option { name: "dropout", given: dropout.probability.to_string(), problem });
        }
        if let Some(isa) = options.isa.filter(|isa| *isa != self.isa) {
            let problem = format!(
                "the keys of the cache are stored for {}, but the option `isa` names another ISA: omit the option, or make a cache with the ISA of the option",
                self.isa
            );
            return Err(Error::Isa { given: isa.to_string(), problem });
        }
        Ok(out)
    }

    fn compute(
        &self,
        q: View<'_, T>,
        step: &StepPlan,
        options: &Options<'_>,
        outputs: Outputs<'_, T>,
    ) -> Result<(), Error> {
        let [batch, heads, rows, _] = outputs.out.shape();
        let lse = outputs.lse.map(|lse| ViewMut::new(lse, [batch, heads, rows, 1])).transpose()?;
        let plan = &step.plan;
        let jobs = Jobs::of_rows(plan, |b| step.new.count(b));
        let kv_len = plan.shape().kv_len();
        let stored = (self.sequences.iter().zip(&step.held)).flat_map(|(sequence, held)| {
            let ring = held.ring;
            (0..self.shape.kv_heads).map(move |head| StoredHead {
                store: &self.store,
                pages: &sequence.pages,
                ring,
                head,
                kv_len,
            })
        });
        let cancel = Cancel::new(options);
        let pass = Forward {
            context: Context {
                plan,
                q: Rows::of(q),
                starts: match &step.new {
                    Queries::Each(_) => None,
                    Queries::Ragged(starts) => Some(starts),
                },
                bits: (0..jobs.shared_bits).map(|_| Default::default()).collect(),
                segments: Vec::new(),
                modifiers: Modifiers::new(plan, self.shape.head_dim, options),
                out: SharedRows::of(outputs.out),
                lse: lse.map(SharedRows::of),
            },
            jobs: &jobs,
            keys: Keys::Stored(stored.collect()),
            threads: crate::attention::thread_count(options),
            cancel: &cancel,
        };
        pass.compute_on(self.isa);
        cancel.finished()
    }
}
