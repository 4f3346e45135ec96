//! Converts errors of Rust to Python exceptions with the same messages.

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyErr, create_exception};
use std::cell::RefCell;

create_exception!(noren, Error, PyValueError, "The error for an invalid mask, fact, array or option.");
create_exception!(noren, ParseError, Error, "The error for a text that is not a mask.");
create_exception!(noren, ExportError, Error, "The error for a mask that another system's format cannot express.");

/// Converts an error of a Rust crate to a Python exception.
pub(crate) fn raise(error: impl Into<noren::Error>) -> PyErr {
    match error.into() {
        noren::Error::Parse(error) => ParseError::new_err(error.to_string()),
        error => {
            let text = error.to_string();
            let raised = Error::new_err(text.clone());
            explained(&text, raised)
        }
    }
}

thread_local! {
    /// The last exception that a Python function raised on this thread, with its message. `raise` makes the exception
    /// the cause of an error whose text contains the message.
    static RAISED: RefCell<Option<(String, PyErr)>> = const { RefCell::new(None) };
}

/// Stores an exception that a Python function raised. If the next error on this thread contains `message`, the
/// exception becomes the cause of that error.
pub(crate) fn remember(message: &str, raised: PyErr) {
    RAISED.set(Some((message.to_owned(), raised)));
}

/// Returns `error`, the exception with the message `text`. If `text` contains the message of the exception that
/// [`remember`] stored, that exception becomes the cause of `error`. A stored interrupt (Ctrl-C) is returned instead of
/// `error`.
fn explained(text: &str, error: PyErr) -> PyErr {
    let Some((message, raised)) = RAISED.take() else { return error };
    if !text.contains(&message) {
        return error;
    }
    Python::attach(|py| {
        if !raised.is_instance_of::<PyException>(py) {
            return raised; // Ctrl-C
        }
        let cause = match raised.is_instance_of::<Error>(py) {
            true => raised.cause(py),
            false => Some(raised),
        };
        error.set_cause(py, cause);
        error
    })
}

/// The maximum number of characters of a value in an error message.
const SHOWN: usize = 120;

/// Returns the text of a value for error messages, cut after [`SHOWN`] characters.
pub(crate) fn repr(object: &Bound<'_, PyAny>) -> String {
    let text = object.repr().map_or_else(|_| "it".to_owned(), |text| text.to_string());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}
