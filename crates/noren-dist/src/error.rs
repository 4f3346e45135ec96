//! Everything that can be wrong with what a caller gives to this crate.

/// What is wrong, with the values given, what was expected, and how to mend it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number of ranks or nodes that makes no sense.
    #[error("ranks: {0}")]
    Ranks(String),

    /// Owners that do not fit the shape.
    #[error("owners: {0}")]
    Owners(String),

    /// A partition that was edited, written by another version or made for another mask.
    #[error("partition: {0}")]
    Partition(String),

    /// Another system has no way to say this partition.
    #[error("{target} cannot say this partition: {problem}")]
    Export {
        /// The other system.
        target: &'static str,
        /// Which part it cannot say, and what to do.
        problem: String,
    },

    /// Something wrong with the mask itself.
    #[error(transparent)]
    Mask(#[from] noren_mask::Error),
}
