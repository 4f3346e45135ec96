//! [`attention`]: masked attention as an operation of candle, with a backward pass.

mod carry;
mod masks;
mod op;
mod options;
pub(crate) mod storage;

pub(crate) use masks::keep_rows;
pub use masks::{
    array_from_additive, array_from_drop, array_from_keep, facts_from_keep, to_additive, to_drop, to_keep,
};
pub(crate) use options::Owned;
pub use options::{Bias, Options};

use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use noren::Plan;
use op::AttentionOp;
use std::sync::Arc;
use storage::{Kind, with_views};

/// Computes masked attention: `softmax(scale * q k^T + ..., over the keys that plan allows) v`.
///
/// `q` is `[batch, heads, q_len, head_dim]`, `k` is `[batch, kv_heads, kv_len, head_dim]` and `v` is
/// `[batch, kv_heads, kv_len, v_dim]`. All three have the same type, `f32`, `bf16` or `f16`, and any strides: nothing
/// is copied. The result is `[batch, heads, q_len, v_dim]`, a view of memory with the order
/// `[batch, q_len, heads, v_dim]`. `transpose(1, 2)` and a reshape therefore join the heads without a copy.
///
/// Gradients flow to `q`, `k` and `v`, and to the tensors of `options` that need a gradient. For the backward pass, the
/// forward pass keeps one number for each row (the log-sum-exp), but no matrix of weights. The guarantees of
/// [`noren::attention()`] hold, and the results have the same bits.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use noren_candle::{Options, attention, plan};
/// use noren::{Facts, Shape, atoms};
///
/// let plan = plan(&atoms::causal(), &Shape::square(5).heads(4).kv_heads(2), &Facts::new())?;
/// let q = Var::randn(0f32, 1., (1, 4, 5, 8), &Device::Cpu)?;
/// let kv = Tensor::randn(0f32, 1., (1, 2, 5, 8), &Device::Cpu)?;
/// let out = attention(&q, &kv, &kv, &plan, &Options::default())?;
/// let gradients = out.sqr()?.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&q).unwrap().dims(), [1, 4, 5, 8]);
/// # Ok::<(), noren_candle::Error>(())
/// ```
///
/// # Errors
/// Returns an error for shapes that do not fit the plan, for other types, for tensors that are not on the CPU, and for invalid
/// options.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, plan: &Arc<Plan>, options: &Options) -> Result<Tensor> {
    for (name, tensor) in [("q", q), ("k", k), ("v", v)] {
        if !matches!(tensor.dtype(), DType::F32 | DType::BF16 | DType::F16) || tensor.dtype() != q.dtype() {
            return Err(Error::tensor(name, tensor, "q, k and v must all be f32, bf16 or f16: convert with to_dtype"));
        }
        if tensor.rank() != 4 {
            return Err(Error::tensor(name, tensor, "give a tensor of shape [batch, heads, length, head_dim]"));
        }
    }
    let (v, op) = AttentionOp::new([q, k, v], plan, options)?;
    Ok(q.apply_op3(k, &v, op)?.transpose(1, 2)?)
}

/// Returns the attention probabilities of all batch rows and heads, `[batch, heads, q_len, kv_len]` of `f32`. A cell
/// that the plan does not allow has the probability 0.
///
/// This function is for inspection. It computes row by row in `f64`, needs time and memory proportional to
/// `q_len * kv_len`, and has no gradients.
///
/// # Errors
/// Returns the errors of [`attention`].
pub fn attention_weights(q: &Tensor, k: &Tensor, plan: &Plan, options: &Options) -> Result<Tensor> {
    let (batch, heads, q_len, _) = q.dims4()?;
    let owned = options.own()?;
    let weights = with_views([q, k, k], WeightsOf { plan, options: &owned, shape: [batch, heads, q_len] })??;
    Ok(Tensor::from_vec(weights, (batch, heads, q_len, k.dim(2)?), q.device())?)
}

/// Computes [`noren::attention_weights`] for every batch row and head. The computation is generic over the number type
/// of the tensors.
struct WeightsOf<'a> {
    plan: &'a Plan,
    options: &'a options::Owned,
    shape: [usize; 3],
}

impl Kind for WeightsOf<'_> {
    type Result = Result<Vec<f32>>;

    fn call<T: storage::Stored>(self, [q, k, v]: [noren::View<'_, T>; 3]) -> Self::Result {
        let [batch, heads, q_len] = self.shape;
        let (inputs, options) = (noren::Inputs { q, k, v }, self.options.borrow()?);
        let mut all = Vec::new();
        for b in 0..batch {
            for head in 0..heads {
                all.extend(noren::attention_weights(&inputs, self.plan, &options, [b, head], 0..q_len)?);
            }
        }
        Ok(all)
    }
}

/// Returns the scores of one batch row and head before the mask is applied, as `[query][key]`, for the first `len`
/// queries and the first `len` keys.
pub(crate) fn attention_scores(
    [q, k]: [&Tensor; 2],
    plan: &Plan,
    options: &Options,
    [batch, head]: [usize; 2],
    len: usize,
) -> Result<Vec<Vec<f64>>> {
    let (batches, heads, q_len, _) = q.dims4()?;
    for (name, given, end, what) in [("batch", batch, batches, "batch rows"), ("head", head, heads, "heads")] {
        if given >= end {
            let expected = format!("the attention has only {end} {what}, counted from 0");
            return Err(Error::Input { name: name.into(), given: given.to_string(), expected });
        }
    }
    let owned = options.own()?;
    with_views([q, k, k], ScoresOf { plan, options: &owned, place: [batch, head], len: [len.min(q_len), len] })?
}

/// Computes [`noren::reference::scores`] for the batch row and head in `place`: the first `len[0]` queries and the
/// first `len[1]` keys. The computation is generic over the number type of the tensors.
struct ScoresOf<'a> {
    plan: &'a Plan,
    options: &'a options::Owned,
    place: [usize; 2],
    len: [usize; 2],
}

impl Kind for ScoresOf<'_> {
    type Result = Result<Vec<Vec<f64>>>;

    fn call<T: storage::Stored>(self, [q, k, v]: [noren::View<'_, T>; 3]) -> Self::Result {
        let (inputs, options) = (noren::Inputs { q, k, v }, self.options.borrow()?);
        let ([batch, head], [queries, keys]) = (self.place, self.len);
        let row = |i| {
            let mut scores = noren::reference::scores(&inputs, self.plan, &options, [batch, head, i]);
            scores.truncate(keys);
            scores
        };
        Ok((0..queries).map(row).collect())
    }
}

/// Returns the plan of a mask for [`attention`]. Layers can share the plan.
///
/// # Errors
/// Returns the errors of [`noren::Mask::bind`].
pub fn plan(mask: &noren::Mask, shape: &noren::Shape, facts: &noren::Facts) -> Result<Arc<Plan>> {
    Ok(Arc::new(mask.bind(shape, facts)?.plan()))
}
