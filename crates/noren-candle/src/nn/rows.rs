//! What operations over rows without gradients have in common: one pass over memory, on all threads.

use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};

/// Returns whether these operations take a tensor, and no gradient is asked of it.
pub(super) fn takes(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|t| t.dtype() == DType::F32 && matches!(t.device(), Device::Cpu) && !t.track_op())
}

/// Rows that a thread takes at a time: some ten thousand numbers.
pub(super) fn rows_at_a_time(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}

/// Refuses a product of no columns, which has no rows to speak of.
pub(super) fn check_width(width: usize) -> Result<()> {
    if width == 0 { Err(Error::input("the width of a layer", 0, "give at least 1")) } else { Ok(()) }
}
