//! Features of the processor: instruction sets, and tiles of AMX.

pub(crate) mod isa;
pub(crate) mod tiles;
