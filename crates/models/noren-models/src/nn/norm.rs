//! [`Norm`]: layer norm and RMS norm, row by row.

use super::rows::{check_width, rows_at_a_time, takes};
use super::values::{Values, values};
use super::wide;
use crate::error::Result;
use candle_core::{CpuStorage, CustomOp1, D, DType, Layout, Shape, Tensor};
use candle_nn::{Init, VarBuilder};
use rayon::prelude::*;

/// The formula of a norm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NormKind {
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`.
    Layer,
    /// `x / sqrt(mean(x^2) + eps) * weight` (T5, Llama).
    Rms,
    /// `x / sqrt(mean(x^2) + eps) * (1 + weight)` (Gemma).
    RmsPlusOne,
}

/// A norm over the last dimension. It is computed in `f32` for tensors of every float type.
#[derive(Clone, Debug)]
pub struct Norm {
    kind: NormKind,
    weight: Tensor,
    bias: Option<Tensor>,
    eps: f64,
}

/// The formula and the parameters of a norm, with tensors as slices of `f32`.
pub(super) struct Parameters<'a> {
    kind: NormKind,
    weight: Values<'a>,
    bias: Option<Values<'a>>,
    eps: f32,
}

impl Parameters<'_> {
    /// Returns the candle operation that applies the norm with these parameters.
    pub(super) fn op(&self) -> NormOp<'_> {
        let bias = self.bias.as_deref().unwrap_or(&[]);
        NormOp { kind: self.kind, weight: &self.weight, bias, eps: self.eps }
    }
}

impl Norm {
    /// Makes a norm from the parameters `weight` and, for a layer norm, `bias` of `vb`.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape, or if `width` is 0.
    pub fn load(kind: NormKind, width: usize, eps: f64, vb: &VarBuilder<'_>) -> Result<Self> {
        check_width(width)?;
        let one = if kind == NormKind::RmsPlusOne { 0.0 } else { 1.0 };
        let weight = vb.get_with_hints(width, "weight", Init::Const(one))?;
        let bias = match kind {
            NormKind::Layer => Some(vb.get_with_hints(width, "bias", Init::Const(0.0))?),
            NormKind::Rms | NormKind::RmsPlusOne => None,
        };
        Ok(Norm { kind, weight, bias, eps })
    }

    /// Makes a layer norm without a bias from the parameter `weight` of `vb`.
    ///
    /// # Errors
    /// Returns an error if the tensor in `vb` is missing or has another shape, or if `width` is 0.
    pub fn load_without_bias(width: usize, eps: f64, vb: &VarBuilder<'_>) -> Result<Self> {
        check_width(width)?;
        let weight = vb.get_with_hints(width, "weight", Init::Const(1.0))?;
        let bias = Some(weight.zeros_like()?.detach());
        Ok(Norm { kind: NormKind::Layer, weight, bias, eps })
    }

    /// Returns the parameters of the norm, without copying their values.
    pub(super) fn read(&self) -> Result<Parameters<'_>> {
        let Norm { kind, weight, bias, eps } = self;
        let (weight, bias) = (Values::of(weight)?, bias.as_ref().map(Values::of).transpose()?);
        Ok(Parameters { kind: *kind, weight, bias, eps: *eps as f32 })
    }

    /// Returns whether the operation of [`Parameters::op`] can be applied to `x`. The operation needs tensors of `f32`
    /// on the CPU without gradients, and rows as long as the weight.
    pub(super) fn takes(&self, x: &Tensor) -> bool {
        let all = [Some(x), Some(&self.weight), self.bias.as_ref()];
        takes(&all.into_iter().flatten().collect::<Vec<_>>())
            && x.dims().last().is_some_and(|width| self.weight.dims() == [*width])
    }

    /// Applies the norm to every row of `x`.
    ///
    /// # Errors
    /// Returns an error if the last dimension of `x` is not the length of the weight.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.takes(x) {
            return Ok(x.contiguous()?.apply_op1_no_bwd(&self.read()?.op())?);
        }
        let dtype = x.dtype();
        let x = x.to_dtype(DType::F32)?;
        let x = match self.kind {
            NormKind::Layer => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
            NormKind::Rms | NormKind::RmsPlusOne => x,
        };
        let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + self.eps)?.sqrt()?;
        let weight = self.weight.to_dtype(DType::F32)?;
        let weight = if self.kind == NormKind::RmsPlusOne { (weight + 1.0)? } else { weight };
        let scaled = x.broadcast_div(&scale)?.broadcast_mul(&weight)?;
        let result = match &self.bias {
            Some(bias) => scaled.broadcast_add(&bias.to_dtype(DType::F32)?)?,
            None => scaled,
        };
        Ok(result.to_dtype(dtype)?)
    }
}

/// The operation of candle that applies a norm to every row of a tensor, without gradients.
#[derive(Clone, Copy)]
pub(super) struct NormOp<'a> {
    pub(super) kind: NormKind,
    pub(super) weight: &'a [f32],
    /// The bias; empty for kinds of norms without bias.
    pub(super) bias: &'a [f32],
    pub(super) eps: f32,
}

impl NormOp<'_> {
    /// Applies the norm to each row of `rows`, in place.
    pub(super) fn finish(&self, rows: &mut [f32]) {
        let NormOp { kind, weight, bias, eps } = *self;
        match kind {
            NormKind::Layer => wide::layer_norm(rows, weight, bias, eps),
            NormKind::Rms => wide::rms_norm(rows, weight, 0.0, eps),
            NormKind::RmsPlusOne => wide::rms_norm(rows, weight, 1.0, eps),
        }
    }
}

impl CustomOp1 for NormOp<'_> {
    fn name(&self) -> &'static str {
        "noren-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let mut out = values(x, layout)?.to_vec();
        let width = self.weight.len();
        out.par_chunks_mut(rows_at_a_time(width) * width).for_each(|rows| self.finish(rows));
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}
