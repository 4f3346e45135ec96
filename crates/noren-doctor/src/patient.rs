//! [`Patient`]: a mask with all that is known about it.

use super::context::Context;
use super::values::Values;
use noren_mask::{BoundMask, Keep};
use std::collections::BTreeMap;

/// A mask with all that is known about it, ready to be diagnosed.
#[derive(Clone, Debug, Default)]
pub struct Patient {
    pub(crate) mask: Option<Values>,
    pub(crate) companions: BTreeMap<String, Values>,
    pub(crate) context: Context,
    pub(crate) meant: Option<(Keep, String)>,
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
}
