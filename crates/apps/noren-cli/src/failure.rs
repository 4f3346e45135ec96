//! [`Failure`]: the error that ends a command, with a hint for the user.

use noren_input::Error;
use noren_mask::Error as MaskError;
use std::fmt;
use std::io;

/// The error that ends a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error in an argument or in an input file. The exit code is 2.
    Input(Error),
    /// An error of writing the output. A closed pipe (`noren show ... | head`) is not an error.
    Output(io::Error),
}

/// The result type of commands.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates an error without a hint.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure::Input(Error::new(message))
    }

    /// Returns the error with `hint`, a suggestion how to fix the problem. An earlier hint is replaced.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        match self {
            Failure::Input(error) => Failure::Input(error.hint(hint)),
            other => other,
        }
    }

    /// Returns the error with `what` before the message, such as a file name: `facts.json: not valid JSON`.
    pub(crate) fn of(self, what: impl fmt::Display) -> Self {
        match self {
            Failure::Input(error) => Failure::Input(Error { message: format!("{what}: {}", error.message), ..error }),
            other => other,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Input(error)
    }
}

impl From<MaskError> for Failure {
    fn from(error: MaskError) -> Self {
        Failure::Input(error.into())
    }
}
