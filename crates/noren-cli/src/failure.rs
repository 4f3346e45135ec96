//! [`Failure`]: why a command stops, in words, and what to try.

use noren_mask::Error as MaskError;
use std::fmt;
use std::io;

/// The error that ends a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something in what was given is wrong: exit code 2.
    Input {
        /// What is wrong, with the values given and what was expected.
        message: String,
        /// What to try, as a line of its own.
        hint: Option<String>,
    },
    /// The output cannot be written. A reader that has gone away (`noren show ... | head`) is no error and never gets here.
    Output(io::Error),
}

/// The result type of commands.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An error without a hint.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure::Input { message: message.into(), hint: None }
    }

    /// The same with a hint, in place of any that it had.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        match self {
            Failure::Input { message, .. } => Failure::Input { message, hint: Some(hint.into()) },
            other => other,
        }
    }

    /// The same, said of `what`: `facts.json: not valid JSON`.
    pub(crate) fn of(self, what: impl fmt::Display) -> Self {
        match self {
            Failure::Input { message, hint } => Failure::Input { message: format!("{what}: {message}"), hint },
            other => other,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

impl From<noren_input::Error> for Failure {
    fn from(error: noren_input::Error) -> Self {
        Failure::Input { message: error.message, hint: error.hint }
    }
}

impl From<MaskError> for Failure {
    fn from(error: MaskError) -> Self {
        noren_input::Error::from(error).into()
    }
}
