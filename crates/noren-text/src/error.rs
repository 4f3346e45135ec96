//! The errors of this crate.

use std::path::PathBuf;

/// An error, with the given values, the expected ones, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no detector of this name.
    #[error("there is no detector `{name}`{}: known are {known}; give words, patterns and spans of your own another name", hint(.nearest))]
    UnknownDetector {
        /// The given name.
        name: String,
        /// The nearest known name, if there is a similar one.
        nearest: Option<String>,
        /// All known names.
        known: String,
    },

    /// The data for a detector are invalid.
    #[error("detector `{name}`: {problem}")]
    Detector {
        /// The name of the detector.
        name: String,
        /// The fault, and how to fix it.
        problem: String,
    },

    /// A span is outside the text or empty.
    #[error("span {start}..{end} of `{name}`: {problem}")]
    Span {
        /// The name of the detector.
        name: String,
        /// The first character.
        start: usize,
        /// The character after the last.
        end: usize,
        /// The fault, and how to fix it.
        problem: String,
    },

    /// A tokenizer's file is missing or malformed, or the tokenizer cannot read a text.
    #[error("tokenizer{}: {problem}", place(.path))]
    Tokenizer {
        /// The path of the file, if there is one.
        path: Option<PathBuf>,
        /// The fault, and how to fix it.
        problem: String,
    },

    /// Training data that cannot be packed into rows.
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
