//! [`Pass`]: the data that all attentions in one call of a model share: plans, caches and the record for inspection.

use super::batch::Batch;
use super::cache::StackCache;
use crate::dynamic::{DynamicCall, MaskGenerator};
use crate::error::Result;
use crate::nn::Mode;
use crate::stack::Stack;
use candle_core::{DType, Tensor};
use noren::{Facts, Mask, Plan, Shape};
use noren_candle::{Options, attention, attention_scores, attention_weights};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The options of one call of a model: the mode, a record of queries, keys and values for inspection, and a generator of masks.
///
/// A call may run on a thread of the current rayon pool instead of the calling thread, which waits. With a generator, it runs
/// on the calling thread.
#[derive(Default)]
pub struct Call<'a> {
    /// The mode of the call: inference, or training with dropout.
    pub mode: Mode,
    /// A record of queries, keys and values, for inspection; `None` for no record.
    pub trace: Option<&'a mut Trace>,
    /// A generator of masks. Its masks are intersected with the model's masks; `None` for the model's masks only.
    pub generator: Option<&'a dyn MaskGenerator>,
}

/// Runs `work`, a call of a model or one step of a generation, on a thread of the current rayon pool. When a computation is
/// divided among threads, the first part then starts at once. On a thread outside the pool, for each of the many
/// computations, the thread would first wake a thread of the pool, and then sleep until the computation is finished.
///
/// If several threads outside the pool make calls at the same time, `work` of only one of them runs in the pool. The others
/// stay on their threads, because a thread of the pool that waits for a part of one call could otherwise begin another call,
/// which would delay the first one.
pub(crate) fn on_pool<R: Send>(work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            TAKEN.store(false, Ordering::Release);
        }
    }
    if rayon::current_thread_index().is_some() || TAKEN.swap(true, Ordering::Acquire) {
        return work();
    }
    let _release = Release;
    rayon::scope(|_| work())
}

impl<'a> Call<'a> {
    /// Runs `work` with these options as [`on_pool`] does, but on this thread if there is a generator, because a generator may
    /// not be usable on other threads.
    pub(crate) fn on_pool<R: Send>(self, work: impl FnOnce(Call<'a>) -> Result<R> + Send) -> Result<R> {
        let Call { mode, trace, generator } = self;
        match generator {
            None => on_pool(|| work(Call { mode, trace, generator: None })),
            generator => work(Call { mode, trace, generator }),
        }
    }
}

/// A record of the queries, keys and values in some or all layers of one call of a model. Attention weights can be
/// computed from the record after the call.
///
/// The record shares the tensors of the call. It therefore keeps these tensors in memory, but copies nothing.
#[derive(Default, Debug)]
pub struct Trace {
    layers: Option<Vec<usize>>,
    records: Vec<Record>,
}

/// The record of one attention: its plan, queries, keys and values.
#[derive(Debug)]
pub struct Record {
    /// The stack to which the attention belongs: encoder, decoder, or a decoder's attention over an encoder.
    pub stack: Stack,
    /// The index of the layer, counted from 0.
    pub layer: usize,
    /// The plan of the attention.
    pub plan: Arc<Plan>,
    /// The queries, `[batch, heads, q_len, head_dim]`, after rotary position embeddings if the model has them.
    pub queries: Tensor,
    /// The keys, `[batch, kv_heads, kv_len, head_dim]`, after rotary position embeddings if the model has them.
    pub keys: Tensor,
    /// The values, `[batch, kv_heads, kv_len, v_dim]`.
    pub values: Tensor,
    options: Options,
}

impl Record {
    /// Returns the attention probabilities of all heads, `[batch, heads, q_len, kv_len]`.
    ///
    /// # Errors
    /// Returns the errors of noren. No error is expected, because the same attention was computed before.
    pub fn weights(&self) -> Result<Tensor> {
        Ok(attention_weights(&self.queries, &self.keys, &self.plan, &self.options)?)
    }

    /// Returns the scores of one batch row and head, after scale, softcap and bias and before the mask, as
    /// `[queries][keys]`. Only the first `len` queries and the first `len` keys are returned.
    ///
    /// # Errors
    /// Returns an error if the record has no such batch row or head.
    pub fn scores(&self, [batch, head]: [usize; 2], len: usize) -> Result<Vec<Vec<f64>>> {
        Ok(attention_scores([&self.queries, &self.keys], &self.plan, &self.options, [batch, head], len)?)
    }

    /// Returns the sink of a head, a logit whose exponential is added only to the denominator of the softmax; `None` if
    /// the attention has no sinks.
    ///
    /// # Errors
    /// Returns an error if the record has no such head.
    pub fn sink(&self, head: usize) -> Result<Option<f32>> {
        let sinks = self.options.sinks.as_ref();
        Ok(sinks.map(|sinks| sinks.get(head)?.to_dtype(DType::F32)?.to_scalar()).transpose()?)
    }
}

impl Trace {
    /// Returns an empty record, in which a call of a model records every layer.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns an empty record, in which a call of a model records the layers with the indices `layers`.
    pub fn layers(layers: impl Into<Vec<usize>>) -> Self {
        Trace { layers: Some(layers.into()), records: Vec::new() }
    }

    /// Returns the recorded attentions, in the order in which they were computed.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    fn wants(&self, layer: usize) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.contains(&layer))
    }
}

/// The data that all attentions in one call of a model share: the mode, the record, and a planner or a cache for each
/// stack.
pub(crate) struct Pass<'a> {
    pub(crate) mode: Mode,
    trace: Option<&'a mut Trace>,
    ways: Vec<(Stack, Way<'a>)>,
}

/// The source of plans and keys for the layers of one kind of attention: self-attention or cross-attention. With a
/// planner, queries read only keys of the same call. With a cache, they also read keys of earlier calls.
#[allow(clippy::large_enum_variant)] // a call has two or three
enum Way<'a> {
    Planned(Planner<'a>),
    Cached(&'a mut StackCache),
}

impl<'a> Pass<'a> {
    pub(crate) fn new(call: Call<'a>) -> (Self, Option<&'a dyn MaskGenerator>) {
        let Call { mode, trace, generator } = call;
        (Pass { mode, trace, ways: Vec::new() }, generator)
    }

    /// Sets `planner` as the source of plans for the attentions of `stack`.
    pub(crate) fn planned(&mut self, stack: Stack, planner: Planner<'a>) {
        self.ways.push((stack, Way::Planned(planner)));
    }

    /// Sets the cache for the attentions of `stack`. Each attention appends its keys and values to the cache, and its
    /// queries read the cache.
    pub(crate) fn cached(&mut self, stack: Stack, cache: &'a mut StackCache) {
        self.ways.push((stack, Way::Cached(cache)));
    }

    /// Computes the attention of layer `layer` in `stack`. In training, attention weights are dropped with probability
    /// `dropout`.
    pub(crate) fn attend(
        &mut self,
        (stack, layer): (Stack, usize),
        [q, k, v]: [&Tensor; 3],
        mut options: Options,
        dropout: f32,
    ) -> Result<Tensor> {
        let site = layer as u64 * 4 + stack as u64;
        options.dropout = self.mode.at(1 << 32 | site).attention(dropout);
        let way = self.ways.iter_mut().find(|(known, _)| *known == stack);
        let (_, way) =
            way.expect("a model sets a planner or a cache for each of its stacks before it computes attention");
        match way {
            Way::Cached(cache) => cache.attend(layer, [q, k, v], &options),
            Way::Planned(planner) => {
                let plan = planner.plan(layer, q, k, &options)?;
                if let Some(trace) = self.trace.as_mut().filter(|trace| trace.wants(layer)) {
                    let (queries, keys, values) = (q.detach(), k.detach(), v.detach());
                    let options = Options { dropout: None, ..options.clone() };
                    trace.records.push(Record { stack, layer, plan: plan.clone(), queries, keys, values, options });
                }
                Ok(attention(q, k, v, &plan, &options)?)
            }
        }
    }
}

/// A planner, which makes the attention plan of each layer of a stack (all layers with one kind of attention). Layers
/// with equal masks and equal facts (data to which a mask is bound) share one plan.
pub(crate) struct Planner<'a> {
    stack: Stack,
    mask: Mask,
    shape: Shape,
    facts: Facts,
    tokens: &'a [Vec<u32>],
    generator: Option<&'a dyn MaskGenerator>,
    known: Vec<(Mask, Facts, Arc<Plan>)>,
}

impl<'a> Planner<'a> {
    /// Makes a planner for self-attention over the tokens of `batch`. The masks of `generator`, if there is one, are
    /// intersected with the mask `declared`.
    pub(crate) fn new(
        stack: Stack,
        declared: &Mask,
        batch: &'a Batch,
        shape: Shape,
        generator: Option<&'a dyn MaskGenerator>,
    ) -> Result<Self> {
        let (mask, facts) = (batch.full_mask(declared), batch.full_facts()?);
        Ok(Planner { stack, mask, shape, facts, tokens: batch.ids(), generator, known: Vec::new() })
    }

    fn plan(&mut self, layer: usize, q: &Tensor, k: &Tensor, options: &Options) -> Result<Arc<Plan>> {
        let mut mask = self.mask.at_layer(layer).simplify();
        let mut facts = std::borrow::Cow::Borrowed(&self.facts);
        if let Some(generator) = self.generator {
            let call = DynamicCall {
                stack: self.stack,
                layer,
                tokens: self.tokens,
                shape: &self.shape,
                facts: &self.facts,
                mask: &mask,
                queries: q,
                keys: k,
                scale: options.scale,
            };
            let made = generator.mask(&call)?;
            facts = std::borrow::Cow::Owned(made.facts);
            mask = (mask & made.mask.at_layer(layer)).simplify();
        }
        let found = self.known.iter().find(|(m, f, _)| *m == mask && *f == *facts).map(|(.., plan)| plan.clone());
        if let Some(plan) = found {
            return Ok(plan);
        }
        let plan = noren_candle::plan(&mask, &self.shape, &facts)?;
        self.known.push((mask, facts.into_owned(), plan.clone()));
        Ok(plan)
    }
}
