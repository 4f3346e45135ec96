//! Exact masked attention on CPUs.
pub use noren_mask;
