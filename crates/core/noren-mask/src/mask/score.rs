//! Score modifiers and [`Spec`], a mask with score modifiers.

use crate::mask::Mask;
use crate::sets::scalar::Real;
use std::ops;

/// A change of the scores or of the softmax, in addition to the mask.
///
/// The order of operations is fixed: scale, softcap, bias (`bias`, `relative`, `alibi`), soft weights, mask, softmax
/// (with sinks). The order of the score modifiers in a [`Spec`] has no meaning.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Score {
    /// Adds the named array, broadcast over `[batch, heads, q_len, kv_len]`, to the scores. Text: `bias`, `bias(name)`.
    Bias {
        /// The name of the array that is added.
        name: String,
    },
    /// Adds a number that depends on head and distance. The named table `[heads, 2 * reach + 1]` has these numbers for
    /// the distances `k - q` from `-reach` to `reach`, in column `clamp(k - q, -reach, reach) + reach`. A distance
    /// outside of this range has the number of the first or last column, whichever is nearer. Text: `relative`,
    /// `relative(name)`.
    Relative {
        /// The name of the table.
        name: String,
    },
    /// Adds `-slope[head] * |q - k|` to the scores, where `q` and `k` are the positions of query and key. [default:
    /// `2^(-8 (h + 1) / heads)` for head `h` of `heads` query heads]. Text: `alibi`, `alibi(slopes=[0.5, 0.25])`.
    Alibi {
        /// One slope per query head, or `None` for the default.
        slopes: Option<Vec<Real>>,
    },
    /// Replaces the score by `cap * tanh(score / cap)`. Text: `softcap(c)`.
    Softcap {
        /// The maximum absolute value of a score after the change, larger than 0.
        cap: Real,
    },
    /// Multiplies `exp(score)` by the array of weights with the given name. Weights are from 0 to 1, and 0 has the
    /// effect of a denied cell. Text: `soft`, `soft(name)`.
    Soft {
        /// The name under which the caller gives the array of weights.
        name: String,
    },
    /// Adds the named logits, one per query head, to the softmax's denominator only. Text: `sinks`, `sinks(name)`.
    Sinks {
        /// The name of the array of logits.
        name: String,
    },
}

/// A mask with its score modifiers. Its text form is `mask + modifier + modifier ...`.
///
/// ```
/// use noren_mask::{Spec, Score, atoms::*};
/// let spec: Spec = "causal & padding + softcap(5)".parse().unwrap();
/// assert_eq!(spec, causal() & padding() + Score::softcap(5.0));
/// assert_eq!(spec.to_string(), "causal & padding + softcap(5)");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Spec {
    /// The mask, which gives the allowed cells.
    pub mask: Mask,
    /// The score modifiers.
    pub scores: Vec<Score>,
}

impl Spec {
    /// Returns whether the query offset (position of the first query) may change the cells or the scores; see also
    /// [`Mask::uses_query_offset`].
    pub fn uses_query_offset(&self) -> bool {
        let by_distance = |score: &Score| matches!(score, Score::Relative { .. } | Score::Alibi { .. });
        self.mask.uses_query_offset() || self.scores.iter().any(by_distance)
    }
}

impl Score {
    /// Returns the score modifier that adds the array called `name`.
    pub fn bias(name: impl Into<String>) -> Self {
        Score::Bias { name: name.into() }
    }

    /// Returns the score modifier that adds numbers from the table called `name`. The table has one number for each
    /// head and distance `k - q`.
    pub fn relative(name: impl Into<String>) -> Self {
        Score::Relative { name: name.into() }
    }

    /// Returns the score modifier ALiBi, a bias that falls linearly with the distance, with the default slopes.
    pub fn alibi() -> Self {
        Score::Alibi { slopes: None }
    }

    /// Returns the score modifier ALiBi with these slopes, one for each query head.
    pub fn alibi_with(slopes: impl IntoIterator<Item = f64>) -> Self {
        Score::Alibi { slopes: Some(slopes.into_iter().map(Real::new).collect()) }
    }

    /// Returns the score modifier that replaces each score by `cap * tanh(score / cap)`.
    pub fn softcap(cap: f64) -> Self {
        Score::Softcap { cap: Real::new(cap) }
    }

    /// Returns the score modifier that multiplies `exp(score)` by the weights called `name`.
    pub fn soft(name: impl Into<String>) -> Self {
        Score::Soft { name: name.into() }
    }

    /// Returns the score modifier that adds the logits called `name`, one for each query head, to the denominator of
    /// the softmax.
    pub fn sinks(name: impl Into<String>) -> Self {
        Score::Sinks { name: name.into() }
    }

    /// Returns the default slopes of ALiBi for `heads` query heads: element `h` is the slope of head `h`,
    /// `2^(-8 (h + 1) / heads)`.
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

/// Returns a spec with the mask `self & other.mask` and the score modifiers of `other`.
///
/// In Rust and Python, the operator `+` binds tighter than `&` and `|`; in the text language, it binds less tightly.
/// Nevertheless, the score modifier in `a & b + score` applies to the whole mask `a & b` in all three languages.
impl ops::BitAnd<Spec> for Mask {
    type Output = Spec;
    fn bitand(self, other: Spec) -> Spec {
        Spec { mask: self & other.mask, scores: other.scores }
    }
}

/// Returns a spec with the mask `self | other.mask` and the score modifiers of `other`.
impl ops::BitOr<Spec> for Mask {
    type Output = Spec;
    fn bitor(self, other: Spec) -> Spec {
        Spec { mask: self | other.mask, scores: other.scores }
    }
}
