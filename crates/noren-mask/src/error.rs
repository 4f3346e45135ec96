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
    #[error("`{atom}` needs {what}: {fix}")]
    Missing {
        /// The text of the elementary mask (atom), as written in a mask.
        atom: String,
        /// The fact that is missing.
        what: String,
        /// The advice how to provide the fact.
        fix: String,
    },

    /// Two masks cannot be compared.
    #[error("cannot compare: {0}")]
    Compare(String),

    /// Sequences cannot be folded into rows with shared prefixes.
    #[error("fold: {0}")]
    Fold(String),

    /// A picture cannot be drawn.
    #[error("picture: {0}")]
    Picture(String),

    /// A policy cannot be parsed, or names something that the facts do not have.
    #[error("policy: {0}")]
    Policy(String),

    /// A plan or a mask has no serial form, or a serial form is invalid.
    #[error("plan: {0}")]
    Plan(String),

    /// An array or a declaration that is given to a check cannot be used.
    #[error("{0}")]
    Input(String),

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

    /// Returns an error about an elementary mask (atom) with invalid parameters.
    pub fn atom(atom: impl std::fmt::Display, problem: impl Into<String>) -> Self {
        Error::Atom { atom: atom.to_string(), problem: problem.into() }
    }
}
