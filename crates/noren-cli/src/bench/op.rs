//! [`Op`]: the operations that are measured.

use std::fmt;

/// An operation to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Op {
    /// All queries of a sequence
    Forward,
    /// The gradients of all queries, keys and values, from what the forward pass gave
    Backward,
    /// One new token over a cache: appended, planned, computed
    Decode,
}

impl Op {
    /// All operations.
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
