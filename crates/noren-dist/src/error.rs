//! The errors of this crate.

/// An error of partitions. The text names the given value, the expected value, and the repair.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid number of ranks or nodes.
    #[error("ranks: {0}")]
    Ranks(String),

    /// Owners of tokens that do not fit the shape or the number of ranks.
    #[error("owners: {0}")]
    Owners(String),

    /// A partition that was edited, was written by another version, or belongs to another mask.
    #[error("partition: {0}")]
    Partition(String),

    /// A partition that another system cannot express.
    #[error("{target} cannot express this partition: {problem}")]
    Export {
        /// Name of the target system.
        target: &'static str,
        /// The part of the partition that the target system cannot express, and how to fix it.
        problem: String,
    },

    /// An error of the mask.
    #[error(transparent)]
    Mask(#[from] noren_mask::Error),
}
