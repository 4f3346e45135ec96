//! Gradients for biases, soft weights and sinks, which are not arguments of the attention operation.
//!
//! An operation of candle has at most three arguments, which are the queries, keys and values here. For each further
//! tensor that needs a gradient, the values therefore pass through one more operation. The forward pass of this
//! operation is the identity. Its backward pass runs after the backward pass of attention, and takes the gradient of
//! the further tensor from the [`Slot`] in which attention's backward pass stored it.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use std::sync::{Arc, Mutex};

/// The place in which the backward pass of attention stores the gradient of one tensor; `None` before the gradient is
/// stored.
pub(crate) type Slot = Arc<Mutex<Option<Tensor>>>;

/// The operation of candle that returns a copy of its first argument. Its backward pass returns the tensor in the
/// [`Slot`] as the gradient of its second argument.
struct Carry(Slot);

/// Returns a copy of `values`. candle records the copy as a function of `values` and `tensor`. The backward pass of
/// candle therefore also computes the gradient of `tensor`, which it takes from `slot`.
pub(crate) fn carry(values: &Tensor, tensor: &Tensor, slot: &Slot) -> Result<Tensor> {
    values.apply_op2(tensor, Carry(slot.clone()))
}

impl CustomOp2 for Carry {
    fn name(&self) -> &'static str {
        "noren-carry"
    }

    fn cpu_fwd(&self, values: &CpuStorage, l: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        let copy = values.to_dtype(l, values.dtype())?;
        Ok((copy, l.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, tensor: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let left = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let gradient = left.map(|gradient| gradient.reshape(tensor.shape())?.to_dtype(tensor.dtype())).transpose()?;
        Ok((Some(grad.clone()), gradient))
    }
}
