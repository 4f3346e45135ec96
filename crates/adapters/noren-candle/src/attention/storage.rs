//! Functions that return the values of candle's tensors as noren's views, without copying them.

use crate::error::{Error, Result};
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout, Storage};
use noren::{Element, View, ViewMut, bf16, f16};
use std::ops::Deref;

/// A number type that both noren and candle support: `f32`, `bf16` or `f16`.
pub(crate) trait Stored: Element + candle_core::WithDType {
    /// Returns the values of `storage`; `None` if the values have another type.
    fn values(storage: &CpuStorage) -> Option<&[Self]>;
    /// Returns a storage that holds `values`.
    fn store(values: Vec<Self>) -> CpuStorage;
}

macro_rules! stored {
    ($type:ty, $variant:ident) => {
        impl Stored for $type {
            fn values(storage: &CpuStorage) -> Option<&[Self]> {
                if let CpuStorage::$variant(values) = storage { Some(values) } else { None }
            }

            fn store(values: Vec<Self>) -> CpuStorage {
                CpuStorage::$variant(values)
            }
        }
    };
}

stored!(f32, F32);
stored!(bf16, BF16);
stored!(f16, F16);

/// Computes an expression for the number type of a tensor, which `$type` names: `f32`, `bf16` or `f16`. Returns an error
/// for other types.
macro_rules! by_type {
    ($tensor:expr, $type:ident => $call:expr) => {
        match $tensor.dtype() {
            candle_core::DType::F32 => {
                type $type = f32;
                $call
            }
            candle_core::DType::BF16 => {
                type $type = noren::bf16;
                $call
            }
            candle_core::DType::F16 => {
                type $type = noren::f16;
                $call
            }
            _ => Err(Error::tensor("q", $tensor, "attention supports f32, bf16 and f16: convert with to_dtype")),
        }
    };
}
pub(crate) use by_type;

/// Returns the CPU storage of a tensor, or an error if the tensor is on an accelerator.
pub(crate) fn cpu(storage: &Storage) -> Result<&CpuStorage> {
    match storage {
        Storage::Cpu(storage) => Ok(storage),
        _ => Err(Error::input("device", "an accelerator", "noren computes on the CPU: move tensors to Device::Cpu")),
    }
}

/// Returns views of tensors of four dimensions, which are given by [`Tensor::storage_and_layout`]. Returns an error if
/// their number types differ, or if a tensor is not on the CPU.
pub(crate) fn views<'a, T: Stored, G: Deref<Target = Storage>, const N: usize>(
    held: &'a [(G, &Layout); N],
) -> Result<[View<'a, T>; N]> {
    let all = held.iter().map(|(storage, layout)| view(cpu(storage)?, layout)).collect::<Result<Vec<_>>>()?;
    Ok(std::array::from_fn(|i| all[i]))
}

/// Returns a view of a four-dimensional tensor, which is given by its storage and layout.
pub(crate) fn view<'a, T: Stored>(storage: &'a CpuStorage, layout: &Layout) -> Result<View<'a, T>> {
    let Some(values) = T::values(storage) else {
        let expected = format!("all tensors of a call must be {}: convert with to_dtype", <T as Element>::DTYPE);
        return Err(Error::input("a tensor's type", format!("{:?}", storage.dtype()), expected));
    };
    let four = |of: &[usize]| <[usize; 4]>::try_from(of);
    let (Ok(shape), Ok(strides)) = (four(layout.dims()), four(layout.stride())) else {
        return Err(Error::input(
            "the tensor shape",
            format!("{:?}", layout.dims()),
            "give a tensor with four dimensions",
        ));
    };
    Ok(View::strided(values, shape, strides.map(|s| s as isize), layout.start_offset())?)
}

/// Returns a view of `memory` with the shape `shape`, which is `[batch, heads, length, width]`. The numbers in `memory`
/// have the order `[batch, length, heads, width]`.
pub(crate) fn by_token<T: Stored>(memory: &mut [T], shape: [usize; 4]) -> Result<ViewMut<'_, T>> {
    let [_, heads, len, width] = shape.map(|n| n as isize);
    Ok(ViewMut::strided(memory, shape, [len * heads * width, width, heads * width, 1], 0)?)
}
