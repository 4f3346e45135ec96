//! Helper functions for operations without gradients, which process the rows of tensors on all threads.

use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};

/// Returns true if all tensors have the type `f32`, are on the CPU and need no gradient. The operations of
/// [`nn`](super) without gradients accept only such tensors.
pub(super) fn takes(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|t| t.dtype() == DType::F32 && matches!(t.device(), Device::Cpu) && !t.track_op())
}

/// Returns the number of rows that a thread processes at a time, if a row has `width` numbers: about 16,384 numbers in
/// all, and at least one row.
pub(super) fn rows_at_a_time(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}

/// Returns an error if the width of a layer is 0.
pub(super) fn check_width(width: usize) -> Result<()> {
    if width == 0 { Err(Error::input("the last dimension", 0, "give a width above 0")) } else { Ok(()) }
}
