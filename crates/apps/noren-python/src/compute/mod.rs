//! Attention over arrays: in one call, with a cache, and over a process group.

pub(crate) mod attention;
pub(crate) mod cache;
pub(crate) mod distributed;
pub(crate) mod ranks;
