//! [`Problem`]: the reason why a request fails, with a hint and the position of the fault in the mask's text.

use noren_input::Error as InputError;
use noren_mask::Error as MaskError;
use serde::{Deserialize, Serialize};

/// The reason why a request fails.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// The HTTP status of the response.
    #[serde(skip)]
    pub(crate) status: u16,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The start of the faulty part of the mask's text, in UTF-16 units, which JavaScript counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<usize>,
    /// The index, counted from 0, of the layer mask that has the error; `None` if the request has only one mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) layer: Option<usize>,
}

/// The result of a function that may fail with a `Problem`.
pub(crate) type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    /// Returns a problem with status 400, which means that the request is wrong.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::status(400, message)
    }

    /// Returns a problem whose response has the HTTP status `status`.
    pub(crate) fn status(status: u16, message: impl Into<String>) -> Self {
        Problem { status, message: message.into(), hint: None, start: None, end: None, layer: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn layer(mut self, layer: usize) -> Self {
        self.layer = Some(layer);
        self
    }

    /// Returns the JSON text `{"error": {...}}`.
    pub(crate) fn body(&self) -> Vec<u8> {
        serde_json::json!({ "error": self }).to_string().into_bytes()
    }
}

impl From<MaskError> for Problem {
    fn from(error: MaskError) -> Self {
        match error {
            MaskError::Parse(error) => {
                let units = |end: usize| error.text[..end.min(error.text.len())].encode_utf16().count();
                let mut problem = Problem::new(error.message.clone());
                let list = !error.expected.is_empty() && (error.expected.len() <= 4 || error.suggestion.is_none());
                let expected = list.then(|| format!("expected {}", error.expected.join(", ")));
                problem.hint = match (expected, error.suggestion.clone()) {
                    (Some(expected), Some(repair)) => Some(format!("{expected}: {repair}")),
                    (expected, repair) => expected.or(repair),
                };
                (problem.start, problem.end) = (Some(units(error.span.start)), Some(units(error.span.end)));
                problem
            }
            other => Problem::new(other.to_string()),
        }
    }
}

impl From<InputError> for Problem {
    fn from(error: InputError) -> Self {
        Problem { hint: error.hint, ..Problem::new(error.message) }
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Problem::new(format!("the request does not have the expected format: {error}"))
            .hint("/openapi.json describes the format of each request")
    }
}
