//! The layers between two attentions: linear layers, norms, activations, dropout.
//!
//! Each layer treats the rows of its input (the last dimension) one by one, and a row's result has the same bits for
//! any number and content of other rows. Attention has the same property. A token's result is therefore independent of
//! batch, padding and packing, and a step with a cache equals the full pass, to the bit.

mod activation;
mod finish;
mod linear;
mod mode;
mod norm;
mod packed;
mod product;
mod rows;
mod values;
mod wide;

pub use activation::Activation;
pub use linear::Linear;
pub use mode::Mode;
pub use norm::{Norm, NormKind};

/// Returns the processor path of these operations, which is that of attention, so `NOREN_ISA` applies to both. For an
/// unknown or unavailable name, attention returns an error and these operations use the portable path. The crate `gemm`
/// computes products of gradients and of few rows, and chooses its own path.
fn isa() -> noren::Isa {
    noren::Isa::choose(None).unwrap_or(noren::Isa::Portable)
}
