//! The errors of this crate.

use std::path::PathBuf;

/// An error of texts, tokenizers or training data. The message of the error names the given value, the expected value,
/// and how to fix the error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The given name is not the name of a detector.
    #[error("{}", unknown(.name, .nearest.as_deref(), .known))]
    UnknownDetector {
        /// The given name.
        name: String,
        /// The known name that is most similar to the given name; `None` if no name is similar.
        nearest: Option<String>,
        /// The names of all detectors, as one text.
        known: String,
    },

    /// A detector cannot be made or used: its name, pattern or word list is invalid, or its model fails.
    #[error("detector `{name}`: {problem}")]
    Detector {
        /// The name of the detector.
        name: String,
        /// The fault, and how to fix it.
        problem: String,
    },

    /// A range of characters, given by the user, that is empty or outside the text.
    #[error("span {start}..{end} of `{name}`: {problem}")]
    Span {
        /// The name of the detector.
        name: String,
        /// The index of the first character of the range, from 0.
        start: usize,
        /// The index of the character after the last character of the range.
        end: usize,
        /// The fault, and how to fix it.
        problem: String,
    },

    /// A tokenizer file that is missing or malformed, or a text that the tokenizer cannot read.
    #[error("tokenizer{}: {problem}", place(.path))]
    Tokenizer {
        /// The path of the tokenizer file, if the error occurred while this file was read; otherwise `None`.
        path: Option<PathBuf>,
        /// The fault, and how to fix it.
        problem: String,
    },

    /// Training data or training options are invalid.
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

fn unknown(name: &str, nearest: Option<&str>, known: &str) -> String {
    match nearest {
        Some(nearest) => {
            format!(
                "there is no detector `{name}` (did you mean `{nearest}`?): the detectors are {known}; detectors of your own need other names"
            )
        }
        None => {
            format!("there is no detector `{name}`: the detectors are {known}; detectors of your own need other names")
        }
    }
}

fn place(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default()
}
