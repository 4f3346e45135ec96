//! [`Finish`]: the operations on the rows of a product while they are in the cache.

use super::activation::Activation;
use super::norm::NormOp;
use super::wide;

/// The operations on the rows of a product, in this order.
#[derive(Clone, Copy, Default)]
pub(super) struct Finish<'a> {
    pub(super) bias: Option<&'a [f32]>,
    pub(super) activation: Option<Activation>,
    /// A residual of the shape of the result, which is added to it.
    pub(super) residual: Option<&'a [f32]>,
    pub(super) norm: Option<NormOp<'a>>,
}

impl Finish<'_> {
    /// Applies all operations except the norm to one row.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        if let Some(bias) = self.bias {
            wide::add_rows(out, bias);
        }
        self.after_bias(row, out.len(), 0, out);
    }

    /// Applies the operations between bias and norm to a part of a row of `width` numbers, from `column` on, while it
    /// is in the cache.
    #[inline]
    pub(super) fn after_bias(&self, row: usize, width: usize, column: usize, part: &mut [f32]) {
        if let Some(activation) = self.activation {
            activation.in_place(part);
        }
        if let Some(residual) = self.residual {
            wide::add_rows(part, &residual[row * width + column..][..part.len()]);
        }
    }

    /// Applies the norm to rows whose parts are finished.
    pub(super) fn rows(&self, rows: &mut [f32]) {
        if let Some(norm) = self.norm {
            norm.finish(rows);
        }
    }
}
