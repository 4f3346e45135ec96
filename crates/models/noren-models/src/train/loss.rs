//! Computes the loss of a model on a batch of tokens.

use crate::error::Result;
use candle_core::{D, Tensor};
use noren_text::data::Batch;

/// Returns the sum of `-ln p(target)` over all positions that have a target token. `logits` are `[rows, len, vocab]`.
///
/// The logits at positions without a target (padding, ends of documents, tokens that were not masked) are not read. The
/// gradients of these logits are therefore exactly 0.
pub(super) fn sum_of_losses(logits: &Tensor, batch: &Batch) -> Result<Tensor> {
    let targets = batch.targets.iter().flatten().enumerate();
    let (places, tokens): (Vec<u32>, Vec<u32>) = targets.filter_map(|(at, token)| Some((at as u32, (*token)?))).unzip();
    let count = places.len();
    let device = logits.device();
    let predicted = logits.flatten_to(1)?.index_select(&Tensor::from_vec(places, count, device)?, 0)?;
    let largest = predicted.detach().max_keepdim(D::Minus1)?;
    let shifted = predicted.broadcast_sub(&largest)?;
    let chosen = shifted.gather(&Tensor::from_vec(tokens, (count, 1), device)?, 1)?;
    Ok((shifted.exp()?.sum_keepdim(D::Minus1)?.log()? - chosen)?.sum_all()?)
}
