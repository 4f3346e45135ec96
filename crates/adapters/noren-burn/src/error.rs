//! [`Error`]: the errors of this crate.

/// An error of this crate. Its message states the given values, the expected values, and how to fix the problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of a mask, of its facts (data given with the mask, such as lengths), or of the inputs of attention.
    #[error(transparent)]
    Noren(#[from] noren::Error),

    /// A tensor with a wrong shape, type or device.
    #[error("{name} is {given}: {expected}")]
    Tensor {
        /// The name of the tensor.
        name: String,
        /// The shape, type or device of the tensor.
        given: String,
        /// The expected shape, type or device, and how to fix the problem.
        expected: String,
    },

    /// An input other than a tensor is invalid.
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

impl From<noren::ParseError> for Error {
    fn from(error: noren::ParseError) -> Self {
        Error::Noren(error.into())
    }
}

impl From<noren::noren_mask::Error> for Error {
    fn from(error: noren::noren_mask::Error) -> Self {
        Error::Noren(error.into())
    }
}

impl Error {
    /// Returns an error about the tensor `name`. `given` states the shape, the type or the device of the tensor.
    /// `expected` states the expected tensor and how to fix the problem.
    pub(crate) fn tensor(name: &str, given: impl Into<String>, expected: impl Into<String>) -> Self {
        Error::Tensor { name: name.to_owned(), given: given.into(), expected: expected.into() }
    }

    /// Returns an error about the input `name` with the value `given`. `expected` states the expected value and how to
    /// fix the problem.
    pub(crate) fn input(name: &str, given: impl ToString, expected: impl Into<String>) -> Self {
        Error::Input { name: name.to_owned(), given: given.to_string(), expected: expected.into() }
    }
}
