//! [`Activation`]: the function between the two linear layers of a feed-forward part.

use super::rows::takes;
use super::values::values;
use super::wide;
use crate::error::{Error, Result};
use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};
use rayon::prelude::*;
use std::str::FromStr;

/// An activation function, which is applied to each number of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// `x * P(X <= x)`, where `X` has the standard normal distribution.
    Gelu,
    /// The usual approximation of [`Gelu`](Self::Gelu) with `tanh`.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
    /// `x / (1 + exp(-x))`.
    Silu,
    /// The hyperbolic tangent.
    Tanh,
}

impl FromStr for Activation {
    type Err = Error;

    /// Parses the name of an activation in a configuration, such as `gelu_new`.
    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::GeluTanh,
            "relu" => Activation::Relu,
            "silu" | "swish" => Activation::Silu,
            "tanh" => Activation::Tanh,
            other => {
                let expected = "give one of gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, silu, swish and tanh";
                return Err(Error::config("the activation", format!("{other:?}"), expected));
            }
        })
    }
}

impl Activation {
    /// Applies the function to every element of `x`.
    ///
    /// # Errors
    /// Returns an error if `x` does not have a float type.
    pub fn forward(self, x: &Tensor) -> Result<Tensor> {
        if takes(&[x]) {
            return Ok(x.contiguous()?.apply_op1_no_bwd(&ActivationOp(self))?);
        }
        Ok(match self {
            Activation::Gelu => x.gelu_erf()?,
            Activation::GeluTanh => x.gelu()?,
            Activation::Relu => x.relu()?,
            Activation::Silu => x.silu()?,
            Activation::Tanh => x.tanh()?,
        })
    }

    /// Replaces every element of `x` by the value of the function at this element.
    pub(super) fn in_place(self, x: &mut [f32]) {
        match self {
            Activation::Gelu => wide::gelu(x),
            Activation::GeluTanh => wide::gelu_tanh(x),
            Activation::Relu => wide::relu(x),
            Activation::Silu => wide::silu(x),
            Activation::Tanh => x.iter_mut().for_each(|x| *x = x.tanh()),
        }
    }
}

/// The operation of candle that applies an activation to every element.
pub(super) struct ActivationOp(pub(super) Activation);

impl CustomOp1 for ActivationOp {
    fn name(&self) -> &'static str {
        "noren-activation"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let mut out = values(x, layout)?.to_vec();
        out.par_chunks_mut(16_384).for_each(|piece| self.0.in_place(piece));
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}
