//! The parts that stand between two attentions: linear layers, norms, activations, dropout.
//!
//! Each treats the rows of its input (the last dimension) one by one, and a row's result has the same bits whatever other
//! rows stand beside it and however many they are. Together with attention, of which the same holds, this makes a token's
//! result independent of batch, padding and packing, and a step with a cache equal to the full pass, to the bit.

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

/// Returns the processor path of these operations: that of attention, so `NOREN_ISA` holds for both. A name in it that
/// is unknown or not available is refused by attention and means the portable path here. Products of gradients and of
/// few rows are gemm's, which chooses for itself.
fn isa() -> noren::Isa {
    noren::Isa::choose(None).unwrap_or(noren::Isa::Portable)
}
