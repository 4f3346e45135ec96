//! Gradients for tensors that the operation has no argument for.
//!
//! An operation of candle has at most three arguments, which are queries, keys and values. The values are therefore handed
//! through an operation of their own for each further tensor that needs a gradient: forward it is the identity; backward it
//! runs after attention's own backward and finds the gradient that this has left for it.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use std::sync::{Arc, Mutex};

/// The place in which attention's backward pass leaves a gradient.
pub(crate) type Slot = Arc<Mutex<Option<Tensor>>>;

/// The identity on its first argument. The gradient of its second argument is the content of the slot.
struct Carry(Slot);

/// Returns `values`, connected so that the gradient of `tensor` is the content of the slot.
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
