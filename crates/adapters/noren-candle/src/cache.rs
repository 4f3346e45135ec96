//! [`KvCache`]: the keys and values of earlier tokens, for decoding over tensors.

use crate::attention::Options;
use crate::attention::storage::{Stored, by_token, views};
use crate::error::Result;
use candle_core::Tensor;
use noren::{Budget, Facts, Mask, Outputs, Queries, StepPlan, bf16, f16};

/// The keys and values of earlier tokens, for decoding over tensors: a [`noren::KvCache`] of `f32`, `bf16` or `f16`. The
/// cache of noren defines the form (contiguous, rotating or paged), and can remove tokens.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use noren::{Facts, KvShape, Queries, atoms::sliding};
/// use noren_candle::{KvCache, Options};
///
/// // 2 key-value heads of 8 numbers, room for 64 tokens
/// let mut cache = KvCache::F32(noren::KvCache::contiguous(&KvShape::new(2, 8), 64)?);
/// let one = Queries::Each(1);
/// for _ in 0..3 {
///     let q = Tensor::randn(0f32, 1., (1, 4, 1, 8), &Device::Cpu)?; // one new token
///     let kv = Tensor::randn(0f32, 1., (1, 2, 1, 8), &Device::Cpu)?;
///     cache.append(&kv, &kv, &one)?;
///     let plan = cache.plan(&sliding(4), &Facts::new(), 4, &one)?;
///     assert_eq!(cache.attention(&q, &plan, &Options::default())?.dims(), [1, 4, 1, 8]);
/// }
/// # Ok::<(), noren_candle::Error>(())
/// ```
#[derive(Debug)]
pub enum KvCache {
    /// A cache of `f32`.
    F32(noren::KvCache<f32>),
    /// A cache of `bf16`.
    Bf16(noren::KvCache<bf16>),
    /// A cache of `f16`.
    F16(noren::KvCache<f16>),
}

macro_rules! each {
    ($any:expr, $cache:ident => $call:expr) => {
        match $any {
            KvCache::F32($cache) => $call,
            KvCache::Bf16($cache) => $call,
            KvCache::F16($cache) => $call,
        }
    };
}

impl KvCache {
    /// Returns the size of the cached keys and values in bytes.
    pub fn bytes(&self) -> usize {
        each!(self, cache => cache.bytes())
    }

    /// Appends the keys `k` and values `v` of new tokens. The tensors are `[sequences, kv_heads, new, head_dim]` for
    /// [`Queries::Each`], and `[1, kv_heads, total, head_dim]` for [`Queries::Ragged`].
    ///
    /// # Errors
    /// Returns the errors of [`noren::KvCache::append`], and an error for tensors of another type than the cache, or
    /// that are not on the CPU.
    pub fn append(&mut self, k: &Tensor, v: &Tensor, new: &Queries) -> Result<()> {
        fn append<T: Stored>(cache: &mut noren::KvCache<T>, k: &Tensor, v: &Tensor, new: &Queries) -> Result<()> {
            let held = [k, v].map(Tensor::storage_and_layout);
            let [k, v] = views(&held)?;
            match new {
                Queries::Each(_) => cache.append(k, v)?,
                Queries::Ragged(starts) => cache.append_ragged(k, v, starts)?,
            }
            Ok(())
        }
        each!(self, cache => append(cache, k, v, new))
    }

    /// Plans a step in which the tokens `new` are queries of `heads` heads ([`noren::KvCache::plan`]).
    ///
    /// # Errors
    /// Returns the errors of [`noren::KvCache::plan`].
    pub fn plan(&self, mask: &Mask, facts: &Facts, heads: usize, new: &Queries) -> Result<StepPlan> {
        Ok(each!(self, cache => cache.plan_within(mask, facts, heads, new.clone(), &Budget::unlimited()))?)
    }

    /// Returns the attention of the queries `q`, `[sequences, heads, new, head_dim]`, or `[1, heads, total, head_dim]`
    /// for a ragged plan. The result is a view of memory with the order `[sequences, new, heads, v_dim]`. It has no
    /// gradients.
    ///
    /// # Errors
    /// Returns the errors of [`noren::KvCache::attention`], and the errors of [`append`](Self::append) for `q`.
    pub fn attention(&self, q: &Tensor, plan: &StepPlan, options: &Options) -> Result<Tensor> {
        fn attention<T: Stored>(
            cache: &noren::KvCache<T>,
            q: &Tensor,
            plan: &StepPlan,
            options: &Options,
        ) -> Result<Tensor> {
            let shape @ [batch, heads, len, width] = cache.out_shape(plan);
            let mut out = vec![T::from_f32(0.0); shape.iter().product()];
            let outputs = Outputs { out: by_token(&mut out, shape)?, lse: None };
            let held = [q.storage_and_layout()];
            let [view] = views(&held)?;
            cache.attention_into(view, plan, &options.own()?.borrow()?, outputs)?;
            Ok(Tensor::from_vec(out, (batch, len, heads, width), q.device())?.transpose(1, 2)?)
        }
        each!(self, cache => attention(cache, q, plan, options))
    }
}
