//! Makes masks during a call of a model. A [`MaskGenerator`] receives the tokens, queries and keys of an attention, and
//! returns a mask.
//!
//! The returned mask is intersected with the model's own mask: it can hide keys, but not reveal keys that the model's
//! mask hides. There are four examples: [`ByToken`], [`DomainVocabulary`], [`Sensitivity`] and [`TopBlocks`].

mod examples;

pub use examples::{ByToken, DomainVocabulary, Sensitivity, TopBlocks};

use crate::error::{Error, Result};
use crate::stack::Stack;
use candle_core::{D, DType, Tensor};
use noren::{Facts, Mask, Shape};

/// A generator of masks. A call of a model calls [`mask`](Self::mask) once for each attention, to get a mask for this
/// attention.
///
/// ```
/// use noren::{Mask, atoms};
/// use noren_models::dynamic::{DynamicCall, DynamicMask, MaskGenerator};
///
/// /// The first layers look nearby only.
/// struct NearFirst;
///
/// impl MaskGenerator for NearFirst {
///     fn mask(&self, call: &DynamicCall<'_>) -> noren_models::Result<DynamicMask> {
///         let mask = if call.layer < 2 { atoms::window(4, 4) } else { atoms::full() };
///         Ok(DynamicMask { mask, facts: call.facts.clone() })
///     }
/// }
/// ```
pub trait MaskGenerator {
    /// Returns a mask for the attention that `call` describes, and the facts (data to which the mask is bound). These
    /// are the facts in `call`, with additional data if the mask needs such data.
    ///
    /// # Errors
    /// Returns any error of the generator. The call of the model then returns this error.
    fn mask(&self, call: &DynamicCall<'_>) -> Result<DynamicMask>;
}

/// A mask that a generator returns, with the facts (data) to which the mask is bound.
#[derive(Clone, Debug)]
pub struct DynamicMask {
    /// The mask that is intersected with the model's mask.
    pub mask: Mask,
    /// The data to which both `mask` and the model's mask are bound: [`DynamicCall::facts`], with additional data if
    /// `mask` needs them.
    pub facts: Facts,
}

/// The data about one attention that a generator of masks receives.
pub struct DynamicCall<'a> {
    /// The stack to which the attention belongs: encoder, decoder, or a decoder's attention over an encoder.
    pub stack: Stack,
    /// The index of the layer, counted from 0.
    pub layer: usize,
    /// The token ids of each batch row, with padding.
    pub tokens: &'a [Vec<u32>],
    /// The shape of the attention: numbers of batch rows, heads, queries and keys.
    pub shape: &'a Shape,
    /// The facts of the call: padding, labels, clearance levels, documents.
    pub facts: &'a Facts,
    /// The model's own mask in this layer.
    pub mask: &'a Mask,
    /// The queries, `[batch, heads, q_len, head_dim]`.
    pub queries: &'a Tensor,
    /// The keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub keys: &'a Tensor,
    /// The factor by which `q . k` is multiplied; `None` means `1 / sqrt(head_dim)`.
    pub scale: Option<f32>,
}

impl DynamicCall<'_> {
    /// Divides the queries into groups of `block_q` and the keys into groups of `block_kv`, and returns the largest
    /// score of each pair of groups, before masks are applied. The result is
    /// `[batch, heads, q_len / block_q, kv_len / block_kv]`, with quotients rounded up. The groups of queries are
    /// computed one after another, so memory is proportional to `block_q * kv_len`.
    ///
    /// # Errors
    /// Returns an error if `block_q` or `block_kv` is 0, and for types other than floats.
    pub fn block_maxima(&self, block_q: usize, block_kv: usize) -> Result<Tensor> {
        if block_q == 0 || block_kv == 0 {
            return Err(Error::input(
                "the block",
                format!("{block_q} x {block_kv}"),
                "give at least 1 query and 1 key per block",
            ));
        }
        let q = self.queries.detach().to_dtype(DType::F32)?;
        let k = self.spread_keys()?;
        let (batch, heads, q_len, head_dim) = q.dims4()?;
        let kv_len = k.dim(2)?;
        let scale = self.scale.map_or((head_dim as f64).sqrt().recip(), f64::from);
        let k = k.transpose(2, 3)?.contiguous()?;
        let missing = kv_len.next_multiple_of(block_kv) - kv_len;
        let mut rows = Vec::new();
        for from in (0..q_len).step_by(block_q) {
            let q = q.narrow(2, from, block_q.min(q_len - from))?.contiguous()?;
            let best = (q.matmul(&k)? * scale)?.max(2)?;
            let filler = Tensor::full(f32::NEG_INFINITY, (batch, heads, missing), q.device())?;
            let best = if missing > 0 { Tensor::cat(&[best, filler], 2)? } else { best };
            rows.push(best.reshape((batch, heads, (), block_kv))?.max(D::Minus1)?);
        }
        Ok(Tensor::stack(&rows, 2)?)
    }

    /// Returns the keys in `f32`. The keys of each key-value head are repeated for every query head that reads them:
    /// `[batch, heads, kv_len, head_dim]`.
    pub(crate) fn spread_keys(&self) -> Result<Tensor> {
        let k = self.keys.detach().to_dtype(DType::F32)?;
        let (batch, kv_heads, kv_len, head_dim) = k.dims4()?;
        let group = self.queries.dim(1)? / kv_heads;
        let spread = k.unsqueeze(2)?.broadcast_as((batch, kv_heads, group, kv_len, head_dim))?;
        Ok(spread.reshape((batch, kv_heads * group, kv_len, head_dim))?)
    }
}
