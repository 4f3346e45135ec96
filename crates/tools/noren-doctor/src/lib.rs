//! The doctor: finds mistakes in attention masks that other programs made, and expressions for mask arrays.
//!
//! The doctor reads an array as it is stored, decodes its convention (keep, drop, additive) and compares its cells with the declared
//! mask. If they differ, the doctor searches for the mistake that turns the declared mask into the given one exactly. The catalogue of mistakes
//! is [`classes`].
//!
//! ```
//! use noren_doctor::{Context, Input, Values};
//! // A causal mask that allows one key too many: the one after each query.
//! let mask = Values::bools(&[3, 3], vec![true, true, false, true, true, true, true, true, true])?;
//! let context = Context::from_json(r#"{"api": "sdpa", "convention": "keep_bool", "kind": "causal"}"#)?;
//! let report = Input::new(mask).context(context).diagnose()?;
//! assert_eq!(report.classes(), ["causal_leak"]);
//! assert!(!report.fixed.unwrap().get([0, 0, 0, 1]));
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! # Where to go next
//!
//! * [`Input`]: an array with its declarations, ready to be diagnosed; [`Context`]: the declarations
//! * [`Report`], [`Verdict`], [`Finding`]: the results
//! * [`recognise`](recognise()): the smallest expression for the cells of an array
//! * `docs/doctor.md`: every mistake with its picture, usual cause and repair; `noren check` is the command
//!
//! # Modules
//!
//! | folders | contents |
//! |---|---|
//! | `read` | the given array; declarations, their values and words |
//! | `array` | the dimensions of the array, its convention and visible cells, numbers that are biases, limits of declared sizes |
//! | `intent` | the declared mask as terms; what is known from facts; mistakes as edits of the declared mask |
//! | `companions` | mistakes in the arrays given with a mask |
//! | `candidates` | masks that may have been meant, and the search for the mistake that turns one into the given cells |
//! | `recognise` | expressions for cells |
//! | `diagnose` | the steps of a diagnosis, its evidence, questions and repairs |
//! | `report`, `catalogue` | verdict and findings; the classes of mistakes |

mod array;
mod candidates;
mod catalogue;
mod companions;
mod diagnose;
mod intent;
mod read;
mod recognise;
mod report;

pub use catalogue::{Class, Example, classes};
pub use read::context::Context;
pub use read::input::Input;
pub use read::kinds::{Convention, MaskKind, Redaction, Role};
pub use read::values::{Dtype, Numbers, Values};
pub use read::words::{Pooling, WindowMeans};
pub use recognise::{Recognised, recognise};
pub use report::{Certainty, Finding, Open, Report, Severity, Verdict};

use noren_mask::Error;

impl Input {
    /// Runs all checks on this input and returns a report of the results.
    ///
    /// # Errors
    /// Returns an error if the arrays have shapes that no interpretation fits, or if declarations contradict the shapes. A
    /// faulty mask is not an error: the report has findings.
    pub fn diagnose(&self) -> Result<Report, Error> {
        diagnose::arrays::each(self, |input| {
            diagnose::layers::diagnose(input).unwrap_or_else(|| diagnose::diagnose(input))
        })
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
