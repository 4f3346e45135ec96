//! Functions that view the values of burn's Flex tensors without copying, and functions that make tensors from new
//! values.

use crate::error::{Error, Result};
use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{DType, TensorData};
use noren::{Element, View, bf16, f16};

/// A tensor of burn's CPU backend Flex.
pub(crate) type FlexTensor = FloatTensor<Flex>;

/// A number type that both noren and burn support: `f32`, `bf16` or `f16`.
pub(crate) trait Stored: Element + burn::tensor::Element {
    /// Returns all values in the memory of `tensor`, in the order of the memory; `None` if the values have another type.
    fn values(tensor: &FlexTensor) -> Option<&[Self]>;
}

macro_rules! stored {
    ($type:ty, $dtype:ident) => {
        impl Stored for $type {
            fn values(tensor: &FlexTensor) -> Option<&[Self]> {
                (tensor.dtype() == DType::$dtype).then(|| tensor.storage())
            }
        }
    };
}

stored!(f32, F32);
stored!(bf16, BF16);
stored!(f16, F16);

/// Returns a view of a four-dimensional tensor. `name` is the name of the tensor for messages.
pub(crate) fn view<'a, T: Stored>(name: &str, tensor: &'a FlexTensor) -> Result<View<'a, T>> {
    let shape = tensor.shape();
    let given = || format!("{:?} of {:?}", shape.to_vec(), tensor.dtype());
    let Some(values) = T::values(tensor) else {
        return Err(Error::tensor(name, given(), "q, k and v must have one number type: convert with cast"));
    };
    let layout = tensor.layout();
    let dims = <[usize; 4]>::try_from(shape.to_vec());
    let strides = <[isize; 4]>::try_from(layout.strides());
    let (Ok(dims), Ok(strides)) = (dims, strides) else {
        return Err(Error::tensor(name, given(), "give a tensor of shape [batch, heads, length, head_dim]"));
    };
    Ok(View::strided(values, dims, strides, layout.start_offset())?)
}

/// Returns `shape.iter().product()` zeros, or an error if they do not fit into memory. `name` is the name of the array
/// for messages.
pub(crate) fn zeros<T: Stored>(name: &str, shape: [usize; 4]) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let count = shape.iter().try_fold(1usize, |count, len| count.checked_mul(*len));
    match count {
        Some(count) if values.try_reserve_exact(count).is_ok() => values.resize(count, T::from_f32(0.0)),
        _ => {
            return Err(Error::tensor(
                name,
                format!("{shape:?}"),
                "this array does not fit into memory: give smaller tensors",
            ));
        }
    }
    Ok(values)
}

/// Returns a tensor of shape `[batch, heads, length, width]`. The numbers in `values` have the order
/// `[batch, length, heads, width]` and are not copied. Joining the heads of the tensor therefore copies nothing.
pub(crate) fn by_token<T: Stored>(values: Vec<T>, [batch, heads, len, width]: [usize; 4]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, [batch, len, heads, width])).transpose(1, 2)
}
