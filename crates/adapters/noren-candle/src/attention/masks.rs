//! Conversions between masks and tensors. The name of each function states the convention of the tensor.

use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};
use noren::{Array, BoundMask, Facts};

/// Returns the mask as a dense tensor `[batch, heads, q_len, kv_len]` of `u8`: 1 for an allowed cell, 0 for a hidden
/// cell.
///
/// # Errors
/// Returns an error if the tensor does not fit into memory.
pub fn to_keep(mask: &BoundMask, device: &Device) -> Result<Tensor> {
    cells(mask, device, u8::from)
}

/// Returns the mask as a dense tensor `[batch, heads, q_len, kv_len]` of `u8`: 0 for an allowed cell, 1 for a hidden
/// cell.
///
/// # Errors
/// Returns an error if the tensor does not fit into memory.
pub fn to_drop(mask: &BoundMask, device: &Device) -> Result<Tensor> {
    cells(mask, device, |allowed| u8::from(!allowed))
}

/// Returns the mask as a dense tensor `[batch, heads, q_len, kv_len]` of `dtype`, which is added to scores: 0 for an
/// allowed cell, minus infinity for a hidden cell.
///
/// # Errors
/// Returns an error if the tensor does not fit into memory, or if `dtype` is not a float type.
pub fn to_additive(mask: &BoundMask, dtype: DType, device: &Device) -> Result<Tensor> {
    if !dtype.is_float() {
        return Err(Error::input(
            "dtype",
            format!("{dtype:?}"),
            "only floats have minus infinity: give f32, bf16 or f16",
        ));
    }
    Ok(cells(mask, device, |allowed| if allowed { 0f32 } else { f32::NEG_INFINITY })?.to_dtype(dtype)?)
}

fn cells<T: candle_core::WithDType>(mask: &BoundMask, device: &Device, value: impl Fn(bool) -> T) -> Result<Tensor> {
    let shape = mask.shape();
    let (batch, heads, q_len, kv_len) = (shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len());
    if shape.cells() > isize::MAX as u128 / 4 {
        return Err(Error::input(
            "the mask",
            format!("{} cells", shape.cells()),
            "a dense tensor cannot hold so many cells: give a smaller shape",
        ));
    }
    let mut all = Vec::with_capacity(batch * heads * q_len * kv_len);
    for b in 0..batch {
        for h in 0..heads {
            for q in 0..q_len {
                all.extend((0..kv_len).map(|k| value(mask.allowed(b, h, q, k))));
            }
        }
    }
    Ok(Tensor::from_vec(all, (batch, heads, q_len, kv_len), device)?)
}

/// Converts a mask tensor to an array for the elementary mask (atom) `dense(name)`. A value other than 0 allows the
/// cell. The shape is `[q_len, kv_len]`, `[batch, heads, q_len, kv_len]` or `[batch * heads, q_len, kv_len]`. In the
/// last shape, the heads of a batch row are consecutive.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use noren::{Facts, Shape, atoms::dense};
/// let keep = Tensor::new(&[[1u8, 0], [1, 1]], &Device::Cpu)?;
/// let facts = Facts::new().array("mine", noren_candle::array_from_keep(&keep, 1)?);
/// assert!(!dense("mine").bind(&Shape::square(2), &facts).unwrap().allowed(0, 0, 0, 1));
/// # Ok::<(), noren_candle::Error>(())
/// ```
///
/// # Errors
/// Returns an error for other shapes, and if the first of three dimensions is not a multiple of `heads`.
pub fn array_from_keep(tensor: &Tensor, heads: usize) -> Result<Array> {
    let (shape, cells) = flags(tensor, heads)?;
    Ok(Array::keep(&shape, &cells)?)
}

/// Converts a mask tensor as [`array_from_keep`] does, except that a value other than 0 hides the cell, as in
/// `attn_mask` of `nn.MultiheadAttention`.
///
/// # Errors
/// Returns the errors of [`array_from_keep`].
pub fn array_from_drop(tensor: &Tensor, heads: usize) -> Result<Array> {
    let (shape, cells) = flags(tensor, heads)?;
    Ok(Array::hide(&shape, &cells)?)
}

/// Converts a mask tensor as [`array_from_keep`] does, except that the tensor has numbers that are added to scores: 0
/// allows the cell; minus infinity, or the lowest number of the type, hides the cell.
///
/// # Errors
/// Returns the errors of [`array_from_keep`], and an error for any other number, because the tensor would be a bias and
/// not a mask.
pub fn array_from_additive(tensor: &Tensor, heads: usize) -> Result<Array> {
    let shape = array_shape(tensor, heads)?;
    Ok(Array::additive(&shape, &tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?)?)
}

/// Returns the padding as [`Facts`] (data to which a mask is bound). `tensor` is `[batch, length]`, such as Hugging
/// Face's `attention_mask`. A value other than 0 marks a non-padding token.
///
/// # Errors
/// Returns an error if the tensor does not have two dimensions.
pub fn facts_from_keep(tensor: &Tensor) -> Result<Facts> {
    Ok(Facts::padding_from_keep(&keep_rows(tensor)?)?)
}

/// Returns the rows of a padding tensor `[batch, length]` as flags: true for a value other than 0, which marks a
/// non-padding token.
fn keep_rows(tensor: &Tensor) -> Result<Vec<Vec<bool>>> {
    if tensor.rank() != 2 {
        return Err(Error::tensor("the padding mask", tensor, "give [batch, length]"));
    }
    let rows = tensor.ne(0f64)?.to_vec2::<u8>()?;
    Ok(rows.into_iter().map(|row| row.into_iter().map(|x| x != 0).collect()).collect())
}

fn flags(tensor: &Tensor, heads: usize) -> Result<(Vec<usize>, Vec<bool>)> {
    let shape = array_shape(tensor, heads)?;
    let cells = tensor.ne(0f64)?.flatten_all()?.to_vec1::<u8>()?;
    Ok((shape, cells.into_iter().map(|x| x != 0).collect()))
}

fn array_shape(tensor: &Tensor, heads: usize) -> Result<Vec<usize>> {
    match *tensor.dims() {
        [_, _] | [_, _, _, _] => Ok(tensor.dims().to_vec()),
        [rows, q_len, kv_len] if heads > 0 && rows % heads == 0 => Ok(vec![rows / heads, heads, q_len, kv_len]),
        _ => {
            let expected = format!(
                "give [q_len, kv_len], [batch * {heads} heads, q_len, kv_len] or [batch, heads, q_len, kv_len]"
            );
            Err(Error::tensor("the mask", tensor, expected))
        }
    }
}
