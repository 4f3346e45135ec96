//! [`Finish`]: the operations that a linear layer applies to the rows of its matrix product, while these rows are still
//! in the processor's cache.

use super::activation::Activation;
use super::norm::NormOp;
use super::wide;
use noren::linear::{Epilogue, Weight};

/// The operations that are applied to the matrix product `x W^T` of a linear layer, in this order: bias, activation,
/// residual, norm.
#[derive(Clone, Copy, Default)]
pub(super) struct Finish<'a> {
    pub(super) bias: Option<&'a [f32]>,
    pub(super) activation: Option<Activation>,
    /// A residual, which has the shape of the matrix product and is added after the activation.
    pub(super) residual: Option<&'a [f32]>,
    pub(super) norm: Option<NormOp<'a>>,
}

impl Finish<'_> {
    /// Applies all operations except the norm to `out`, the row with the index `row` of the matrix product.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        if let Some(bias) = self.bias {
            wide::add_rows(out, bias);
        }
        self.after_bias(row, out.len(), 0, out);
    }

    /// Applies the activation and the residual to `part`: consecutive numbers, beginning at column `column`, of the row
    /// with the index `row` of the matrix product. A whole row has `width` numbers.
    #[inline]
    fn after_bias(&self, row: usize, width: usize, column: usize, part: &mut [f32]) {
        if let Some(activation) = self.activation {
            activation.in_place(part);
        }
        if let Some(residual) = self.residual {
            wide::add_rows(part, &residual[row * width + column..][..part.len()]);
        }
    }

    /// Applies the norm, if the layer has one, to `rows`, to which all other operations were applied before.
    pub(super) fn norm_rows(&self, rows: &mut [f32]) {
        if let Some(norm) = self.norm {
            norm.finish(rows);
        }
    }

    /// Returns the operations after the product with `weight`.
    pub(super) fn after<'a>(&'a self, weight: &'a Weight) -> After<'a> {
        After { finish: self, width: weight.outputs() }
    }
}

/// The operations after the product with a packed weight, which adds the bias itself.
pub(super) struct After<'a> {
    finish: &'a Finish<'a>,
    /// The number of outputs of the weight.
    width: usize,
}

impl Epilogue for After<'_> {
    fn part(&self, row: usize, output: usize, part: &mut [f32]) {
        self.finish.after_bias(row, self.width, output, part);
    }

    fn rows(&self, rows: &mut [f32]) {
        self.finish.norm_rows(rows);
    }
}
