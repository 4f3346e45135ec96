//! [`Values`]: the numbers of a tensor, read without a copy.

use crate::error::{Error, Result};
use candle_core::{CpuStorage, Layout, Storage, Tensor};
use std::ops::{Deref, Range};

/// The numbers of a contiguous tensor of `f32` on the CPU, as a borrowed slice.
pub(super) struct Values<'a> {
    storage: Box<dyn Deref<Target = Storage> + 'a>,
    range: Range<usize>,
}

impl<'a> Values<'a> {
    /// Returns the values of a tensor, without copying them.
    ///
    /// # Errors
    /// Returns an error if the tensor is not of type `f32`, not on the CPU, or not contiguous.
    pub(super) fn of(tensor: &'a Tensor) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        match (&*storage, layout.contiguous_offsets()) {
            (Storage::Cpu(CpuStorage::F32(_)), Some((from, to))) => {
                Ok(Values { storage: Box::new(storage), range: from..to })
            }
            _ => Err(Error::tensor("a parameter", tensor, "this operation needs a contiguous tensor of type f32")),
        }
    }
}

impl Deref for Values<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &**self.storage {
            // The offset of a tensor without numbers may be outside the memory.
            Storage::Cpu(CpuStorage::F32(_)) if self.range.is_empty() => &[],
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.clone()],
            _ => unreachable!("the type of the storage was checked when `Values` was made"),
        }
    }
}

/// Returns the values of an operation's argument, which must be contiguous and of type `f32`.
pub(super) fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(_), Some((from, to))) if from == to => Ok(&[]),
        (CpuStorage::F32(values), Some((from, to))) => Ok(&values[from..to]),
        _ => candle_core::bail!("this operation needs a contiguous tensor of type f32"),
    }
}
