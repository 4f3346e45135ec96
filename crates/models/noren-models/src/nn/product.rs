//! Defines operations of candle without gradients: a linear layer, and the two linear layers of a feed-forward part.

use super::finish::Finish;
use super::rows::rows_at_a_time;
use super::values::values;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Shape};
use gemm::Parallelism;
use noren::linear::{Linear, Weight, feed_forward};
use rayon::prelude::*;

/// The operation of candle that computes `x W^T` and then applies the operations of `then`: bias, activation, residual,
/// norm. `x` is `[rows, in]` and contiguous; `W` is `[out, in]` with any strides.
pub(super) struct LinearOp<'a> {
    pub(super) then: Finish<'a>,
    /// Minimum number of rows of the matrix product. If `x` has fewer rows, rows of 0 are added for the computation, so
    /// that a row has the same bits among any number of rows.
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
        let piece = rows_at_a_time(outputs);
        out.par_chunks_mut(piece * outputs).enumerate().for_each(|(i, out)| {
            let rows = out.chunks_exact_mut(outputs).enumerate();
            rows.for_each(|(row, out)| self.then.row(i * piece + row, out));
            self.then.norm_rows(out);
        });
        Ok((CpuStorage::F32(out), (rows, outputs).into()))
    }
}

/// The operation of candle that computes `x W^T` with a packed weight and then applies the operations of `then`. `x` is
/// `[rows, in]` and contiguous.
pub(super) struct PackedOp<'a> {
    pub(super) then: Finish<'a>,
    pub(super) weight: &'a Weight,
}

impl CustomOp1 for PackedOp<'_> {
    fn name(&self) -> &'static str {
        "noren-packed-linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let PackedOp { then, weight } = self;
        let (rows, _) = layout.shape().dims2()?;
        let after = then.after(weight);
        let layer = Linear::new(weight).bias(then.bias).epilogue(&after);
        let out = layer.forward(values(x, layout)?).map_err(candle_core::Error::wrap)?;
        Ok((CpuStorage::F32(out), (rows, weight.outputs()).into()))
    }
}

/// The operation of candle that computes `down(activation(up(x)))` and then applies the operations of `then`.
pub(super) struct FeedForwardOp<'a> {
    pub(super) up: &'a Weight,
    pub(super) between: Finish<'a>,
    pub(super) down: &'a Weight,
    pub(super) then: Finish<'a>,
}

impl CustomOp1 for FeedForwardOp<'_> {
    fn name(&self) -> &'static str {
        "noren-feed-forward"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (rows, _) = layout.shape().dims2()?;
        let FeedForwardOp { up, between, down, then } = self;
        let (after_up, after_down) = (between.after(up), then.after(down));
        let first = Linear::new(up).bias(between.bias).epilogue(&after_up);
        let second = Linear::new(down).bias(then.bias).epilogue(&after_down);
        let out = feed_forward(values(x, layout)?, first, second).map_err(candle_core::Error::wrap)?;
        Ok((CpuStorage::F32(out), (rows, down.outputs()).into()))
    }
}

/// Writes `x W^T` to `out` `[rows, outputs]`. `layout` is the layout of `weight`.
fn product(x: &[f32], rows: usize, weight: &CpuStorage, layout: &Layout, out: &mut [f32]) -> candle_core::Result<()> {
    let CpuStorage::F32(weight) = weight else { candle_core::bail!("this product needs a weight of type f32") };
    let ((outputs, inputs), strides) = (layout.shape().dims2()?, layout.stride());
    let last = layout.start_offset() + outputs.saturating_sub(1) * strides[0] + inputs.saturating_sub(1) * strides[1];
    if x.len() != rows * inputs || out.len() != rows * outputs || last >= weight.len() {
        candle_core::bail!(
            "the input or the output of a product of {rows} rows has a size that does not fit a weight of shape {:?}",
            layout.dims()
        );
    }
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    // SAFETY: after the check above, every element of the three matrices is inside its slice, and `out` is borrowed
    // exclusively.
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
