//! [`Error`]: the errors of this crate.

/// An error of this crate. Its message states the given values, the expected values, and how to fix the problem; messages
/// of candle are not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of a mask, of the data to which it is bound, or of the inputs of attention.
    #[error(transparent)]
    Noren(#[from] noren::Error),

    /// An error of the tensor library: shapes, types, memory.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),

    /// A tensor with a wrong shape or type.
    #[error("{name} is {given}: {expected}")]
    Tensor {
        /// The name of the tensor.
        name: String,
        /// The shape and type of the tensor.
        given: String,
        /// The expected shape or type, and how to fix the problem.
        expected: String,
    },

    /// An input is invalid: a type, a device or a setting that attention cannot use.
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
    /// Returns an error about the tensor `given`, with its name, shape and type. `expected` states the expected tensor
    /// and how to fix the problem.
    pub(crate) fn tensor(name: &str, given: &candle_core::Tensor, expected: impl Into<String>) -> Self {
        let given = format!("{:?} of {:?}", given.dims(), given.dtype());
        Error::Tensor { name: name.to_owned(), given, expected: expected.into() }
    }

    /// Returns an error about the input `name` with the value `given`. `expected` states the expected value and how to
    /// fix the problem.
    pub(crate) fn input(name: &str, given: impl ToString, expected: impl Into<String>) -> Self {
        Error::Input { name: name.to_owned(), given: given.to_string(), expected: expected.into() }
    }
}

/// Converts an error to candle's error type, which the functions of candle's traits must return.
pub(crate) fn into_candle(error: impl Into<Error>) -> candle_core::Error {
    match error.into() {
        Error::Candle(error) => error,
        other => candle_core::Error::wrap(other),
    }
}
