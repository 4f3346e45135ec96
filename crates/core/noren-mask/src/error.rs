//! [`Error`]: the errors of this crate.

use crate::syntax::ParseError;

/// An error. Its message has the given values, the expected values, and the fix of the problem.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text cannot be parsed as a mask; the message shows the place of the problem in the text.
    #[error(transparent)]
    Parse(#[from] ParseError),

    /// An elementary mask (atom) has invalid parameters, or its parameters do not fit the shape or the facts.
    #[error("`{atom}`: {problem}")]
    Atom {
        /// The text of the elementary mask (atom), as written in a mask.
        atom: String,
        /// The problem and the fix.
        problem: String,
    },

    /// The shape is invalid.
    #[error("shape: {0}")]
    Shape(String),

    /// A fact is malformed or contradicts the shape.
    #[error("facts: {fact}: {problem}")]
    Fact {
        /// The name of the fact.
        fact: String,
        /// The problem and the fix.
        problem: String,
    },

    /// The mask needs a fact that was not given.
    #[error("`{part}` needs {what}: {fix}")]
    Missing {
        /// The text of the elementary mask (atom) that needs the fact, as written in a mask.
        part: String,
        /// The fact that is missing.
        what: String,
        /// The advice how to provide the fact.
        fix: String,
    },

    /// Another input cannot be used: masks to compare, sequences to fold, a picture, a policy, a plan, an array to check.
    #[error("{problem}")]
    Invalid {
        /// The problem, with its subject, and the fix.
        problem: String,
    },

    /// Planning or counting exceeds its [`Budget`](crate::Budget).
    #[error("{0}")]
    Budget(String),

    /// The watch function of a [`Budget`](crate::Budget) cancelled the computation.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// Returns an error about a fact that is malformed or contradicts the shape. `fact` is the name of the fact, and
    /// `problem` has the problem and the fix.
    pub fn fact(fact: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Fact { fact: fact.into(), problem: problem.into() }
    }

    /// Returns [`Error::Invalid`]. `problem` has the subject, the problem and the fix.
    pub fn invalid(problem: impl Into<String>) -> Self {
        Error::Invalid { problem: problem.into() }
    }

    /// Returns an error about an elementary mask (atom) with invalid parameters.
    pub fn atom(atom: impl std::fmt::Display, problem: impl Into<String>) -> Self {
        Error::Atom { atom: atom.to_string(), problem: problem.into() }
    }
}
