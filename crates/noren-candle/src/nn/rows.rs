//! Common parts of operations over rows without gradients: one pass over memory, on all threads.

use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};

/// Returns whether these operations can take the tensors and none of them needs a gradient.
pub(super) fn takes(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|t| t.dtype() == DType::F32 && matches!(t.device(), Device::Cpu) && !t.track_op())
}

/// Returns the number of rows of `width` numbers that a thread takes at a time: about 16,384 numbers together, at least one
/// row.
pub(super) fn rows_at_a_time(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}

/// Refuses a product without columns.
pub(super) fn check_width(width: usize) -> Result<()> {
    if width == 0 { Err(Error::input("the width of a layer", 0, "give at least 1")) } else { Ok(()) }
}
