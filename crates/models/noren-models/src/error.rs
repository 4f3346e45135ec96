//! [`Error`]: the errors of this crate.

use std::path::PathBuf;

/// An error of this crate. Its message states the given values, the expected values, and how to fix the problem; messages
/// of candle are not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of attention: of a mask, of the data to which it is bound, or of a tensor.
    #[error(transparent)]
    Attention(#[from] noren_candle::Error),

    /// An error of a tokenizer or of training data.
    #[error(transparent)]
    Text(#[from] noren_text::Error),

    /// A file of a model cannot be read or is invalid.
    #[error("{}: {problem}", path.display())]
    File {
        /// The path of the file or folder.
        path: PathBuf,
        /// The fault, and how to fix it.
        problem: String,
    },

    /// The configuration of a model is invalid, or describes a model that this crate cannot compute.
    #[error("config.json: {key} is {given}: {expected}")]
    Config {
        /// The key in `config.json`.
        key: String,
        /// The value of the key.
        given: String,
        /// The expected value.
        expected: String,
    },

    /// An input is invalid: tokens, lengths, tensors or settings that a model cannot use.
    #[error("{name} is {given}: {expected}")]
    Input {
        /// The name of the input.
        name: String,
        /// The given value.
        given: String,
        /// The expected value, and how to fix the problem.
        expected: String,
    },
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Converts the errors of the crates below noren-candle, as noren-candle does.
macro_rules! from_below {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error::Attention(error.into())
            }
        }
    )*};
}

from_below!(noren::Error, noren::noren_mask::ParseError, noren::noren_mask::Error, candle_core::Error);

impl Error {
    /// Returns an error about the tensor `given`, with its name, shape and type. `expected` states the expected tensor
    /// and how to fix the problem.
    pub(crate) fn tensor(name: &str, given: &candle_core::Tensor, expected: impl Into<String>) -> Self {
        let given = format!("{:?} of {:?}", given.dims(), given.dtype());
        Error::input(name, given, expected)
    }

    /// Returns an error about the input `name` with the value `given`. `expected` states the expected value and how to
    /// fix the problem.
    pub(crate) fn input(name: &str, given: impl ToString, expected: impl Into<String>) -> Self {
        Error::Input { name: name.to_owned(), given: given.to_string(), expected: expected.into() }
    }

    /// Returns an error about the file at `path`. `problem` states the fault and how to fix it.
    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Error::File { path: path.into(), problem: problem.into() }
    }

    /// Returns an error about the key `key` of `config.json` with the value `given`. `expected` states the expected
    /// value.
    pub(crate) fn config(key: &str, given: impl ToString, expected: impl Into<String>) -> Self {
        Error::Config { key: key.to_owned(), given: given.to_string(), expected: expected.into() }
    }
}
