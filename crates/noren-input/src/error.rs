//! [`Error`]: the reason why input is refused, and a hint on how to fix the input.

use noren_mask::Error as MaskError;
use std::fmt;

/// The reason why input is refused.
#[derive(Clone, PartialEq, Debug)]
pub struct Error {
    /// The problem, with the values that were given and the values that were expected.
    pub message: String,
    /// A hint on how to fix the input, which is printed on a line of its own.
    pub hint: Option<String>,
}

/// The result type of this crate, with [`Error`] as the error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Error { message: message.into(), hint: None }
    }

    /// Sets the hint of the error, which replaces any earlier hint.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Error { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<MaskError> for Error {
    fn from(error: MaskError) -> Self {
        let hint = hint_for(&error);
        Error { message: error.to_string(), hint: hint.map(str::to_owned) }
    }
}

/// Returns a hint for an error about a missing fact: how to give the fact on the command line. Returns `None` for other
/// errors.
fn hint_for(error: &MaskError) -> Option<&'static str> {
    let MaskError::Missing { what, .. } = error else { return None };
    let starts = |word: &str| what.starts_with(word);
    Some(match () {
        () if starts("lengths") => "for example --lengths 5,3, or --facts FILE with {\"lengths\": [5, 3]}",
        () if starts("documents") => "for example documents([5, 3]), or --facts FILE with {\"documents\": [[5, 3]]}",
        () if starts("levels") => "--facts FILE with {\"levels\": [0, 0, 2]}: one clearance level for each position",
        () if starts("the label") => {
            "--facts FILE with {\"labels\": {\"NAME\": [3, 4]}}: the positions that have the label NAME"
        }
        () if starts("the layer") => "for example --layer 0",
        () if starts("the array") => "--facts FILE with {\"arrays\": {\"NAME\": {\"keep\": [[1, 0], [1, 1]]}}}",
        () => return None,
    })
}
