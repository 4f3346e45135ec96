//! [`Varlen`]: the arguments of a call over a batch of sequences.

use super::planner::{Planner, Ready, Request};
use super::sequences::{Form, Sequences};
use crate::attention::mismatch;
use crate::inputs::options::MOST_DIM;
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
    softmax_scale: Option<f32>,
    causal: bool,
    window_size: [Option<i64>; 2],
    softcap: f32,
    alibi_slopes: Option<&'a [f32]>,
    sinks: Option<&'a [f32]>,
    spec: Option<Spec>,
    facts: Vec<Facts>,
    threads: Option<usize>,
    isa: Option<Isa>,
    cancel: Option<&'a AtomicBool>,
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
            softmax_scale: None,
            causal: false,
            window_size: [None; 2],
            softcap: 0.0,
            alibi_slopes: None,
            sinks: None,
            spec: None,
            facts: Vec::new(),
            threads: None,
            isa: None,
            cancel: None,
        }
    }

    /// Sets the factor by which the dot products `q . k` are multiplied [default: `1 / sqrt(head_dim)`].
    pub fn softmax_scale(mut self, scale: impl Into<Option<f32>>) -> Self {
        self.softmax_scale = scale.into();
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
        self.softcap = softcap;
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
        self.sinks = sinks.into();
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
        self.threads = threads.into();
        self
    }

    /// Sets the processor path [default: see [`Isa::choose`]].
    pub fn isa(mut self, isa: impl Into<Option<Isa>>) -> Self {
        self.isa = isa.into();
        self
    }

    /// Sets the flag that cancels the call, as [`Options::cancel`] does.
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
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
    pub(super) fn prepare<T: Element>(
        &self,
        planner: &Planner,
        Inputs { q, k, v }: &Inputs<'_, T>,
    ) -> Result<Prepared<'a>, Error> {
        let ([batch, heads, q_len, head_dim], [_, kv_heads, kv_len, _]) = (q.shape(), k.shape());
        let v_dim = v.shape()[3];
        for (name, given, expected, width) in [
            ("k", k.shape(), [batch, kv_heads, kv_len, head_dim], "head_dim"),
            ("v", v.shape(), [batch, kv_heads, kv_len, v_dim], "v_dim"),
        ] {
            if given != expected {
                let expected = format!(
                    "the shapes of the other arrays require the shape [batch, kv_heads, tokens, {width}] = {expected:?}: give arrays whose sizes fit each other"
                );
                return Err(mismatch(name, given.to_vec(), expected));
            }
        }
        for (name, given) in [("q", q.shape()), ("v", v.shape())] {
            if given[3] > MOST_DIM {
                let expected = "the length of the last dimension can be at most 2^24".to_owned();
                return Err(mismatch(name, given.to_vec(), expected));
            }
        }
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
        let elements = [batch, heads, q_len, v_dim].iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if elements.is_none_or(|n| n > isize::MAX as usize / 4) {
            return Err(mismatch(
                "v",
                v.shape().to_vec(),
                "the output would not fit into memory: give a v with a smaller last dimension".to_owned(),
            ));
        }
        let mask = self.whole_mask()?;
        let lens = self.sequences.rows.iter().map(|rows| (rows.q.len(), rows.k.len()));
        let plans = planner.plans(&Request { mask: &mask, heads, kv_heads }, &self.facts, lens)?;
        Ok(Prepared { options, plans, shape: [batch, heads, q_len, v_dim] })
    }

    /// Returns one entry with the options for all sequences. If the slopes of ALiBi are given for each sequence,
    /// returns one entry for each sequence.
    fn options(&self, heads: usize) -> Result<Vec<Options<'a>>, Error> {
        let scores = self.spec.as_ref().map_or(&[][..], |spec| &spec.scores);
        let mut options = Options::new().scale(self.softmax_scale).threads(self.threads).isa(self.isa);
        options.softcap = Some(self.softcap).filter(|softcap| *softcap != 0.0);
        (options.sinks, options.cancel) = (self.sinks, self.cancel);
        let options = options.with_scores(scores, heads, |score, name| {
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
