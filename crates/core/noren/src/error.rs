//! [`Error`]: all errors of this crate, from the text of a mask to the arrays of a call.

use noren_mask::ParseError;
use std::fmt;

/// An error of this crate. The message names the given value, the expected value, and how to fix the problem.
///
/// The operator `?` converts errors of parsing and binding a mask into this type. For such an error,
/// [`source`](std::error::Error::source) returns the original error. Callers can match the variants.
///
/// ```
/// use noren::{Error, attend};
///
/// let x = vec![0f32; 4 * 8];
/// let x = (&x, [1, 1, 4, 8]);
/// assert!(matches!(attend(x, x, x, "cuasal"), Err(Error::Parse(error)) if error.span == (0..6)));
/// assert!(matches!(attend(x, x, x, "padding"), Err(Error::Missing { part, .. }) if part == "padding"));
/// assert!(matches!(attend(x, x, (x.0, [1, 1, 8, 4]), "causal"), Err(Error::Shape { name: "v", .. })));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a valid mask. The inner error has the position of the problem in the text.
    Parse(Box<ParseError>),

    /// The mask, the facts (data given when a mask is bound) or the plan is invalid.
    Mask(noren_mask::Error),

    /// An elementary mask (atom) or a score modifier needs a fact (data given when a mask is bound, such as lengths) or
    /// an array that was not given.
    Missing {
        /// The text of the elementary mask (atom) or score modifier that needs the missing data.
        part: String,
        /// A phrase that names the missing fact (data given when a mask is bound) or array.
        what: String,
        /// The instruction that explains how to give the missing data.
        fix: String,
    },

    /// The numbers of queries and keys differ, and the position of the first query was not given.
    Alignment {
        /// Number of query rows.
        q_len: usize,
        /// Number of keys.
        kv_len: usize,
    },

    /// The shape and strides of a view do not fit the given memory.
    View {
        /// The name of the array, or `a view` if the caller made the view.
        name: &'static str,
        /// The requested shape.
        shape: Vec<usize>,
        /// The requested strides, in values.
        strides: Vec<isize>,
        /// The requested index of element `[0, 0, 0, 0]` in the memory, in values.
        offset: usize,
        /// The number of values in the memory.
        len: usize,
        /// The problem and how to fix it.
        problem: String,
    },

    /// An array's shape does not fit the plan or the other arrays.
    Shape {
        /// The name of the array.
        name: &'static str,
        /// The given shape.
        given: Vec<usize>,
        /// The expected shape, with the reason.
        expected: String,
    },

    /// The type of values is unknown.
    Dtype {
        /// The given name of a type.
        given: String,
    },

    /// The value of an option is invalid.
    Option {
        /// The name of the option.
        name: &'static str,
        /// The given value.
        given: String,
        /// The problem and how to fix it.
        problem: String,
    },

    /// The call was cancelled: another thread set [`Options::cancel`](crate::Options::cancel).
    Cancelled,

    /// A cache has no space for the tokens, or does not have the requested tokens.
    Cache {
        /// The problem and how to fix it.
        problem: String,
    },

    /// The processor path is unknown or not available.
    Isa {
        /// The requested processor path.
        given: String,
        /// The problem and the available processor paths.
        problem: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parse(error) => error.fmt(f),
            Error::Mask(error) => error.fmt(f),
            Error::Missing { part, what, fix } => write!(f, "`{part}` needs {what}: {fix}"),
            Error::Alignment { q_len, kv_len } => write!(
                f,
                "there are {q_len} queries and {kv_len} keys, but the position of the first query is missing: give query_offset({}) if the \
                 queries are the last tokens of the sequence of keys, or query_offset(0) if the queries are another sequence",
                *kv_len as i128 - *q_len as i128
            ),
            Error::View { name, shape, strides, offset, len, problem } => write!(
                f,
                "{name} of shape {shape:?} with strides {strides:?} and offset {offset} in memory of {len} values: {problem}"
            ),
            Error::Shape { name, given, expected } => write!(f, "{name} has shape {given:?} but {expected}"),
            Error::Dtype { given } => write!(f, "dtype `{given}` is not supported: choose one of f32, bf16, f16"),
            Error::Option { name, given, problem } => write!(f, "{name} is {given}: {problem}"),
            Error::Cancelled => f.write_str("the call was cancelled: the outputs are incomplete"),
            Error::Cache { problem } => write!(f, "cache: {problem}"),
            Error::Isa { given, problem } => write!(f, "ISA `{given}`: {problem}"),
        }
    }
}

impl Error {
    /// Returns the error with `array` as the name of the array, if it is an error of an array's shape or strides.
    pub(crate) fn named(mut self, array: &'static str) -> Self {
        if let Error::View { name, .. } | Error::Shape { name, .. } = &mut self {
            *name = array;
        }
        self
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Parse(error) => Some(&**error),
            Error::Mask(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        Error::Parse(Box::new(error))
    }
}

impl From<noren_mask::Error> for Error {
    fn from(error: noren_mask::Error) -> Self {
        match error {
            noren_mask::Error::Parse(error) => error.into(),
            noren_mask::Error::Missing { part, what, fix } => Error::Missing { part, what, fix },
            error => Error::Mask(error),
        }
    }
}
