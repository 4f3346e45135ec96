//! Score modifiers and [`Spec`], a mask with the modifiers that go with it.

use crate::mask::Mask;
use crate::scalar::Real;
use std::ops;

/// Something added or applied to the scores, or to the softmax, beside the mask.
///
/// The order of operations is fixed: scale, softcap, bias (`bias`, `relative`, `alibi`), soft weights, mask, softmax (with
/// sinks). The order in which a [`Spec`] lists them has no meaning.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Score {
    /// The named array, broadcast over `[batch, heads, q_len, kv_len]`, is added. Text: `bias`, `bias(name)`.
    Bias {
        /// Name of the array.
        name: String,
    },
    /// The named table `[heads, 2 * reach + 1]` is added by distance: entry `clamp(k - q, -reach, reach) + reach`.
    /// Text: `relative`, `relative(name)`.
    Relative {
        /// Name of the table.
        name: String,
    },
    /// `-slope[head] * |q - k|` is added. Slopes are `2^(-8 (h + 1) / heads)` unless given. Text: `alibi`,
    /// `alibi(slopes=[0.5, 0.25])`.
    Alibi {
        /// One slope for each query head.
        slopes: Option<Vec<Real>>,
    },
    /// `cap * tanh(score / cap)` replaces the score. Text: `softcap(c)`.
    Softcap {
        /// The cap, above 0.
        cap: Real,
    },
    /// The named weights in `[0, 1]` multiply `exp(score)`; 0 means not allowed. Text: `soft`, `soft(name)`.
    Soft {
        /// Name of the array.
        name: String,
    },
    /// The named logits, one for each query head, join the softmax's denominator only. Text: `sinks`, `sinks(name)`.
    Sinks {
        /// Name of the array.
        name: String,
    },
}

/// A mask and its score modifiers: the whole text form, `mask ('+' score)*`.
///
/// ```
/// use noren_mask::{Spec, Score, atoms::*};
/// let spec: Spec = "causal & padding + softcap(5)".parse().unwrap();
/// assert_eq!(spec, causal() & padding() + Score::softcap(5.0));
/// assert_eq!(spec.to_string(), "causal & padding + softcap(5)");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Spec {
    /// Which cells are allowed.
    pub mask: Mask,
    /// What is done to the scores.
    pub scores: Vec<Score>,
}

impl Score {
    /// Adds the array called `name`.
    pub fn bias(name: impl Into<String>) -> Self {
        Score::Bias { name: name.into() }
    }

    /// Adds the table called `name` by distance.
    pub fn relative(name: impl Into<String>) -> Self {
        Score::Relative { name: name.into() }
    }

    /// ALiBi with the usual slopes.
    pub fn alibi() -> Self {
        Score::Alibi { slopes: None }
    }

    /// `cap * tanh(score / cap)`.
    pub fn softcap(cap: f64) -> Self {
        Score::Softcap { cap: Real::new(cap) }
    }

    /// Multiplies `exp(score)` by the weights called `name`.
    pub fn soft(name: impl Into<String>) -> Self {
        Score::Soft { name: name.into() }
    }

    /// Adds the logits called `name` to the denominator.
    pub fn sinks(name: impl Into<String>) -> Self {
        Score::Sinks { name: name.into() }
    }

    /// The slopes ALiBi uses for `heads` query heads: `2^(-8 (h + 1) / heads)`.
    pub fn alibi_slopes(heads: usize) -> Vec<f64> {
        (0..heads).map(|h| (-8.0 * (h + 1) as f64 / heads as f64).exp2()).collect()
    }
}

impl From<Mask> for Spec {
    fn from(mask: Mask) -> Self {
        Spec { mask, scores: Vec::new() }
    }
}

impl ops::Add<Score> for Mask {
    type Output = Spec;
    fn add(self, score: Score) -> Spec {
        Spec::from(self) + score
    }
}

impl ops::Add<Score> for Spec {
    type Output = Spec;
    fn add(mut self, score: Score) -> Spec {
        self.scores.push(score);
        self
    }
}

/// `+` binds tighter than `&` and `|` in Rust and Python, looser in the text: in `a & b + score` the score belongs to the
/// whole expression in all three.
impl ops::BitAnd<Spec> for Mask {
    type Output = Spec;
    fn bitand(self, other: Spec) -> Spec {
        Spec { mask: self & other.mask, scores: other.scores }
    }
}

/// As for `&`.
impl ops::BitOr<Spec> for Mask {
    type Output = Spec;
    fn bitor(self, other: Spec) -> Spec {
        Spec { mask: self | other.mask, scores: other.scores }
    }
}
