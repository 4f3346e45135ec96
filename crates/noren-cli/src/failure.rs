//! [`Failure`]: why a command stops, in words, and what to try.

use noren_mask::Error as MaskError;
use std::fmt;
use std::io;

/// Why a command stops.
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

/// What commands return.
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

impl From<MaskError> for Failure {
    fn from(error: MaskError) -> Self {
        let hint = hint_for(&error);
        Failure::Input { message: error.to_string(), hint: hint.map(str::to_owned) }
    }
}

/// How to mend, on the command line, what the library words for all its users.
fn hint_for(error: &MaskError) -> Option<&'static str> {
    let MaskError::Missing { what, .. } = error else { return None };
    let starts = |word: &str| what.starts_with(word);
    Some(match () {
        () if starts("lengths") => "for example --lengths 5,3, or --facts FILE with {\"lengths\": [5, 3]}",
        () if starts("documents") => "for example documents([5, 3]), or --facts FILE with {\"documents\": [[5, 3]]}",
        () if starts("levels") => "--facts FILE with {\"levels\": [0, 0, 2]}: one level per position",
        () if starts("the label") => "--facts FILE with {\"labels\": {\"NAME\": [3, 4]}}: the positions that carry it",
        () if starts("the layer") => "for example --layer 0",
        () if starts("the array") => "--facts FILE with {\"arrays\": {\"NAME\": {\"keep\": [[1, 0], [1, 1]]}}}",
        () => return None,
    })
}
