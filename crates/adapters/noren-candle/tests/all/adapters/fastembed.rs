//! fastembed: attention of its encoders, which add -1e4 to scores of padding.

// begin
use noren::{Plan, Shape, atoms};
use noren_candle::candle_core::{Error, Result, Tensor};
use noren_candle::{Options, attention, facts_from_keep, plan};
use std::sync::Arc;

/// Returns the plan of a batch, which all layers share. `attention_mask` is `[batch, len]`: 1 for a token, 0 for padding.
pub(crate) fn padding_plan(attention_mask: &Tensor, heads: usize) -> Result<Arc<Plan>> {
    let (batch, len) = attention_mask.dims2()?;
    let facts = facts_from_keep(attention_mask).map_err(Error::wrap)?;
    plan(&atoms::padding(), &Shape::square(len).batch(batch).heads(heads), &facts).map_err(Error::wrap)
}

/// Returns the attention of one layer, `[batch, len, heads * head_dim]`: instead of the product of `q` and `k`, the mask, the softmax
/// and the product with `v`. Each of `q`, `k` and `v` is `[batch, heads, len, head_dim]`, also transposed and not contiguous.
pub(crate) fn attend(q: &Tensor, k: &Tensor, v: &Tensor, plan: &Arc<Plan>) -> Result<Tensor> {
    let (batch, heads, len, head_dim) = q.dims4()?;
    let out = attention(q, k, v, plan, &Options::default()).map_err(Error::wrap)?;
    out.transpose(1, 2)?.reshape((batch, len, heads * head_dim))
}
// end

use super::{close, random, textbook};
use noren_candle::candle_core::Device;

/// Two texts, one with padding, from one array of queries, keys and values.
#[test]
fn a_padded_batch_equals_each_text_alone() -> Result<()> {
    let qkv = random(&[2, 6, 3, 2, 8], 5)?; // [batch, len, 3, heads, head_dim]
    let part = |n| qkv.narrow(2, n, 1)?.squeeze(2)?.transpose(1, 2);
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    let mask = Tensor::new(&[[1u32, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]], &Device::Cpu)?;
    let out = attend(&q, &k, &v, &padding_plan(&mask, 2)?)?;
    assert_eq!(out.dims(), [2, 6, 16]);
    for (b, len) in [(0, 6), (1, 4)] {
        let alone = |x: &Tensor| x.narrow(0, b, 1)?.narrow(2, 0, len);
        let expected = textbook(&alone(&q)?, &alone(&k)?, &alone(&v)?, 8f64.powf(-0.5), |_, _| true)?;
        close(&out.narrow(0, b, 1)?.narrow(1, 0, len)?.reshape((1, len, 2, 8))?.transpose(1, 2)?, &expected)?;
    }
    Ok(())
}
