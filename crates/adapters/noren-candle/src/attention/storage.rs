//! Functions that return the values of candle's tensors as noren's views, without copying them.

use crate::error::{Error, Result};
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, DType, Layout, Storage, Tensor};
use noren::{Element, View, bf16, f16};

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

/// A function of three tensors with the same number type. The function is generic over this type, so that one
/// definition serves `f32`, `bf16` and `f16`.
pub(crate) trait Kind {
    /// The type of the function's result.
    type Result;
    /// Calls the function with the three tensors.
    fn call<T: Stored>(self, views: [View<'_, T>; 3]) -> Self::Result;
}

/// Calls the function `kind` with views of the three tensors. Returns an error if their number types differ, or if a
/// tensor is not on the CPU.
pub(crate) fn with_views<K: Kind>(tensors: [&Tensor; 3], kind: K) -> Result<K::Result> {
    let held = tensors.map(Tensor::storage_and_layout);
    let mut parts = Vec::with_capacity(3);
    for (storage, layout) in &held {
        parts.push((cpu(storage)?, *layout));
    }
    let parts = [parts[0], parts[1], parts[2]];
    Ok(match tensors[0].dtype() {
        DType::F32 => kind.call::<f32>(views(parts)?),
        DType::BF16 => kind.call::<bf16>(views(parts)?),
        DType::F16 => kind.call::<f16>(views(parts)?),
        _ => return Err(Error::tensor("q", tensors[0], "attention supports f32, bf16 and f16: convert with to_dtype")),
    })
}

/// Returns the CPU storage of a tensor, or an error if the tensor is on an accelerator.
pub(crate) fn cpu(storage: &Storage) -> Result<&CpuStorage> {
    match storage {
        Storage::Cpu(storage) => Ok(storage),
        _ => Err(Error::input("device", "an accelerator", "noren computes on the CPU: move tensors to Device::Cpu")),
    }
}

fn views<'a, T: Stored>(parts: [(&'a CpuStorage, &Layout); 3]) -> Result<[View<'a, T>; 3]> {
    let [q, k, v] = parts;
    Ok([view(q.0, q.1)?, view(k.0, k.1)?, view(v.0, v.1)?])
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
