use thiserror::Error as ThisError;

/// What can go wrong. What one rank knows of, the others learn at the latest in their next call.
#[derive(Clone, PartialEq, Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// Arrays or sizes that do not fit, on this rank.
    #[error("{0}")]
    Input(String),
    /// The ranks were about to compute different things; found before any array was sent.
    #[error("{0}")]
    Disagreement(String),
    /// A rank died, left, or kept the others waiting for longer than the time-out. Nothing of the step can be used.
    #[error("{0}")]
    Lost(String),
    /// From attention itself.
    #[error(transparent)]
    Attention(#[from] noren::Error),
    /// From the mask.
    #[error(transparent)]
    Mask(#[from] noren_mask::Error),
    /// From the partition.
    #[error(transparent)]
    Partition(#[from] noren_dist::Error),
}
