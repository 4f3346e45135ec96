//! The errors of this crate.

/// An error of this crate. The text contains the given value, the expected value, and how to fix the problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid number of ranks or nodes, or an invalid size or cost of the data that ranks send.
    #[error("ranks: {0}")]
    Ranks(String),

    /// A stored partition is invalid: it was edited, was written by another version, or belongs to another mask.
    #[error("partition: {0}")]
    Partition(String),

    /// The library for which a partition is exported cannot express the partition.
    #[error("{target} cannot express this partition: {problem}")]
    Export {
        /// Name of the library for which the partition was exported.
        target: &'static str,
        /// The part of the partition that the library in `target` cannot express, and how to fix it.
        problem: String,
    },

    /// An error of the mask, from `noren-mask`.
    #[error(transparent)]
    Mask(#[from] noren_mask::Error),
}
