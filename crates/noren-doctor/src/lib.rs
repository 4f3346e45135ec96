//! The doctor: what is wrong with a mask that somebody else made.
//!
//! It reads an array as it is stored, decodes the convention, compares with what was declared, and where they differ searches
//! for the mistake that turns the declared mask into the given one exactly. The catalogue of mistakes is [`classes`].
//!
//! ```
//! use noren_doctor::{Context, Patient, Values};
//! // A triangle one key too wide.
//! let mask = Values::bools(&[3, 3], vec![true, true, false, true, true, true, true, true, true])?;
//! let context = Context::from_json(r#"{"api": "sdpa", "convention": "keep_bool", "kind": "causal"}"#)?;
//! let report = Patient::new(mask).context(context).diagnose()?;
//! assert_eq!(report.classes(), ["causal_leak"]);
//! assert!(!report.fixed.unwrap().get([0, 0, 0, 1]));
//! # Ok::<(), noren_mask::Error>(())
//! ```

mod align;
mod bias;
mod catalogue;
mod companions;
mod context;
mod decode;
mod diagnose;
mod edits;
mod expect;
mod families;
mod follow;
mod held;
mod intent;
mod kinds;
mod known;
mod layers;
mod leaks;
mod limits;
mod patient;
mod planes;
mod reader;
mod readings;
mod recognise;
mod report;
mod resemble;
mod scope;
mod search;
mod stated;
mod target;
mod tensors;
mod trees;
mod unexplained;
mod values;
mod verdict;
mod words;

pub use catalogue::{Class, Example, classes};
pub use context::Context;
pub use kinds::{Convention, MaskKind, Redaction, Role};
pub use patient::Patient;
pub use recognise::{Recognised, recognise};
pub use report::{Certainty, Finding, Open, Report, Severity, Verdict};
pub use values::{Dtype, Numbers, Values};
pub use words::{Pooling, WindowMeans};

use noren_mask::Error;

impl Patient {
    /// Looks at everything.
    ///
    /// # Errors
    /// Shapes that no reading fits, and declarations that contradict them. A sick mask is no error.
    pub fn diagnose(&self) -> Result<Report, Error> {
        layers::diagnose(self).unwrap_or_else(|| diagnose::diagnose(self))
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
