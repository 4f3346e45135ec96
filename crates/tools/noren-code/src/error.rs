//! [`Error`]: the reasons why no code can be written for a mask in a target.

use crate::target::Target;

/// A reason why no code can be written for a mask in a target.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The mask does not fit its shape or its facts.
    #[error(transparent)]
    Mask(#[from] noren_mask::Error),

    /// The target cannot express a property of the mask.
    #[error("{} cannot express {part}: {advice}", .target.refuser())]
    Inexpressible {
        /// The target of the code.
        target: Target,
        /// The property of the mask that the target cannot express.
        part: String,
        /// The fix, as shown in the message.
        advice: String,
    },

    /// The mask or its facts are too large for readable code, or the mask contains a function that the caller wrote.
    #[error("{part} has no readable code: {advice}")]
    Unreadable {
        /// The part of the mask or of the facts for which no code is written.
        part: String,
        /// The fix, as shown in the message.
        advice: String,
    },
}

impl Error {
    /// Returns the error that no readable code can be written for `part`. `advice` is the fix in the message.
    pub(crate) fn unreadable(part: impl Into<String>, advice: impl Into<String>) -> Self {
        Error::Unreadable { part: part.into(), advice: advice.into() }
    }

    /// Returns the error that `target` cannot express `part`. `advice` is the fix in the message.
    pub(crate) fn inexpressible(target: Target, part: impl Into<String>, advice: impl Into<String>) -> Self {
        Error::Inexpressible { target, part: part.into(), advice: advice.into() }
    }
}
