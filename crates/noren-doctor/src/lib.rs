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
mod intent;
mod known;
mod layers;
mod leaks;
mod limits;
mod planes;
mod reader;
mod readings;
mod recognise;
mod report;
mod resemble;
mod scope;
mod search;
mod stated;
mod tensors;
mod trees;
mod unexplained;
mod values;
mod verdict;
mod words;

pub use catalogue::{Class, Example, classes};
pub use context::{Context, Convention, MaskKind, Redaction, Role};
pub use recognise::{Recognised, recognise};
pub use report::{Certainty, Finding, Report, Severity};
pub use values::{Dtype, Numbers, Values};
pub use verdict::{Open, Verdict};
pub use words::{Pooling, WindowMeans};

use noren_mask::{BoundMask, Error, Keep};
use std::collections::BTreeMap;

/// A mask with all that is known about it, ready to be diagnosed.
#[derive(Clone, Debug, Default)]
pub struct Patient {
    mask: Option<Values>,
    companions: BTreeMap<String, Values>,
    context: Context,
    meant: Option<(Keep, String)>,
}

impl Patient {
    /// A mask as it is stored.
    pub fn new(mask: Values) -> Self {
        Patient { mask: Some(mask), ..Patient::default() }
    }

    /// Companions only: labels, positions, pooled states.
    pub fn without_mask() -> Self {
        Patient::default()
    }

    /// The arrays of a file: the mask is the only one, or the one called `mask`; the others are its companions.
    pub fn of_arrays(arrays: Vec<(String, Values)>) -> Self {
        let only = arrays.len() == 1;
        let (masks, beside): (Vec<_>, Vec<_>) = arrays.into_iter().partition(|(name, _)| only || name == "mask");
        let patient = masks.into_iter().next_back().map_or_else(Patient::without_mask, |(_, mask)| Patient::new(mask));
        beside.into_iter().fold(patient, |patient, (name, values)| patient.companion(name, values))
    }

    /// What its owner declares.
    pub fn context(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// An array beside the mask: `input_ids`, `position_ids`, `segment_ids`, `lengths`, `labels`, `kv_positions`, `parents`,
    /// `hidden`, `pooled`, `probabilities`, ...
    pub fn companion(mut self, name: impl Into<String>, values: Values) -> Self {
        self.companions.insert(name.into(), values);
        self
    }

    /// The mask that was meant, said in full: then nothing is guessed.
    pub fn meant(mut self, bound: &BoundMask) -> Self {
        self.meant = Some((Keep::of(bound), bound.mask().to_string()));
        self
    }

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
