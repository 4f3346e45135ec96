//! The layers between two attentions: linear layers, norms, activations, dropout.
//!
//! Each layer processes every row of its input by itself; a row is a vector along the last dimension. The result of a
//! row has the same bits for any number and content of other rows. Attention has the same property. The result of a
//! token therefore does not depend on the batch, padding and packing. A token that is generated with a key-value cache
//! gets the same bits as in one pass over the whole text.

mod activation;
mod finish;
mod linear;
mod mode;
mod norm;
mod product;
mod rows;
mod values;
mod wide;

pub use activation::Activation;
pub use linear::Linear;
pub use mode::Mode;
pub use norm::{Norm, NormKind};

/// Returns the processor path (set of instructions) of the operations in this module. Attention uses the same path: the
/// environment variable `NOREN_ISA` selects both. If `NOREN_ISA` is an unknown or unavailable path, attention returns
/// an error and weights cannot be packed, and the other operations use the path for any processor. Products with gradients, and products with a weight
/// that is not packed, are computed by the crate `gemm`, which chooses its path by itself.
fn isa() -> noren::Isa {
    static ISA: std::sync::OnceLock<noren::Isa> = std::sync::OnceLock::new();
    *ISA.get_or_init(|| noren::Isa::choose(None).unwrap_or(noren::Isa::Portable))
}
