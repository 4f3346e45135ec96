//! Blocks of keys, keys that are packed for a tile, and keys that a cache stores.

pub(crate) mod blocks;
pub(crate) mod pack;
pub(crate) mod store;
