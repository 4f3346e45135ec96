//! Conversions between masks and tensors. The name of each function states the convention of the tensor.

use crate::error::{Error, Result};
use burn::tensor::{Bool, Device, Tensor, TensorData};
use noren::{Array, BoundMask, Facts};

/// Returns the mask as a dense tensor `[batch, heads, q_len, kv_len]`: true for an allowed cell.
///
/// # Errors
/// Returns an error if the tensor does not fit into memory.
pub fn to_keep(mask: &BoundMask, device: &Device) -> Result<Tensor<4, Bool>> {
    cells(mask, device, |allowed| allowed)
}

/// Returns the mask as a dense tensor `[batch, heads, q_len, kv_len]`: true for a hidden cell. This is the convention of
/// burn's own `attention` function and of the `mask_attn` of its `MultiHeadAttention`.
///
/// # Errors
/// Returns an error if the tensor does not fit into memory.
pub fn to_drop(mask: &BoundMask, device: &Device) -> Result<Tensor<4, Bool>> {
    cells(mask, device, |allowed| !allowed)
}

fn cells(mask: &BoundMask, device: &Device, value: impl Fn(bool) -> bool) -> Result<Tensor<4, Bool>> {
    let shape = mask.shape();
    let (batch, heads, q_len, kv_len) = (shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len());
    let mut all = Vec::new();
    let count = usize::try_from(shape.cells()).ok();
    if count.is_none_or(|count| all.try_reserve_exact(count).is_err()) {
        let expected = "a dense tensor cannot hold so many cells: give a smaller shape";
        return Err(Error::input("the mask", format!("{} cells", shape.cells()), expected));
    }
    for b in 0..batch {
        for h in 0..heads {
            for q in 0..q_len {
                all.extend((0..kv_len).map(|k| value(mask.allowed(b, h, q, k))));
            }
        }
    }
    Ok(Tensor::from_data(TensorData::new(all, [batch, heads, q_len, kv_len]), device))
}

/// Converts a mask tensor to an array for the elementary mask (atom) `dense(name)`. True allows the cell. The shape is
/// `[q_len, kv_len]`, `[batch, q_len, kv_len]` or `[batch, heads, q_len, kv_len]`.
///
/// # Errors
/// Returns an error for another number of dimensions, and if a dimension is 0.
pub fn array_from_keep<const D: usize>(tensor: Tensor<D, Bool>) -> Result<Array> {
    let (shape, cells) = flags(tensor)?;
    Ok(Array::keep(&shape, &cells)?)
}

/// Converts a mask tensor as [`array_from_keep`] does, except that true hides the cell, as in the `mask_attn` of burn's
/// `MultiHeadAttention`.
///
/// ```
/// use burn::tensor::{Bool, Device, Tensor};
/// use noren::{Facts, Shape, atoms::dense};
/// // burn's causal mask: true where a key comes after the query
/// let mask = burn::nn::attention::generate_autoregressive_mask(1, 3, &Device::flex());
/// let facts = Facts::new().array("mine", noren_burn::array_from_drop(mask)?);
/// let bound = dense("mine").bind(&Shape::square(3), &facts).unwrap();
/// assert!(bound.allowed(0, 0, 2, 1) && !bound.allowed(0, 0, 1, 2));
/// # Ok::<(), noren_burn::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`array_from_keep`].
pub fn array_from_drop<const D: usize>(tensor: Tensor<D, Bool>) -> Result<Array> {
    let (shape, cells) = flags(tensor)?;
    Ok(Array::hide(&shape, &cells)?)
}

/// Returns facts (data given with a mask) about padding, from a tensor `[batch, length]` in which true marks a padding
/// token. The `mask_pad` of burn's `MultiHeadAttention`, a result of `generate_padding_mask`, is such a tensor.
///
/// # Errors
/// Returns an error if a row has padding between its other tokens, or if a dimension is 0.
pub fn facts_from_drop(tensor: Tensor<2, Bool>) -> Result<Facts> {
    let [_, len] = tensor.dims();
    let (_, cells) = values(tensor)?;
    let rows: Vec<Vec<bool>> = cells.chunks(len).map(|row| row.iter().map(|drop| !drop).collect()).collect();
    Ok(Facts::padding_from_keep(&rows)?)
}

/// Returns the shape and the values of the array for a mask tensor of two to four dimensions. A tensor
/// `[batch, q_len, kv_len]` becomes an array `[batch, 1, q_len, kv_len]`.
fn flags<const D: usize>(tensor: Tensor<D, Bool>) -> Result<(Vec<usize>, Vec<bool>)> {
    let (shape, cells) = values(tensor)?;
    match shape[..] {
        [_, _] | [_, _, _, _] => Ok((shape, cells)),
        [batch, q_len, kv_len] => Ok((vec![batch, 1, q_len, kv_len], cells)),
        _ => {
            let expected = "give [q_len, kv_len], [batch, q_len, kv_len] or [batch, heads, q_len, kv_len]";
            Err(Error::tensor("the mask", format!("{shape:?}"), expected))
        }
    }
}

/// Returns the shape and the values of a mask tensor, or an error if a dimension is 0.
fn values<const D: usize>(tensor: Tensor<D, Bool>) -> Result<(Vec<usize>, Vec<bool>)> {
    let shape = tensor.dims().to_vec();
    let given = format!("{shape:?}");
    if shape.contains(&0) {
        return Err(Error::tensor(
            "the mask",
            given,
            "every dimension must be at least 1: give a mask with at least one cell",
        ));
    }
    let data = tensor.try_into_data().map_err(|error| {
        Error::tensor(
            "the mask",
            given,
            format!("burn cannot read the values of this tensor ({error}): check its device"),
        )
    })?;
    Ok((shape, data.iter::<bool>().collect()))
}
