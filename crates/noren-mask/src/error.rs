//! Everything that can be wrong with what a caller gives to this crate.

use crate::syntax::ParseError;

/// What is wrong, with the values given, what was expected, and how to mend it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no mask; the message points into it.
    #[error(transparent)]
    Parse(#[from] ParseError),

    /// An atom's parameters make no sense by themselves.
    #[error("`{atom}`: {problem}")]
    Atom {
        /// The atom as it prints.
        atom: String,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// The shape makes no sense.
    #[error("shape: {0}")]
    Shape(String),

    /// A fact is malformed or contradicts the shape.
    #[error("facts: {fact}: {problem}")]
    Fact {
        /// The fact's name.
        fact: String,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// The mask needs a fact that was not given.
    #[error("`{atom}` needs {what}: {fix}")]
    Missing {
        /// The atom as it prints.
        atom: String,
        /// What it needs.
        what: String,
        /// Where to give it.
        fix: String,
    },

    /// Two masks cannot be compared.
    #[error("cannot compare: {0}")]
    Compare(String),

    /// A picture of something that is not there.
    #[error("picture: {0}")]
    Picture(String),

    /// A policy that does not read, or names what the facts do not have.
    #[error("policy: {0}")]
    Policy(String),

    /// Something that has no serial form, or a serial form that does not fit.
    #[error("plan: {0}")]
    Plan(String),

    /// Planning or counting takes more than its [`Budget`](crate::Budget) has.
    #[error("{0}")]
    Budget(String),

    /// The function that watches a [`Budget`](crate::Budget) cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// Returns the error of a fact that is malformed or contradicts the shape.
    pub fn fact(fact: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Fact { fact: fact.into(), problem: problem.into() }
    }

    /// Returns the error of a mask whose parameters are wrong.
    pub fn atom(atom: impl std::fmt::Display, problem: impl Into<String>) -> Self {
        Error::Atom { atom: atom.to_string(), problem: problem.into() }
    }
}
