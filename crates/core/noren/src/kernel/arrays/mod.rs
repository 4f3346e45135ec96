//! Rows of arrays of callers, prefetches of rows, and memory in whole cache lines.

pub(crate) mod ahead;
pub(crate) mod lines;
pub(crate) mod rows;
