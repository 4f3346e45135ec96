//! [`Activation`]: the function between the two halves of a feed-forward layer.

use super::rows::takes;
use super::values::values;
use super::wide;
use crate::error::{Error, Result};
use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};
use rayon::prelude::*;
use std::str::FromStr;

/// A function of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// `x * P(X <= x)` of the normal distribution.
    Gelu,
    /// [`Gelu`](Self::Gelu) by its usual formula with `tanh`.
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

    /// Parses the names of activations in configurations.
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
    /// Applies the function to every element.
    ///
    /// # Errors
    /// Returns an error for types other than floats.
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

    /// Applies the function to every element, in place.
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

/// The activation of every element as an operation of candle.
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
