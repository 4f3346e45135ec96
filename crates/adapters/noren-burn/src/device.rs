//! Checks of burn's tensors: device, gradients and number type. Without these checks, functions of burn would panic.

use crate::error::{Error, Result};
use burn::backend::{DispatchDevice, GradientCheckpointingStrategy};
use burn::tensor::{DType, Device, Tensor};

/// The name, shape, number type and device of a tensor, for checks and error messages.
pub(crate) struct Described {
    name: String,
    dims: Vec<usize>,
    dtype: DType,
    device: Device,
}

impl Described {
    pub(crate) fn new<const D: usize>(name: impl Into<String>, tensor: &Tensor<D>) -> Self {
        Described { name: name.into(), dims: tensor.dims().to_vec(), dtype: tensor.dtype(), device: tensor.device() }
    }

    /// Returns an error about this tensor, with its shape and number type.
    pub(crate) fn error(&self, expected: &str) -> Error {
        Error::tensor(&self.name, format!("{:?} of {:?}", self.dims, self.dtype), expected)
    }

    /// Returns an error if this tensor, a parameter of a layer, does not have the shape `dims` and the number type of
    /// the layer's input `input`.
    pub(crate) fn check_parameter(&self, dims: &[usize], input: &Described) -> Result<()> {
        if self.dims != dims {
            return Err(self.error(&format!(
                "this parameter of the layer must have the shape {dims:?}: make all parameters of the layer with one d_model"
            )));
        }
        if self.dtype != input.dtype {
            let expected = format!(
                "the input `{}` of the layer has the number type {:?}: convert the layer or this input with cast",
                input.name, input.dtype
            );
            return Err(self.error(&expected));
        }
        Ok(())
    }
}

/// Returns an error if `device` is not burn's CPU backend Flex, with or without autodiff. `name` is the name of the
/// tensor on `device`.
fn check_device(name: &str, device: &Device) -> Result<()> {
    let on_flex = match device.as_dispatch() {
        DispatchDevice::Autodiff(inner) => matches!(**inner, DispatchDevice::Flex(_)),
        other => matches!(other, DispatchDevice::Flex(_)),
    };
    if on_flex {
        return Ok(());
    }
    let expected =
        "noren computes on burn's CPU backend Flex: move the tensor with to_device(&Device::flex())".to_owned();
    Err(Error::tensor(name, format!("on the device {device:?}"), expected))
}

/// Checks the tensors of a call, of which the first three are the queries, keys and values. All tensors must be on
/// burn's CPU backend Flex, have values of `f32`, `bf16` or `f16`, and have no dimension of 0. The first three must
/// have the same type. All tensors with autodiff must use the same gradient checkpointing strategy, which is returned;
/// `None` if no tensor has autodiff.
pub(crate) fn check(tensors: &[Described]) -> Result<Option<GradientCheckpointingStrategy>> {
    let mut found: Option<(&Described, GradientCheckpointingStrategy)> = None;
    for (index, tensor) in tensors.iter().enumerate() {
        check_device(&tensor.name, &tensor.device)?;
        let accepted = matches!(tensor.dtype, DType::F32 | DType::BF16 | DType::F16);
        if index < 3 && (!accepted || tensor.dtype != tensors[0].dtype) {
            return Err(tensor.error("queries, keys and values must all be f32, bf16 or f16: convert with cast"));
        }
        if !accepted {
            return Err(tensor.error("give f32, bf16 or f16: convert with cast"));
        }
        if tensor.dims.contains(&0) {
            return Err(tensor.error("every dimension must be at least 1: do not call attention with empty tensors"));
        }
        let Some(strategy) = tensor.device.gradient_checkpointing_strategy() else { continue };
        match found {
            Some((other, expected)) if expected != strategy => {
                let given = format!("on an autodiff device with {strategy:?} gradient checkpointing");
                let fix = format!(
                    "{} has {expected:?} gradient checkpointing: create both tensors on the same autodiff device",
                    other.name
                );
                return Err(Error::tensor(&tensor.name, given, fix));
            }
            _ => found = Some((tensor, strategy)),
        }
    }
    Ok(found.map(|(_, strategy)| strategy))
}
