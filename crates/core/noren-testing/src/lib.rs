//! Helpers that the tests of several crates share. No crate depends on this crate outside of tests and benchmarks.

pub mod awkward;
pub mod batches;
pub mod cases;
pub mod cells;
mod check;
pub mod drawn;
pub mod long;
mod seeds;
pub mod structured;

pub use check::check;
pub use seeds::replay;
