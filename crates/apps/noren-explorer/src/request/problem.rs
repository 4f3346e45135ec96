//! [`Problem`]: the reason why a request fails, with a hint and the position of the fault in the mask's text.

use crate::request::cause::Cause;
use noren_input::Error as InputError;
use noren_mask::{Error as MaskError, Shape};
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// The reason why a request fails. The struct has the size of one pointer, to its [`Fields`], so that a `Result` is
/// small.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Problem(Box<Fields>);

/// The fields of a [`Problem`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fields {
    /// The HTTP status of the response.
    #[serde(skip)]
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The index in the mask's text at which the faulty part begins, counted in UTF-16 units as in JavaScript; `None`
    /// if the problem is not in the text.
    pub(crate) start: Option<usize>,
    pub(crate) end: Option<usize>,
    /// The index of the layer whose mask has the error; the first layer is 0. `None` if the request has only one mask.
    pub(crate) layer: Option<usize>,
    /// The cause, which determines the control that the page opens and the repairs that it offers. `None` for errors in
    /// requests that the page never sends.
    pub(crate) cause: Option<Cause>,
    /// The name of the label, array, fact, size or elementary mask that the problem is about.
    pub(crate) name: Option<String>,
    /// The sizes `[batch, heads, q_len, kv_len]` of the mask that cannot be bound; `None` if they are not known.
    pub(crate) sizes: Option<[usize; 4]>,
    /// A text that makes the mask valid when it replaces the faulty part.
    pub(crate) repair: Option<String>,
}

impl Deref for Problem {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut Fields {
        &mut self.0
    }
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
        Problem(Box::new(Fields { status, message: message.into(), ..Fields::default() }))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn layer(mut self, layer: usize) -> Self {
        self.layer = Some(layer);
        self
    }

    pub(crate) fn cause(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    pub(crate) fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Stores the sizes of the mask that cannot be bound.
    pub(crate) fn of_shape(mut self, shape: &Shape) -> Self {
        self.sizes = Some([shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()]);
        self
    }

    /// Returns the JSON text `{"error": {...}}`.
    pub(crate) fn body(&self) -> Vec<u8> {
        serde_json::json!({ "error": self }).to_string().into_bytes()
    }
}

impl From<MaskError> for Problem {
    fn from(error: MaskError) -> Self {
        let (cause, name) = Cause::of(&error);
        let mut problem = match error {
            MaskError::Parse(error) => {
                let units = |end: usize| error.text[..end.min(error.text.len())].encode_utf16().count();
                let mut problem = Problem::new(error.message.clone());
                let list = !error.expected.is_empty() && (error.expected.len() <= 4 || error.suggestion.is_none());
                let expected = list.then(|| format!("expected {}", error.expected.join(", ")));
                problem.hint = match (expected, error.suggestion.clone()) {
                    (Some(expected), Some(repair)) => Some(format!("{expected}: {repair}")),
                    (expected, repair) => expected.or(repair),
                };
                problem.repair = error.suggestion.as_deref().and_then(repair);
                (problem.start, problem.end) = (Some(units(error.span.start)), Some(units(error.span.end)));
                problem
            }
            other => Problem::new(other.to_string()),
        };
        (problem.cause, problem.name) = (cause, name);
        problem
    }
}

/// Returns the name that the parser suggests in a sentence such as "did you mean `causal`?"; `None` for other
/// sentences.
fn repair(suggestion: &str) -> Option<String> {
    let name = suggestion.strip_prefix("did you mean `")?.strip_suffix("`?")?;
    (!name.contains('`')).then(|| name.to_string())
}

impl From<InputError> for Problem {
    fn from(error: InputError) -> Self {
        let mut problem = Problem::new(error.message);
        problem.hint = error.hint;
        problem
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Problem::new(format!("the request does not have the expected format: {error}"))
            .hint("/js/base/api.js describes the requests")
    }
}
