//! [`MultiHeadAttention`]: attention with linear projections before and after it.

use crate::error::{Error, Result};
use crate::nn::{Linear, Mode};
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use noren::Plan;
use noren_candle::{Options, attention, attention_weights};
use std::sync::Arc;

/// The sizes and the dropout of a [`MultiHeadAttention`].
#[derive(Clone, Debug)]
pub struct MhaConfig {
    /// The width of the input and output, a multiple of `heads`.
    pub embed_dim: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key-value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// Probability of dropout of attention weights in training.
    pub dropout: f32,
}

impl MhaConfig {
    /// Returns a configuration with one key-value head for each query head, and no dropout.
    pub fn new(embed_dim: usize, heads: usize) -> Self {
        MhaConfig { embed_dim, heads, kv_heads: heads, dropout: 0.0 }
    }

    fn check(&self) -> Result<()> {
        let MhaConfig { embed_dim, heads, kv_heads, .. } = *self;
        if heads == 0 || kv_heads == 0 || !embed_dim.is_multiple_of(heads) || !heads.is_multiple_of(kv_heads) {
            let given = format!("{embed_dim} wide, {heads} heads, {kv_heads} key-value heads");
            let expected = "the width must be a multiple of the number of heads, and the number of heads a multiple of the number of key-value heads";
            return Err(Error::input("attention", given, expected));
        }
        Ok(())
    }
}

/// Self-attention or cross-attention with linear projections. The parameters have the names of `nn.MultiheadAttention`:
/// `in_proj_weight`, `in_proj_bias`, `out_proj.weight`, `out_proj.bias`.
///
/// If there are fewer key-value heads than query heads, `in_proj_weight` has `embed_dim + 2 * kv_heads * head_dim`
/// rows. The plan defines the keys that each head may read, for example `heads(0..4: causal, 4..: sliding(8))` or a
/// dense array for each head.
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    config: MhaConfig,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
}

impl MultiHeadAttention {
    /// Makes the layer with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error if `embed_dim` is not a multiple of `heads`, if `heads` is not a multiple of `kv_heads`, or if
    /// a tensor in `vb` is missing or has another shape.
    pub fn new(config: &MhaConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        config.check()?;
        let MhaConfig { embed_dim, heads, kv_heads, .. } = *config;
        let kv_dim = embed_dim / heads * kv_heads;
        let rows = embed_dim + 2 * kv_dim;
        let bound = (6.0 / (rows + embed_dim) as f64).sqrt();
        let weight = vb.get_with_hints((rows, embed_dim), "in_proj_weight", Init::Uniform { lo: -bound, up: bound })?;
        let bias = vb.get_with_hints(rows, "in_proj_bias", Init::Const(0.0))?;
        let joined = Linear::new(weight, Some(bias));
        Ok(MultiHeadAttention {
            query: joined.part(0, embed_dim)?,
            key: joined.part(embed_dim, kv_dim)?,
            value: joined.part(embed_dim + kv_dim, kv_dim)?,
            out: Linear::load(embed_dim, embed_dim, true, &vb.pp("out_proj"))?,
            config: config.clone(),
        })
    }

    /// Returns the configuration of this layer.
    pub fn config(&self) -> &MhaConfig {
        &self.config
    }

    /// Computes attention of `x` `[batch, q_len, embed_dim]` over `memory` `[batch, kv_len, embed_dim]`. For
    /// self-attention, `memory` is `x`. The result is `[batch, q_len, embed_dim]`.
    ///
    /// # Errors
    /// Returns an error for shapes that do not fit the plan.
    pub fn forward(&self, x: &Tensor, memory: &Tensor, plan: &Arc<Plan>, mode: Mode) -> Result<Tensor> {
        let (q, k, v) = self.project(x, memory)?;
        let options = Options { dropout: mode.attention(self.config.dropout), ..Options::default() };
        self.out.forward(&join_heads(&attention(&q, &k, &v, plan, &options)?)?)
    }

    /// Returns the result of [`forward`](Self::forward) in inference, and the attention probabilities
    /// `[batch, heads, q_len, kv_len]`. The probabilities have no gradients.
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward).
    pub fn forward_with_weights(&self, x: &Tensor, memory: &Tensor, plan: &Arc<Plan>) -> Result<(Tensor, Tensor)> {
        let (q, k, v) = self.project(x, memory)?;
        let options = Options::default();
        let weights = attention_weights(&q.detach(), &k.detach(), plan, &options)?;
        Ok((self.out.forward(&join_heads(&attention(&q, &k, &v, plan, &options)?)?)?, weights))
    }

    fn project(&self, x: &Tensor, memory: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        let MhaConfig { heads, kv_heads, .. } = self.config;
        Ok((
            split_heads(&self.query.forward(x)?, heads)?,
            split_heads(&self.key.forward(memory)?, kv_heads)?,
            split_heads(&self.value.forward(memory)?, kv_heads)?,
        ))
    }
}

/// Splits the last dimension of `x` `[batch, length, heads * width]` into heads. The result is
/// `[batch, heads, length, width]`. It shares the memory of `x` if `x` is contiguous.
pub(crate) fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, len, width) = x.dims3()?;
    Ok(x.reshape((batch, len, heads, width / heads))?.transpose(1, 2)?)
}

/// Joins the heads of `x` `[batch, heads, length, width]` to a tensor `[batch, length, heads * width]`. If `x` was
/// returned by [`attention`], the tensor shares the memory of `x`.
pub(crate) fn join_heads(x: &Tensor) -> Result<Tensor> {
    let (batch, heads, len, width) = x.dims4()?;
    Ok(x.transpose(1, 2)?.reshape((batch, len, heads * width))?)
}
