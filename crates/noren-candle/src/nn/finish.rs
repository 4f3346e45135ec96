//! [`Finish`]: the operations that a linear layer applies after its matrix product, while the rows of the product are
//! still in the processor's cache.

use super::activation::Activation;
use super::norm::NormOp;
use super::wide;

/// The operations that are applied to the matrix product `x W^T` of a linear layer, in the order of these fields.
#[derive(Clone, Copy, Default)]
pub(super) struct Finish<'a> {
    pub(super) bias: Option<&'a [f32]>,
    pub(super) activation: Option<Activation>,
    /// The residual, which has the shape of the result and is added to the result.
    pub(super) residual: Option<&'a [f32]>,
    pub(super) norm: Option<NormOp<'a>>,
}

impl Finish<'_> {
    /// Applies all operations except the norm to `out`, which is row number `row` of the product.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        if let Some(bias) = self.bias {
            wide::add_rows(out, bias);
        }
        self.after_bias(row, out.len(), 0, out);
    }

    /// Applies the activation and the residual to `part`, which holds consecutive numbers of row number `row` of the
    /// product, from column `column` on. A whole row has `width` numbers.
    #[inline]
    pub(super) fn after_bias(&self, row: usize, width: usize, column: usize, part: &mut [f32]) {
        if let Some(activation) = self.activation {
            activation.in_place(part);
        }
        if let Some(residual) = self.residual {
            wide::add_rows(part, &residual[row * width + column..][..part.len()]);
        }
    }

    /// Applies the norm, if there is one, to `rows`, after the other operations were applied to them.
    pub(super) fn rows(&self, rows: &mut [f32]) {
        if let Some(norm) = self.norm {
            norm.finish(rows);
        }
    }
}
