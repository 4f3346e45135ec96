//! [`Op`]: the operations that are measured.

use std::fmt;

/// An operation of attention whose time `noren bench` measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Op {
    /// Forward pass over all queries of a sequence
    Forward,
    /// Gradients of all queries, keys and values, from the results of the forward pass
    Backward,
    /// One step of decoding: appends a new token to the cache, plans, and computes
    Decode,
}

impl Op {
    /// All operations that `noren bench` can measure.
    pub(super) const ALL: [Op; 3] = [Op::Forward, Op::Backward, Op::Decode];
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Op::Forward => "forward",
            Op::Backward => "backward",
            Op::Decode => "decode",
        })
    }
}
