//! Operations over rows without gradients, in one pass over memory and on all threads.

use super::packed::Packed;
use super::wide;
use super::{Activation, NormKind};
use crate::error::{Error, Result, into_candle};
use candle_core::{CpuStorage, CustomOp1, CustomOp2, DType, Device, Layout, Shape, Tensor};
use gemm::Parallelism;
use rayon::prelude::*;

/// Whether these operations take a tensor, and no gradient is asked of it.
pub(super) fn takes(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|t| t.dtype() == DType::F32 && matches!(t.device(), Device::Cpu) && !t.track_op())
}

/// The values of a contiguous tensor of `f32`.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((from, to))) => Ok(&values[from..to]),
        _ => candle_core::bail!("a contiguous tensor of f32 is needed"),
    }
}

/// Calls `work` with the values of a tensor of `f32`.
fn with_values<R>(tensor: &Tensor, work: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    Ok(work(values(crate::attention::storage::cpu(&storage)?, layout)?))
}

/// Rows that a thread takes at a time: some ten thousand numbers.
fn rows_at_a_time(width: usize) -> usize {
    (16_384 / width.max(1)).max(1)
}

/// A norm of every row.
pub(super) struct NormOp<'a> {
    pub(super) kind: NormKind,
    pub(super) weight: &'a Tensor,
    pub(super) bias: Option<&'a Tensor>,
    pub(super) eps: f32,
}

impl CustomOp1 for NormOp<'_> {
    fn name(&self) -> &'static str {
        "noren-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let x = values(x, layout)?;
        let mut out = vec![0.0; x.len()];
        let mut norm = |weight: &[f32], bias: &[f32]| {
            let piece = rows_at_a_time(weight.len()) * weight.len();
            let pieces = x.par_chunks(piece).zip(out.par_chunks_mut(piece));
            pieces.for_each(|(x, out)| match self.kind {
                NormKind::Layer => wide::layer_norm(x, weight, bias, self.eps, out),
                NormKind::Rms => wide::rms_norm(x, weight, 0.0, self.eps, out),
                NormKind::RmsPlusOne => wide::rms_norm(x, weight, 1.0, self.eps, out),
            });
        };
        let done = with_values(self.weight, |weight| match self.bias {
            Some(bias) => with_values(bias, |bias| norm(weight, bias)),
            None => {
                norm(weight, &[]);
                Ok(())
            }
        });
        done.and_then(|done| done).map_err(into_candle)?;
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// `x W^T + b` and an activation, for `x` `[rows, in]` and `W` `[out, in]` with any strides.
pub(super) struct LinearOp<'a> {
    pub(super) bias: Option<&'a Tensor>,
    pub(super) activation: Option<Activation>,
    /// Added to the result, shaped as it is.
    pub(super) residual: Option<&'a Tensor>,
    /// The weight again, laid out for many rows.
    pub(super) packed: Option<&'a Packed>,
    /// Products are computed of at least so many rows, filled up with 0, unless the weight is packed.
    pub(super) least_rows: usize,
}

impl CustomOp2 for LinearOp<'_> {
    fn name(&self) -> &'static str {
        "noren-linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (rows, inputs) = x_layout.shape().dims2()?;
        let (outputs, _) = weight_layout.shape().dims2()?;
        let x = values(x, x_layout)?;
        let out = self.with_additions(|bias, residual| {
            if let Some(packed) = self.packed {
                let mut out = vec![0.0; rows * outputs];
                packed.product(x, &mut out, |row, out| {
                    let residual = residual.map(|all| &all[row * outputs..][..out.len()]);
                    self.finish(out, bias, residual);
                });
                return Ok(out);
            }
            let mut out = vec![0.0; rows.max(self.least_rows) * outputs];
            match rows < self.least_rows {
                true => {
                    let mut filled = vec![0.0; self.least_rows * inputs];
                    filled[..x.len()].copy_from_slice(x);
                    product(&filled, self.least_rows, weight, weight_layout, &mut out)?;
                }
                false => product(x, rows, weight, weight_layout, &mut out)?,
            }
            out.truncate(rows * outputs);
            let piece = rows_at_a_time(outputs) * outputs;
            out.par_chunks_mut(piece).enumerate().for_each(|(i, out)| {
                let residual = residual.map(|all| &all[i * piece..][..out.len()]);
                self.finish(out, bias, residual);
            });
            Ok::<_, candle_core::Error>(out)
        });
        Ok((CpuStorage::F32(out.map_err(into_candle)??), (rows, outputs).into()))
    }
}

impl LinearOp<'_> {
    /// Calls `work` with the bias and with what is added to the result.
    fn with_additions<R>(&self, work: impl FnOnce(Option<&[f32]>, Option<&[f32]>) -> R) -> Result<R> {
        let with_residual = |bias: Option<&[f32]>| match self.residual {
            Some(residual) => with_values(residual, |residual| work(bias, Some(residual))),
            None => Ok(work(bias, None)),
        };
        match self.bias {
            Some(bias) => with_values(bias, |bias| with_residual(Some(bias)))?,
            None => with_residual(None),
        }
    }

    /// Adds the bias, applies the activation and adds the residual to some rows, while they are near.
    fn finish(&self, out: &mut [f32], bias: Option<&[f32]>, residual: Option<&[f32]>) {
        if let Some(bias) = bias {
            wide::add_rows(out, bias);
        }
        if let Some(activation) = self.activation {
            activation.in_place(out);
        }
        if let Some(residual) = residual {
            wide::add_rows(out, residual);
        }
    }
}

/// An activation of every element.
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

/// `out = x W^T`, `[rows, outputs]`.
fn product(x: &[f32], rows: usize, weight: &CpuStorage, layout: &Layout, out: &mut [f32]) -> candle_core::Result<()> {
    let CpuStorage::F32(weight) = weight else { candle_core::bail!("a weight of f32 is needed") };
    let ((outputs, inputs), strides) = (layout.shape().dims2()?, layout.stride());
    let last = layout.start_offset() + outputs.saturating_sub(1) * strides[0] + inputs.saturating_sub(1) * strides[1];
    if x.len() != rows * inputs || out.len() != rows * outputs || last >= weight.len() {
        candle_core::bail!("a product of {rows} rows does not fit a weight of {:?}", layout.dims());
    }
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    // SAFETY: the check above makes every element of the three matrices lie inside its slice, and `out` is borrowed alone.
    unsafe {
        gemm::gemm(
            rows,
            outputs,
            inputs,
            out.as_mut_ptr(),
            1,
            outputs as isize,
            false,
            x.as_ptr(),
            1,
            inputs as isize,
            weight[layout.start_offset()..].as_ptr(),
            // The weight is read transposed: its rows are the product's columns.
            strides[0] as isize,
            strides[1] as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
    Ok(())
}

impl Activation {
    /// The function of every element, in place.
    fn in_place(self, x: &mut [f32]) {
        match self {
            Activation::Gelu => wide::gelu(x),
            Activation::GeluTanh => wide::gelu_tanh(x),
            Activation::Relu => wide::relu(x),
            Activation::Silu => wide::silu(x),
            Activation::Tanh => x.iter_mut().for_each(|x| *x = x.tanh()),
        }
    }
}

/// Refuses a product of no columns, which has no rows to speak of.
pub(super) fn check_width(width: usize) -> Result<()> {
    if width == 0 { Err(Error::input("the width of a layer", 0, "give at least 1")) } else { Ok(()) }
}
