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
//! | modules | contents |
//! |---|---|
//! | `input`, `values`, `context`, `reader`, `words`, `limits` | the given array; declarations, their values and words; limits of declared sizes |
//! | `align`, `decode`, `readings`, `layers`, `bias` | the dimensions of the array, its visible cells, its possible readings, one mask for each layer, numbers that are biases |
//! | `intent`, `kinds`, `expect`, `families`, `trees`, `planes`, `target` | the declared mask as terms, or with sizes that are read from the array |
//! | `edits`, `scope`, `search`, `wrong`, `held` | mistakes as edits of the declared mask, in all or some batch rows and heads, and the search for the exact one |
//! | `recognise/*`, `known`, `resemble` | expressions for cells; known masks; the mask that an undeclared array resembles |
//! | `diagnose`, `other_length`, `borders`, `stated`, `leaks`, `evidence`, `follow`, `unexplained`, `verdict`, `repair`, `report`, `catalogue` | the steps of a diagnosis, its verdict and findings, the classes of mistakes |
//! | `companions`, `packed`, `tensors` | mistakes in the arrays given with a mask |

mod align;
mod bias;
mod borders;
mod catalogue;
mod companions;
mod context;
mod decode;
mod diagnose;
mod edits;
mod evidence;
mod expect;
mod families;
mod follow;
mod held;
mod input;
mod intent;
mod kinds;
mod known;
mod layers;
mod leaks;
mod limits;
mod other_length;
mod packed;
mod planes;
mod polarity;
mod questions;
mod reader;
mod readings;
mod recognise;
mod repair;
mod report;
mod resemble;
mod rewrites;
mod scope;
mod search;
mod stated;
mod target;
mod tensors;
mod terms;
mod trees;
mod unexplained;
mod values;
mod verdict;
mod words;
mod wrong;

pub use catalogue::{Class, Example, classes};
pub use context::Context;
pub use input::Input;
pub use kinds::{Convention, MaskKind, Redaction, Role};
pub use recognise::{Recognised, recognise};
pub use report::{Certainty, Finding, Open, Report, Severity, Verdict};
pub use values::{Dtype, Numbers, Values};
pub use words::{Pooling, WindowMeans};

use noren_mask::Error;

impl Input {
    /// Runs all checks on this input and returns a report of the results.
    ///
    /// # Errors
    /// Returns an error if the arrays have shapes that no interpretation fits, or if declarations contradict the shapes. A
    /// faulty mask is not an error: the report has findings.
    pub fn diagnose(&self) -> Result<Report, Error> {
        layers::diagnose(self).unwrap_or_else(|| diagnose::diagnose(self))
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
