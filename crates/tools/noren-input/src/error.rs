//! [`Error`]: the reason why input is refused, and a hint on how to fix the input.

use noren_mask::Error as MaskError;
use std::fmt;

/// The reason why input is refused.
#[derive(Clone, PartialEq, Debug)]
pub struct Error {
    /// The problem, with the values that were given and the values that were expected.
    pub message: String,
    /// A hint on how to fix the input, which is printed on a separate line.
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
        let message = match &error {
            // the name of an argument of the library is no name for users of the command
            MaskError::Fact { fact, problem } if ["mask", "context"].contains(&fact.as_str()) => problem.clone(),
            error => error.to_string(),
        };
        // The limits of the library have no options, except --steps, which `noren plan` names in a hint.
        let message =
            message.split(", or allow more (`Budget").next().unwrap_or(&message).replace("(block_q)", "(--block-q)");
        Error { message, hint: hint.map(str::to_owned) }
    }
}

/// Returns a hint on how to give a missing fact (data that a mask needs, such as lengths) on the command line; `None`
/// if the error is not about a missing fact.
fn hint_for(error: &MaskError) -> Option<&'static str> {
    let MaskError::Missing { what, .. } = error else { return None };
    let starts = |word: &str| what.starts_with(word);
    Some(match () {
        () if starts("lengths") => {
            "give for example --lengths 5,3, or --facts FILE with a file that contains {\"lengths\": [5, 3]}"
        }
        () if starts("documents") => {
            "write for example documents([5, 3]), or give --facts FILE with a file that contains {\"documents\": [[5, 3]]}"
        }
        () if starts("levels") => {
            "give --facts FILE with a file that contains one clearance level for each position, such as {\"levels\": [0, 0, 2]}"
        }
        () if starts("the label") => {
            "give --facts FILE with a file that contains the positions of the label, such as {\"labels\": {\"NAME\": [3, 4]}}"
        }
        () if starts("the layer") => "give for example --layer 0",
        () if starts("the array") => {
            "give --facts FILE with a file that contains the cells of the array, such as {\"arrays\": {\"NAME\": {\"keep\": [[1, 0], [1, 1]]}}}"
        }
        () => return None,
    })
}
