use thiserror::Error as ThisError;

/// An error of a computation over ranks. If attention, its backward pass or decoding returns an error on one rank, the
/// other ranks return an error in their next call at the latest. Functions that send nothing, such as the constructors,
/// return their errors only on the rank that calls them.
#[derive(Clone, PartialEq, Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// Arrays, sizes or settings on this rank are invalid.
    #[error("{0}")]
    Input(String),
    /// The ranks are about to make different calls, or the same call with different values. No array was sent.
    #[error("{0}")]
    Disagreement(String),
    /// A rank died, left, or kept other ranks waiting for longer than the time-out. No result of the failed call can be
    /// used.
    #[error("{0}")]
    Lost(String),
    /// An error of the attention computation.
    #[error(transparent)]
    Attention(#[from] noren::Error),
    /// An error of the mask, from `noren-mask`.
    #[error(transparent)]
    Mask(#[from] noren_mask::Error),
    /// An error of the partition, from `noren-dist`.
    #[error(transparent)]
    Partition(#[from] crate::Error),
}
