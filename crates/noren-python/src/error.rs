//! Converts Rust errors to Python exceptions with the same messages.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::{PyErr, create_exception};

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
            crate::function::explained(&text, raised)
        }
    }
}

/// The maximum number of characters of a value in an error message.
const SHOWN: usize = 120;

/// Returns a value as error messages show it, cut after [`SHOWN`] characters.
pub(crate) fn repr(object: &Bound<'_, PyAny>) -> String {
    let text = object.repr().map_or_else(|_| "it".to_owned(), |text| text.to_string());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}
