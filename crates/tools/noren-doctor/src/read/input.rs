//! [`Input`]: a mask with its declarations and the other given arrays, such as token ids.

use crate::read::context::Context;
use crate::read::kinds::Role;
use crate::read::values::Values;
use noren_mask::batch::{Options, Readings, meaning, read};
use noren_mask::{BoundMask, Error, Facts, Spec};
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
    /// True if the name of the mask in its file states that it has one row of keys for each batch row.
    pub(crate) rows_of_keys: bool,
}

/// Names of the array that is the mask among several arrays.
const MASKS: [&str; 3] = ["mask", "attn_mask", "key_padding_mask"];

impl Input {
    /// Creates the input of a diagnosis from a stored mask.
    pub fn new(mask: Values) -> Self {
        Input { mask: Some(mask), ..Input::default() }
    }

    /// Creates an input without a mask, to check other arrays such as labels, positions and pooled states.
    pub fn without_mask() -> Self {
        Input::default()
    }

    /// Creates an input from the arrays of a file. If the file has only one array, this array is the mask; otherwise the mask is the first
    /// array with one of the names `mask`, `attn_mask` and `key_padding_mask`. The name `key_padding_mask` declares the role of an array.
    /// All other arrays are added as by [`companion`](Self::companion).
    pub fn of_arrays(arrays: Vec<(String, Values)>) -> Self {
        let named = MASKS.iter().find_map(|name| arrays.iter().position(|(other, _)| other == name));
        // An `attention_mask` of queries by keys is no padding.
        let whole = || arrays.iter().position(|(name, v)| name == "attention_mask" && v.shape().len() > 2);
        let at = if arrays.len() == 1 { Some(0) } else { named.or_else(whole) };
        let (masks, beside): (Vec<_>, Vec<_>) = arrays.into_iter().enumerate().partition(|(n, _)| Some(*n) == at);
        let mask = masks.into_iter().next().map(|(_, array)| array);
        let rows_of_keys = mask.as_ref().is_some_and(|(name, _)| name == MASKS[2]);
        let input = Input { mask: mask.map(|(_, mask)| mask), rows_of_keys, ..Input::default() };
        let input = input.context(Context::default());
        beside.into_iter().fold(input, |input, (_, (name, values))| input.companion(name, values))
    }

    /// Sets the declarations about the mask, such as its kind and its convention.
    pub fn context(mut self, context: Context) -> Self {
        self.context = context;
        if self.rows_of_keys && !self.context.role_declared {
            (self.context.role, self.context.role_declared) = (Role::KeyPadding, true);
        }
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
        let name = name.into();
        let usual = usual_name(&name).filter(|usual| !self.companions.contains_key(usual));
        self.companions.insert(usual.unwrap_or(name), values);
        self
    }

    /// Returns the padding and the documents that the arrays beside the mask give; no facts if they give none or have several readings.
    pub fn facts(&self) -> Facts {
        let options = Options { pad_id: self.context.pad_id, ..Options::default() };
        let of = |keep: &dyn Fn(&str) -> bool| {
            let entries =
                self.companions.iter().filter(|(name, _)| keep(name)).map(|(name, values)| values.entry(name));
            read(&entries.collect::<Vec<_>>(), &options).and_then(Readings::one)
        };
        // Position ids that contradict the other arrays are a finding.
        of(&|_| true).or_else(|_| of(&|name| name != "position_ids")).map(|reading| reading.facts).unwrap_or_default()
    }

    /// Sets the full expression `spec` of the intended mask, bound to the shape of [`shape`](Self::shape) or, if `placed` is true, to a shape
    /// that states the positions of the queries. If nothing gives them, a mask that is correct only if the queries are the first tokens
    /// is a question.
    ///
    /// # Errors
    /// Returns an error if `spec` has score modifiers, because cells are compared.
    pub fn intended(self, spec: &Spec, bound: &BoundMask, placed: bool) -> Result<Self, Error> {
        if !spec.scores.is_empty() {
            let text = format!(
                "the intended mask `{spec}` has score modifiers, but cells are compared: give `{}`, and declare bias=alibi or bias=relative to \
                 check the bias of the array",
                spec.mask
            );
            return Err(Error::invalid(text));
        }
        let unplaced = !placed && self.context.past.is_empty() && self.context.role != Role::Cross;
        Ok(Input { unplaced, ..self.meant(bound) })
    }

    /// Sets the intended mask. The diagnosis then compares every cell with this mask and guesses nothing.
    pub fn meant(mut self, bound: &BoundMask) -> Self {
        self.meant = Some(bound.clone());
        self
    }
}

/// Returns the usual name of an array whose name has a meaning in a batch; `None` for another name. Arrays of an encoder begin with
/// `encoder_`, those of a decoder with `decoder_`.
fn usual_name(name: &str) -> Option<String> {
    let usual = |name: &str| Some(meaning(name)?.names()[0]);
    let of = |start: &str| {
        let rest = name.strip_prefix(start)?.strip_prefix('_')?;
        if rest == "mask" { Some("attention_mask") } else { usual(rest) }
    };
    let of_any = |to: &str, starts: &[&str]| Some(format!("{to}_{}", starts.iter().copied().find_map(of)?));
    usual(name)
        .map(str::to_string)
        .or_else(|| of_any("encoder", &["encoder", "source", "src", "memory"]))
        .or_else(|| of_any("decoder", &["decoder", "target", "tgt"]))
}
