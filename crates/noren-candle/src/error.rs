//! Everything that can be wrong with what a caller gives to this crate.

use std::path::PathBuf;

/// What is wrong, with the values given, what was expected, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mask, its facts, or attention's own inputs are wrong.
    #[error(transparent)]
    Noren(#[from] noren::Error),

    /// A tokenizer or training data.
    #[error(transparent)]
    Text(#[from] noren_text::Error),

    /// The tensor library refuses: shapes, types, memory.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),

    /// A tensor has the wrong shape or type for what it is to be.
    #[error("{name} is {given}: {expected}")]
    Tensor {
        /// Which tensor.
        name: String,
        /// Its shape and type.
        given: String,
        /// What was expected, and how to mend it.
        expected: String,
    },

    /// A file of a model cannot be read or does not make sense.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong and how to mend it.
        problem: String,
    },

    /// The configuration of a model does not make sense, or describes what this crate does not compute.
    #[error("config.json: {key} is {given}: {expected}")]
    Config {
        /// The key.
        key: String,
        /// Its value.
        given: String,
        /// What was expected.
        expected: String,
    },

    /// Tokens, lengths or settings that a model cannot take.
    #[error("{name} is {given}: {expected}")]
    Input {
        /// Which input.
        name: String,
        /// What was given.
        given: String,
        /// What was expected, and how to mend it.
        expected: String,
    },
}

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl From<noren::noren_mask::ParseError> for Error {
    fn from(error: noren::noren_mask::ParseError) -> Self {
        Error::Noren(error.into())
    }
}

impl From<noren::noren_mask::Error> for Error {
    fn from(error: noren::noren_mask::Error) -> Self {
        Error::Noren(error.into())
    }
}

impl Error {
    /// Returns a tensor that does not fit, with its shape and type.
    pub(crate) fn tensor(name: &str, given: &candle_core::Tensor, expected: impl Into<String>) -> Self {
        let given = format!("{:?} of {:?}", given.dims(), given.dtype());
        Error::Tensor { name: name.to_owned(), given, expected: expected.into() }
    }

    /// Returns an input that a model cannot take.
    pub(crate) fn input(name: &str, given: impl ToString, expected: impl Into<String>) -> Self {
        Error::Input { name: name.to_owned(), given: given.to_string(), expected: expected.into() }
    }

    /// Returns a file that cannot be used.
    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Error::File { path: path.into(), problem: problem.into() }
    }

    /// Returns a configuration that makes no sense.
    pub(crate) fn config(key: &str, given: impl ToString, expected: impl Into<String>) -> Self {
        Error::Config { key: key.to_owned(), given: given.to_string(), expected: expected.into() }
    }
}

/// Inside candle's own traits an error has to be one of candle's.
pub(crate) fn into_candle(error: impl Into<Error>) -> candle_core::Error {
    match error.into() {
        Error::Candle(error) => error,
        other => candle_core::Error::wrap(other),
    }
}
