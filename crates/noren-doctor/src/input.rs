//! [`Input`]: a mask with its declarations and the other given arrays, such as token ids.

use super::context::Context;
use super::values::Values;
use noren_mask::BoundMask;
use std::collections::BTreeMap;

/// A mask with its declarations and the other given arrays (such as token ids), ready for a diagnosis.
#[derive(Clone, Debug, Default)]
pub struct Input {
    pub(crate) mask: Option<Values>,
    pub(crate) companions: BTreeMap<String, Values>,
    pub(crate) context: Context,
    pub(crate) meant: Option<BoundMask>,
    /// True if nothing gives the positions of the queries of `meant`: they are assumed to be the last tokens.
    pub(crate) unplaced: bool,
}

impl Input {
    /// Creates the input of a diagnosis from a stored mask.
    pub fn new(mask: Values) -> Self {
        Input { mask: Some(mask), ..Input::default() }
    }

    /// Creates an input without a mask, to check other arrays such as labels, positions and pooled states.
    pub fn without_mask() -> Self {
        Input::default()
    }

    /// Creates an input from the arrays of a file. If the file has only one array, this array is the mask; otherwise
    /// the mask is the array named `mask`. All other arrays are added as by [`companion`](Self::companion).
    pub fn of_arrays(arrays: Vec<(String, Values)>) -> Self {
        let only = arrays.len() == 1;
        let (masks, beside): (Vec<_>, Vec<_>) = arrays.into_iter().partition(|(name, _)| only || name == "mask");
        let input = masks.into_iter().next_back().map_or_else(Input::without_mask, |(_, mask)| Input::new(mask));
        beside.into_iter().fold(input, |input, (name, values)| input.companion(name, values))
    }

    /// Sets the declarations about the mask, such as its kind and its convention.
    pub fn context(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// Returns the mask; `None` if no mask is given.
    pub fn mask(&self) -> Option<&Values> {
        self.mask.as_ref()
    }

    /// Replaces the mask and keeps the declarations and the other arrays, for example to check a repaired mask.
    pub fn with_mask(self, mask: Values) -> Self {
        Input { mask: Some(mask), ..self }
    }

    /// Returns the declarations about the mask.
    pub fn declared(&self) -> &Context {
        &self.context
    }

    /// Adds an array given with the mask: `input_ids`, `position_ids`, `segment_ids`, `lengths`, `labels`,
    /// `kv_positions`, `parents`, `hidden`, `pooled`, `probabilities`, ...
    pub fn companion(mut self, name: impl Into<String>, values: Values) -> Self {
        self.companions.insert(name.into(), values);
        self
    }

    /// States that nothing gives the positions of the queries of the intended mask, which is bound as if they were the last tokens. A
    /// mask that is correct only if they are the first tokens is then a question.
    pub fn unplaced(self) -> Self {
        Input { unplaced: true, ..self }
    }

    /// Sets the full expression of the intended mask. The diagnosis then compares every cell with this expression and
    /// guesses nothing.
    pub fn meant(mut self, bound: &BoundMask) -> Self {
        self.meant = Some(bound.clone());
        self
    }
}
