//! [`Varlen`]: the arguments of a call over a batch of sequences.

use super::planner::{Planner, Ready, Request};
use super::sequences::{Form, Sequences};
use crate::attention::mismatch;
use crate::options::MOST_DIM;
use crate::{Bias, Element, Error, Inputs, IntoMasking, Isa, Masking, Options};
use noren_mask::{Facts, Mask, Shape, Spec, atoms};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Attention over a batch of sequences: the sequences, and the arguments of flash-attention's varlen function.
///
/// [The module](crate::varlen) has examples and a table of differences. The order of operations on scores is: scale, softcap, ALiBi,
/// mask, softmax with sinks.
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
    /// The output, contiguous: `[tokens, heads, v_dim]` for packed sequences, `[batch, heads, q_len, v_dim]` for padded ones. The
    /// output of a query that reads no key, or belongs to no sequence, is 0.
    pub out: Vec<T>,
    /// The natural logarithm of each row's softmax denominator, contiguous: `[heads, tokens]` for packed sequences,
    /// `[batch, heads, q_len]` for padded ones. Minus infinity for a query that reads no key, or belongs to no sequence.
    pub lse: Vec<f32>,
}

/// One limit of a window, in tokens: -1 or `None` for no limit. Made from an integer or from an `Option` of an integer.
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

/// The arguments. Each method returns the call with one argument set.
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

    /// Sets the factor of `q . k` [default: `1 / sqrt(head_dim)`].
    pub fn softmax_scale(mut self, scale: impl Into<Option<f32>>) -> Self {
        self.softmax_scale = scale.into();
        self
    }

    /// Sets whether queries read only keys up to their own position [default: false]. The last query has the position of the last
    /// key. If true, the right limit of the window is 0.
    pub fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }

    /// Sets the window: a query at position `i` reads the keys `i - left..=i + right` of its sequence. The last query has the
    /// position of the last key. -1 or `None` is no limit [default: -1, -1].
    pub fn window_size(mut self, left: impl Into<WindowLimit>, right: impl Into<WindowLimit>) -> Self {
        self.window_size = [left.into().0, right.into().0];
        self
    }

    /// Sets the softcap: each score becomes `softcap * tanh(score / softcap)`; 0 for no softcap [default: 0].
    pub fn softcap(mut self, softcap: f32) -> Self {
        self.softcap = softcap;
        self
    }

    /// Sets the slopes of ALiBi, `[heads]` or `[sequences, heads]`: `-slope * |i - j|` is added to the score of the query at position
    /// `i` and the key at position `j`.
    pub fn alibi_slopes(mut self, slopes: impl Into<Option<&'a [f32]>>) -> Self {
        self.alibi_slopes = slopes.into();
        self
    }

    /// Sets the sinks, `[heads]`: a logit for each query head that is added to the denominator of the softmax only.
    pub fn sinks(mut self, sinks: impl Into<Option<&'a [f32]>>) -> Self {
        self.sinks = sinks.into();
        self
    }

    /// Sets a mask that also applies, within each sequence: a text, a [`Mask`] or a [`Spec`](crate::Spec) with a softcap or ALiBi.
    /// Positions count from the first key of the sequence.
    ///
    /// # Errors
    /// Returns [`Error::Parse`] if a text is not a valid mask, and [`Error::Option`] for a plan, which has fixed lengths.
    pub fn mask(mut self, mask: impl IntoMasking<'a>) -> Result<Self, Error> {
        match mask.into_masking()? {
            Masking::Spec(spec) => self.spec = Some(spec),
            _ => {
                return Err(Error::Option {
                    name: "mask",
                    given: "a plan".to_owned(),
                    problem: "a plan has fixed lengths, and the planner makes one for each sequence: give the mask"
                        .to_owned(),
                });
            }
        }
        Ok(self)
    }

    /// Sets the facts that the mask needs: one entry for each sequence, in order, or one entry for all sequences.
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
    /// The options of all sequences (one entry), or of each sequence.
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
        for (name, given, expected) in
            [("k", k.shape(), [batch, kv_heads, kv_len, head_dim]), ("v", v.shape(), [batch, kv_heads, kv_len, v_dim])]
        {
            if given != expected {
                let what = "[batch, kv_heads, tokens, head_dim]";
                let expected = format!("the other arrays require {what} = {expected:?}: give arrays of equal sizes");
                return Err(mismatch(name, given.to_vec(), expected));
            }
        }
        if head_dim > MOST_DIM || v_dim > MOST_DIM {
            return Err(mismatch("q or v", vec![head_dim, v_dim], "a row has at most 2^24 values".to_owned()));
        }
        let shape = Shape::square(1).heads(heads).kv_heads(kv_heads);
        shape.check()?;
        self.sequences.check(batch, q_len, kv_len)?;
        let options = self.options(heads)?;
        options.iter().try_for_each(|options| options.check(&shape))?;
        if self.facts.len() > 1 && self.facts.len() != self.sequences.len() {
            let problem = format!("there are {} sequences: give one entry, or one for each", self.sequences.len());
            return Err(Error::Option { name: "facts", given: format!("{} entries", self.facts.len()), problem });
        }
        let elements = [batch, heads, q_len, v_dim].iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        if elements.is_none_or(|n| n > isize::MAX as usize / 4) {
            return Err(mismatch("v", v.shape().to_vec(), "the output would not fit into memory".to_owned()));
        }
        let mask = self.whole_mask()?;
        let lens = self.sequences.rows.iter().map(|rows| (rows.q.len(), rows.k.len()));
        let plans = planner.plans(&Request { mask: &mask, heads, kv_heads }, &self.facts, lens)?;
        Ok(Prepared { options, plans, shape: [batch, heads, q_len, v_dim] })
    }

    /// Returns the options for all sequences, or one entry for each sequence if the slopes of ALiBi differ.
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
                    "sequences have different lengths, so only softcap, alibi and sinks are possible: give sinks with \
                      Varlen::sinks"
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

    /// Returns the mask with the causal limit and the window.
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
