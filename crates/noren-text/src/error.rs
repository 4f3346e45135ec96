//! Everything that can be wrong with what a caller gives to this crate.

use std::path::PathBuf;

/// What is wrong, with the values given, what was expected, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody knows a detector of this name.
    #[error("there is no detector `{name}`{}: known are {known}; own words, patterns and spans get a name of their own", hint(.nearest))]
    UnknownDetector {
        /// The name as given.
        name: String,
        /// The nearest known name, when one is near.
        nearest: Option<String>,
        /// All known names.
        known: String,
    },

    /// A detector cannot be made of what was given.
    #[error("detector `{name}`: {problem}")]
    Detector {
        /// Its name.
        name: String,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// A span lies outside of the text, or is none.
    #[error("span {start}..{end} of `{name}`: {problem}")]
    Span {
        /// The detector's name.
        name: String,
        /// First character.
        start: usize,
        /// The character after the last.
        end: usize,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// A tokenizer's file is missing or malformed, or it cannot read a text.
    #[error("tokenizer{}: {problem}", place(.path))]
    Tokenizer {
        /// The file, when there is one.
        path: Option<PathBuf>,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// Training data that cannot be made into rows.
    #[error("training data: {0}")]
    Data(String),
}

impl Error {
    pub(crate) fn detector(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Detector { name: name.into(), problem: problem.into() }
    }

    pub(crate) fn tokenizer(problem: impl std::fmt::Display) -> Self {
        Error::Tokenizer { path: None, problem: problem.to_string() }
    }
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

fn place(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default()
}
