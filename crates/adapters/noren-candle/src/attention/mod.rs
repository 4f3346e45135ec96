//! [`attention`]: masked attention as an operation of candle, with a backward pass.

mod carry;
mod masks;
pub(crate) mod op;
mod options;
pub(crate) mod storage;

pub use masks::{
    array_from_additive, array_from_drop, array_from_keep, facts_from_keep, to_additive, to_drop, to_keep,
};
pub use options::{Bias, Options};

use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use noren::{Inputs, Plan};
use op::{AttentionOp, Operation};
use std::sync::Arc;
use storage::{by_type, views};

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
    Ok(q.apply_op3(k, &v, Operation(op))?.transpose(1, 2)?)
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
    let (owned, held) = (options.own()?, [q, k].map(Tensor::storage_and_layout));
    let options = owned.borrow()?;
    let mut weights = Vec::new();
    by_type!(q, T => {
        let [q, k] = views::<T, _, _>(&held)?;
        for (b, head) in (0..batch).flat_map(|b| (0..heads).map(move |head| (b, head))) {
            weights.extend(noren::attention_weights(&Inputs { q, k, v: k }, plan, &options, [b, head], 0..q_len)?);
        }
        Ok(())
    })?;
    Ok(Tensor::from_vec(weights, (batch, heads, q_len, k.dim(2)?), q.device())?)
}

/// Returns the scores of one batch row and head, after scale, softcap and bias and before the mask, as `[query][key]`,
/// for the first `len` queries and the first `len` keys. `q` and `k` are the tensors of [`attention`].
///
/// This function is for inspection: it computes in `f64` and has no gradients.
///
/// # Errors
/// Returns the errors of [`attention`], and an error if there is no such batch row or head.
pub fn attention_scores(
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
    let (owned, held) = (options.own()?, [q, k].map(Tensor::storage_and_layout));
    let options = owned.borrow()?;
    by_type!(q, T => {
        let [q, k] = views::<T, _, _>(&held)?;
        let row = |i| {
            let mut scores = noren::reference::scores(&Inputs { q, k, v: k }, plan, &options, [batch, head, i]);
            scores.truncate(len);
            scores
        };
        Ok((0..len.min(q_len)).map(row).collect())
    })
}

/// Returns the plan of a mask for [`attention`]. Layers can share the plan.
///
/// # Errors
/// Returns the errors of [`noren::Mask::bind`].
pub fn plan(mask: &noren::Mask, shape: &noren::Shape, facts: &noren::Facts) -> Result<Arc<Plan>> {
    Ok(Arc::new(mask.bind(shape, facts)?.plan()))
}
