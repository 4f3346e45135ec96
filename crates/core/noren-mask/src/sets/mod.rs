//! Sets of indices: intervals, positions, rows of cells, their order, and the random generator.

pub mod bits;
pub(crate) mod bounds;
pub mod frame;
pub mod interval;
pub(crate) mod leaf;
pub(crate) mod order;
pub(crate) mod philox;
pub(crate) mod scalar;
pub(crate) mod set;
