//! [`Op`]: the operations that are measured.

use clap::ValueEnum;
use std::fmt;

/// An operation of attention whose time `noren bench` measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Op {
    /// Forward pass over all queries of a sequence
    Forward,
    /// Gradients of all queries, keys and values, from the results of the forward pass
    Backward,
    /// One step of decoding: appends a new token to the cache, plans, and computes
    Decode,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}
