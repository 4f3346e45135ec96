//! [`Varlen`]: the arguments of a call over a batch of sequences.

use super::planner::{Planner, Ready, Request};
use super::sequences::{Form, Sequences};
use crate::attention::{check_keys, mismatch, output_shape};
use crate::{Bias, Element, Error, Inputs, IntoMasking, Isa, Masking, Options};
use noren_mask::{Facts, Mask, Shape, Spec, atoms};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The arguments of a call that computes attention over a batch of sequences: the sequences, and the arguments of
/// flash-attention's varlen function.
///
/// [The module](crate::varlen) has examples and a table of differences from flash-attention. The order of operations on
/// scores is: scale, softcap, ALiBi, mask, softmax with sinks.
#[derive(Clone, Debug)]
pub struct Varlen<'a> {
    pub(super) sequences: Sequences,
    causal: bool,
    window_size: [Option<i64>; 2],
    alibi_slopes: Option<&'a [f32]>,
    spec: Option<Spec>,
    facts: Vec<Facts>,
    options: Options<'a>,
}

/// The result of [`Varlen::forward`].
#[derive(Clone, PartialEq, Debug)]
pub struct VarlenOutput<T = f32> {
    /// The output, contiguous: `[tokens, heads, v_dim]` for packed sequences, `[batch, heads, q_len, v_dim]` for padded
    /// sequences. The output of a query that reads no key or belongs to no sequence is 0.
    pub out: Vec<T>,
    /// The natural logarithm of each row's softmax denominator, contiguous: `[heads, tokens]` for packed sequences,
    /// `[batch, heads, q_len]` for padded sequences. Minus infinity for a query that reads no key or belongs to no
    /// sequence.
    pub lse: Vec<f32>,
}

/// One limit of a window, as a number of tokens. An integer or an `Option` of an integer is converted to this type; -1
/// and `None` mean no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowLimit(Option<i64>);

macro_rules! window_limits {
    ($($integer:ty)*) => {$(
        impl From<$integer> for WindowLimit {
            /// Returns the limit, or no limit for -1.
            fn from(limit: $integer) -> Self {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                WindowLimit(Some(limit).filter(|limit| *limit != -1))
            }
        }

        impl From<Option<$integer>> for WindowLimit {
            /// Returns the limit, or no limit for `None` and -1.
            fn from(limit: Option<$integer>) -> Self {
                limit.map_or(WindowLimit(None), WindowLimit::from)
            }
        }
    )*};
}

window_limits!(i32 i64 u32 usize);

/// The constructor, and setters: each setter sets one argument and returns the call.
impl<'a> Varlen<'a> {
    /// Returns a call over `sequences` in which each query reads all keys of its sequence.
    pub fn new(sequences: Sequences) -> Self {
        Varlen {
            sequences,
            causal: false,
            window_size: [None; 2],
            alibi_slopes: None,
            spec: None,
            facts: Vec::new(),
            options: Options::new(),
        }
    }

    /// Sets the factor by which the dot products `q . k` are multiplied [default: `1 / sqrt(head_dim)`].
    pub fn softmax_scale(mut self, scale: impl Into<Option<f32>>) -> Self {
        self.options.scale = scale.into();
        self
    }

    /// Sets whether queries read only keys up to their own position [default: false]. The last query of a sequence has
    /// the position of its last key. `true` overrides the right limit of the window with 0.
    pub fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }

    /// Sets the window: a query at position `i` reads the keys at the positions `i - left..=i + right` of its sequence.
    /// The last query of a sequence has the position of its last key. -1 or `None` means no limit [default: -1, -1].
    pub fn window_size(mut self, left: impl Into<WindowLimit>, right: impl Into<WindowLimit>) -> Self {
        self.window_size = [left.into().0, right.into().0];
        self
    }

    /// Sets the softcap: each score becomes `softcap * tanh(score / softcap)`; 0 for no softcap [default: 0].
    pub fn softcap(mut self, softcap: f32) -> Self {
        self.options.softcap = Some(softcap).filter(|softcap| *softcap != 0.0);
        self
    }

    /// Sets the slopes of ALiBi, `[heads]` or `[sequences, heads]`: `-slope * |i - j|` is added to the score of the
    /// query at position `i` and the key at position `j`.
    pub fn alibi_slopes(mut self, slopes: impl Into<Option<&'a [f32]>>) -> Self {
        self.alibi_slopes = slopes.into();
        self
    }

    /// Sets the sinks, `[heads]`: one logit for each query head. The exponential of the logit is added only to the
    /// softmax denominator.
    pub fn sinks(mut self, sinks: impl Into<Option<&'a [f32]>>) -> Self {
        self.options.sinks = sinks.into();
        self
    }

    /// Sets a mask within each sequence, in addition to the causal limit and the window: a text, a [`Mask`] or a
    /// [`Spec`](crate::Spec) with a softcap or ALiBi. The first key of each sequence has the position 0.
    ///
    /// # Errors
    /// Returns [`Error::Parse`] if a text is not a valid mask, and [`Error::Option`] for a plan, which has fixed
    /// lengths.
    pub fn mask(mut self, mask: impl IntoMasking<'a>) -> Result<Self, Error> {
        match mask.into_masking()? {
            Masking::Spec(spec) => self.spec = Some(spec),
            _ => {
                return Err(Error::Option {
                    name: "mask",
                    given: "a plan".to_owned(),
                    problem: "a plan has fixed lengths, and the planner makes a plan for each sequence: give the mask instead of a plan"
                        .to_owned(),
                });
            }
        }
        Ok(self)
    }

    /// Sets the facts that the mask needs (data given when a mask is bound: lengths, documents, ...): one entry for
    /// each sequence, in order, or one entry for all sequences.
    pub fn facts(mut self, facts: impl Into<Vec<Facts>>) -> Self {
        self.facts = facts.into();
        self
    }

    /// Sets the number of threads [default: all threads of the current rayon pool]. No result depends on this number.
    pub fn threads(mut self, threads: impl Into<Option<usize>>) -> Self {
        self.options.threads = threads.into();
        self
    }

    /// Sets the processor path [default: see [`Isa::choose`]].
    pub fn isa(mut self, isa: impl Into<Option<Isa>>) -> Self {
        self.options.isa = isa.into();
        self
    }

    /// Sets the flag that cancels the call, as [`Options::cancel`] does.
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.options.cancel = Some(flag);
        self
    }

    /// Returns the sequences.
    pub fn sequences(&self) -> &Sequences {
        &self.sequences
    }
}

/// The options and the plan of each sequence, after all checks.
pub(super) struct Prepared<'a> {
    /// One entry with the options for all sequences, or one entry for each sequence.
    options: Vec<Options<'a>>,
    /// The plan of each sequence; `None` for a sequence without queries or without keys.
    pub(super) plans: Vec<Option<Arc<Ready>>>,
    /// The shape of the output, `[batch, heads, q_len, v_dim]`.
    pub(super) shape: [usize; 4],
}

impl<'a> Prepared<'a> {
    /// Returns the options of the sequence with the index `i`.
    pub(super) fn options(&self, i: usize) -> &Options<'a> {
        &self.options[i.min(self.options.len() - 1)]
    }
}

impl<'a> Varlen<'a> {
    /// Checks the arrays and the arguments, and gets the plans of all sequences.
    pub(super) fn prepare<T: Element>(&self, planner: &Planner, inputs: &Inputs<'_, T>) -> Result<Prepared<'a>, Error> {
        let ([batch, heads, q_len, _], [_, kv_heads, kv_len, _]) = (inputs.q.shape(), inputs.k.shape());
        check_keys(inputs)?;
        let output = output_shape(inputs)?;
        let shape = Shape::square(1).heads(heads).kv_heads(kv_heads);
        shape.check()?;
        self.sequences.check(batch, q_len, kv_len)?;
        let options = self.options(heads)?;
        options.iter().try_for_each(|options| options.check(&shape))?;
        if self.facts.len() > 1 && self.facts.len() != self.sequences.len() {
            let problem = format!(
                "there are {} sequences: give one `Facts` (the data that the mask needs) for all sequences, or one for each sequence",
                self.sequences.len()
            );
            return Err(Error::Option { name: "facts", given: format!("{} entries", self.facts.len()), problem });
        }
        let mask = self.whole_mask()?;
        let lens = self.sequences.rows.iter().map(|rows| (rows.q.len(), rows.k.len()));
        let plans = planner.plans(&Request { mask: &mask, heads, kv_heads }, &self.facts, lens)?;
        Ok(Prepared { options, plans, shape: output })
    }

    /// Returns one entry with the options for all sequences. If the slopes of ALiBi are given for each sequence,
    /// returns one entry for each sequence.
    fn options(&self, heads: usize) -> Result<Vec<Options<'a>>, Error> {
        let scores = self.spec.as_ref().map_or(&[][..], |spec| &spec.scores);
        let options = self.options.clone().with_scores(scores, heads, |score, name| {
            Err(Error::Missing {
                part: score.to_string(),
                what: format!("the array `{name}`"),
                fix:
                    "a call over sequences of different lengths accepts only the score modifiers softcap, alibi and sinks, and \
                     the array of sinks is given with Varlen::sinks"
                        .to_owned(),
            })
        })?;
        let with = |slopes: &[f32]| options.clone().bias(Bias::Alibi(slopes.to_vec()));
        match self.alibi_slopes {
            None => Ok(vec![options]),
            Some(slopes) if slopes.len() == heads => Ok(vec![with(slopes)]),
            Some(slopes) if Some(slopes.len()) == heads.checked_mul(self.sequences.len()) => {
                Ok(slopes.chunks(heads).map(with).collect())
            }
            Some(slopes) => {
                let sequences = self.sequences.len();
                let expected = format!(
                    "there are {heads} query heads and {sequences} sequences: give [heads] or [sequences, heads] slopes"
                );
                Err(mismatch("alibi_slopes", vec![slopes.len()], expected))
            }
        }
    }

    /// Returns the complete mask of the call: the cells that the mask, the causal limit and the window all allow.
    fn whole_mask(&self) -> Result<Mask, Error> {
        let [left, right] = self.window_size;
        for limit in [left, right].into_iter().flatten() {
            if !(0..=i64::from(i32::MAX)).contains(&limit) {
                let problem = "give numbers of tokens from 0 to 2147483647, or -1 for no limit".to_owned();
                return Err(Error::Option { name: "window_size", given: limit.to_string(), problem });
            }
        }
        let window = match (left, if self.causal { Some(0) } else { right }) {
            (None, None) => None,
            (None, Some(0)) => Some(atoms::causal()),
            (left, right) => Some(atoms::window(left, right)),
        };
        Ok(match (self.spec.as_ref().map(|spec| spec.mask.clone()), window) {
            (None, None) => atoms::full(),
            (Some(mask), None) | (None, Some(mask)) => mask,
            (Some(mask), Some(window)) => mask & window,
        })
    }

    /// Returns whether the sequences are packed.
    pub(super) fn is_packed(&self) -> bool {
        self.sequences.form == Form::Packed
    }
}
