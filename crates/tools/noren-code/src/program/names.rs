//! [`Names`]: gives each variable of generated code a different name.

use std::collections::HashSet;

/// Names that variables must not get: words of the languages, and names that generated code uses for other purposes.
const RESERVED: &str = "and as assert async await b batch bool break class continue def del elif else except finally for from \
    global h heads helper if import in is jax jnp k keep keras key kv_idx lambda loop math mask mask_mod model mod node nonlocal none np nr numpy \
    not onnx or output pass q q_idx query raise return row score score_mod scores self torch transformers try type value while \
    weights with yield F nn bias slopes relative soft sinks softcap facts shape spec bound array near one_of in_ranges \
    same_range philox drawn words attention attn_mask attention_mask block_mask key_padding_mask sdpa_mask start end int len \
    range list enumerate abs sum zip set row_lengths row_ranges document document_lengths document_starts parents parent path \
    chosen number top pick slot ends length run run_parents run_lengths cells first highest total reach sink layer encoder src \
    device sorted min max numbers attend plan inputs outputs graph feeds session onnx_model TensorProto ReferenceEvaluator true false True False None fn let mut pub use match move ref impl trait struct enum";

/// The reserved names that are allowed for arrays of score modifiers.
const ARRAYS: [&str; 4] = ["bias", "relative", "soft", "sinks"];

/// The names that new variables must not get: the reserved names, the names of variables, and `NAME_ranges` for each
/// variable `NAME`.
pub(crate) struct Names(HashSet<String>);

impl Names {
    pub(crate) fn new() -> Self {
        Names(RESERVED.split_whitespace().map(str::to_string).collect())
    }

    /// Returns `name`; if `name` is reserved or already used, `name` with the first free number at its end, such as
    /// `causal_2`.
    pub(crate) fn fresh(&mut self, name: &str) -> String {
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        // the code of a table may also use the name of its ranges
        let used = |name: &str| self.0.contains(name) || self.0.contains(&format!("{name}_ranges"));
        let free = std::iter::once(name.to_string()).chain(numbered).find(|name| !used(name)).unwrap_or_default();
        self.0.insert(format!("{free}_ranges"));
        self.0.insert(free.clone());
        free
    }

    /// Converts a text to a part of a variable name: letters, digits and underscores, in lower case.
    pub(crate) fn word(text: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let word: String = text.chars().take(40).map(plain).collect();
        match word.trim_matches('_') {
            "" => "label".into(),
            word => word.into(),
        }
    }

    /// Returns `text` if it can be the name of an array, otherwise `array_` and the letters and digits of `text`.
    pub(crate) fn variable(text: &str) -> String {
        let first = |c: char| c.is_ascii_alphabetic();
        let plain = text.len() <= 40 && text.chars().all(|c| first(c) || c == '_' || c.is_ascii_digit());
        let reserved = RESERVED.split_whitespace().any(|word| word == text) && !ARRAYS.contains(&text);
        match plain && text.starts_with(first) && !reserved {
            true => text.into(),
            false => format!("array_{}", Names::word(text)),
        }
    }
}
