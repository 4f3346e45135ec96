//! [`Options`]: everything about attention that is neither the arrays nor the mask.

use crate::{Dropout, Error, Isa, View};
use noren_mask::{Score, Shape};
use std::sync::atomic::{AtomicBool, Ordering};

/// Soft weights below this count as 0: times a weight of the softmax they would leave the range of `f32`.
pub(crate) const LEAST_WEIGHT: f64 = f64::from_bits((1023 - 100) << 52); // 2^-100

/// Scores below this count as minus infinity: in base 2 they would leave the range of `f32`.
pub(crate) const LOWEST_SCORE: f64 = -1e38 * std::f64::consts::LN_2;

/// Scale, score modifiers, threads and processor path. The default is plain attention.
///
/// The order of operations is fixed: scale, softcap, bias, soft weights, mask, softmax with sinks, dropout.
///
/// ```
/// use noren::{Bias, Options};
/// let options = Options::new().softcap(30.0).bias(Bias::Alibi(vec![0.5, 0.25]));
/// assert_eq!(options.softcap, Some(30.0));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options<'a> {
    /// Multiplies `q . k`; `1 / sqrt(head_dim)` unless given. At most 1e30 in size.
    pub scale: Option<f32>,
    /// `cap * tanh(score / cap)` replaces the score. From 1e-30 to 1e30.
    pub softcap: Option<f32>,
    /// Added to the scores, all of them. A score below -6.9e37 (the lowest finite number of a type, say) counts as minus
    /// infinity, so a row of nothing else is empty: its output is 0, not the mean of all values.
    pub bias: Vec<Bias<'a>>,
    /// Weights in `[0, 1]` that multiply `exp(score)`, each dimension 1 or that of `[batch, heads, q_len, kv_len]`.
    /// 0 means not allowed, and so does anything below 2^-100.
    pub soft: Option<View<'a>>,
    /// A logit for each query head that joins the softmax's denominator only. A row that may read nothing stays empty:
    /// its output is 0 and its log-sum-exp minus infinity, with or without a sink.
    pub sinks: Option<&'a [f32]>,
    /// Probabilities that are dropped after the softmax, in training.
    pub dropout: Option<Dropout>,
    /// For the backward pass: the output and the log-sum-exps that it is given are those of more keys than the plan allows,
    /// of which others compute the rest. It takes them as they are, where it else computes some anew, and leaves no gradient
    /// out for being that of a row's only key.
    pub partial: bool,
    /// Threads that compute, at least 1 and at most those of the current rayon pool; all of those unless given. No
    /// result depends on it.
    pub threads: Option<usize>,
    /// The processor path; see [`Isa::choose`] for what happens unless it is given.
    pub isa: Option<Isa>,
    /// Ends the call with [`Error::Cancelled`] soon after another thread sets it (Ctrl-C, a deadline). The outputs are then
    /// unfinished.
    pub cancel: Option<&'a AtomicBool>,
}

/// Numbers in a row of queries, keys or values, at most: memory for some rows of them can always be asked for.
pub(crate) const MOST_DIM: usize = 1 << 24;

/// What may be added to scores.
#[derive(Clone, Debug)]
pub enum Bias<'a> {
    /// An array, each dimension 1 or that of `[batch, heads, q_len, kv_len]`.
    Dense(View<'a>),
    /// A table by distance, `[1, heads or 1, 1, 2 * reach + 1]`: entry `clamp(k - q, -reach, reach) + reach`, where `q` and
    /// `k` are positions.
    Relative {
        /// The table.
        table: View<'a>,
    },
    /// `-slope * |q - k|`, one slope for each query head, where `q` and `k` are positions (ALiBi, Press et al. 2021).
    Alibi(Vec<f32>),
}

/// Sets options one after the other. What may be left out takes an `Option` as well.
impl<'a> Options<'a> {
    /// Plain attention.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`scale`](field@Self::scale).
    pub fn scale(mut self, scale: impl Into<Option<f32>>) -> Self {
        self.scale = scale.into();
        self
    }

    /// Sets [`softcap`](field@Self::softcap).
    pub fn softcap(mut self, cap: impl Into<Option<f32>>) -> Self {
        self.softcap = cap.into();
        self
    }

    /// Adds one to [`bias`](field@Self::bias).
    pub fn bias(mut self, bias: Bias<'a>) -> Self {
        self.bias.push(bias);
        self
    }

    /// Sets [`soft`](field@Self::soft).
    pub fn soft(mut self, weights: impl Into<Option<View<'a>>>) -> Self {
        self.soft = weights.into();
        self
    }

    /// Sets [`sinks`](field@Self::sinks).
    pub fn sinks(mut self, sinks: &'a [f32]) -> Self {
        self.sinks = Some(sinks);
        self
    }

    /// Sets [`dropout`](field@Self::dropout).
    pub fn dropout(mut self, dropout: impl Into<Option<Dropout>>) -> Self {
        self.dropout = dropout.into();
        self
    }

    /// Sets [`partial`](field@Self::partial).
    pub fn partial(mut self, partial: bool) -> Self {
        self.partial = partial;
        self
    }

    /// Sets [`threads`](field@Self::threads).
    pub fn threads(mut self, threads: impl Into<Option<usize>>) -> Self {
        self.threads = threads.into();
        self
    }

    /// Sets [`isa`](field@Self::isa).
    pub fn isa(mut self, isa: impl Into<Option<Isa>>) -> Self {
        self.isa = isa.into();
        self
    }

    /// Sets [`cancel`](field@Self::cancel).
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }
}

impl<'a> Options<'a> {
    /// What the scores of a [`Spec`](noren_mask::Spec) ask for, over `heads` query heads.
    ///
    /// `array(score, name)` finds the array that a score names: as [`Bias::Dense`] and [`Bias::Relative`] want it, as
    /// [`soft`](Self::soft) wants it, and sinks as `[1, 1, 1, heads]`.
    ///
    /// ```
    /// use noren::{Error, Options, Spec, View};
    /// let spec: Spec = "causal + softcap(5) + sinks(registers)".parse().unwrap();
    /// let registers = [0.5, 0.25];
    /// let options = Options::for_scores(&spec.scores, 2, |_, name| {
    ///     assert_eq!(name, "registers");
    ///     View::new(&registers, [1, 1, 1, 2])
    /// })?;
    /// assert_eq!((options.softcap, options.sinks), (Some(5.0), Some(&registers[..])));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// What `array` returns, and [`Error::Option`] for a second softcap, soft or sinks and for sinks of another shape.
    pub fn for_scores<E: From<Error>>(
        scores: &[Score],
        heads: usize,
        array: impl FnMut(&Score, &str) -> Result<View<'a>, E>,
    ) -> Result<Self, E> {
        Options::new().with_scores(scores, heads, array)
    }

    /// [`for_scores`](Self::for_scores) in addition to these options, which then must not hold a softcap, soft weights or
    /// sinks that a score gives as well.
    ///
    /// # Errors
    /// As [`for_scores`](Self::for_scores).
    pub fn with_scores<E: From<Error>>(
        self,
        scores: &[Score],
        heads: usize,
        mut array: impl FnMut(&Score, &str) -> Result<View<'a>, E>,
    ) -> Result<Self, E> {
        let mut options = self;
        for score in scores {
            let refuse = |problem: &str| Error::Option {
                name: "score",
                given: format!("`{score}`"),
                problem: problem.to_owned(),
            };
            let taken = match score {
                Score::Softcap { cap } => options.softcap.replace(cap.get() as f32).is_some(),
                Score::Soft { name } => options.soft.replace(array(score, name)?).is_some(),
                Score::Sinks { name } => {
                    let sinks = array(score, name)?;
                    if sinks.shape() != [1, 1, 1, heads] {
                        return Err(refuse(&format!("sinks are one row of {heads} values")).into());
                    }
                    let row =
                        sinks.row([0; 3]).ok_or_else(|| refuse("sinks must lie side by side in memory: copy them"))?;
                    options.sinks.replace(row).is_some()
                }
                Score::Bias { name } => {
                    options.bias.push(Bias::Dense(array(score, name)?));
                    false
                }
                Score::Relative { name } => {
                    options.bias.push(Bias::Relative { table: array(score, name)? });
                    false
                }
                Score::Alibi { slopes } => {
                    let given = slopes.as_ref().map(|slopes| slopes.iter().map(|s| s.get()).collect());
                    let slopes: Vec<f64> = given.unwrap_or_else(|| Score::alibi_slopes(heads));
                    options.bias.push(Bias::Alibi(slopes.into_iter().map(|s| s as f32).collect()));
                    false
                }
                _ => return Err(refuse("the kernels do not know this score").into()),
            };
            if taken {
                return Err(
                    refuse("only one score of this kind is possible, and an option counts: leave one out").into()
                );
            }
        }
        Ok(options)
    }

    /// The scale that is used for `head_dim`.
    pub fn scale_for(&self, head_dim: usize) -> f64 {
        self.scale.map_or(1.0 / (head_dim as f64).sqrt(), f64::from)
    }

    /// Refuses options that make no sense for this shape.
    pub(crate) fn check(&self, shape: &Shape) -> Result<(), Error> {
        let refuse =
            |name, given: String, problem: &str| Err(Error::Option { name, given, problem: problem.to_owned() });
        if let Some(scale) = self.scale.filter(|s| !(..=1e30).contains(&s.abs())) {
            return refuse("scale", scale.to_string(), "give a finite number, at most 1e30 in size");
        }
        if let Some(cap) = self.softcap.filter(|c| !(1e-30..=1e30).contains(c)) {
            return refuse("softcap", cap.to_string(), "give a number from 1e-30 to 1e30, or leave it out");
        }
        if let Some(p) = self.dropout.map(|d| d.probability).filter(|p| !(0.0..1.0).contains(p)) {
            return refuse("dropout", p.to_string(), "give a probability from 0.0 to less than 1.0, or leave it out");
        }
        if self.threads == Some(0) {
            return refuse("threads", "0".into(), "give at least 1, or leave it out to use all");
        }
        let heads = shape.head_count();
        let per_head = |name, len: usize| match len == heads {
            true => Ok(()),
            false => {
                let expected = format!("there are {heads} query heads: give one value for each");
                Err(Error::Shape { name, given: vec![len], expected })
            }
        };
        for bias in &self.bias {
            match bias {
                Bias::Dense(view) => check_broadcast("bias", view, shape)?,
                Bias::Alibi(slopes) => {
                    per_head("alibi slopes", slopes.len())?;
                    if let Some(slope) = slopes.iter().find(|s| !(..=1e30).contains(&s.abs())) {
                        return refuse(
                            "an alibi slope",
                            slope.to_string(),
                            "give finite numbers, at most 1e30 in size",
                        );
                    }
                }
                Bias::Relative { table } => match table.shape() {
                    [1, h, 1, width] if (h == 1 || h == heads) && width % 2 == 1 => {}
                    given => {
                        let expected =
                            format!("it must be [1, {heads} or 1, 1, 2 * reach + 1], an odd number of distances");
                        return Err(Error::Shape { name: "relative bias table", given: given.to_vec(), expected });
                    }
                },
            }
        }
        if let Some(soft) = &self.soft {
            check_broadcast("soft weights", soft, shape)?;
            if let Some(weight) = soft.find(|w| !(0.0..=1.0).contains(&w)) {
                return refuse("a soft weight", weight.to_string(), "weights lie in 0..=1");
            }
        }
        let Some(sinks) = self.sinks else { return Ok(()) };
        per_head("sinks", sinks.len())?;
        match sinks.iter().find(|s| s.is_nan() || **s == f32::INFINITY) {
            Some(sink) => refuse("a sink", sink.to_string(), "give a number, or -inf for none"),
            None => Ok(()),
        }
    }
}

/// The shape of the scores.
pub(crate) fn score_shape(shape: &Shape) -> [usize; 4] {
    [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()]
}

fn check_broadcast(name: &'static str, view: &View<'_>, shape: &Shape) -> Result<(), Error> {
    let full = score_shape(shape);
    match view.broadcast(full) {
        Some(_) => Ok(()),
        None => {
            let expected = format!("each dimension must be 1 or that of [batch, heads, q_len, kv_len] = {full:?}");
            Err(Error::Shape { name, given: view.shape().to_vec(), expected })
        }
    }
}

/// Whether a call is cancelled. A call that has seen it once does not forget it.
pub(crate) struct Cancel<'a> {
    flag: Option<&'a AtomicBool>,
    seen: AtomicBool,
}

impl<'a> Cancel<'a> {
    pub(crate) fn new(options: &Options<'a>) -> Self {
        Cancel { flag: options.cancel, seen: AtomicBool::new(false) }
    }

    pub(crate) fn now(&self) -> bool {
        if self.flag.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            self.seen.store(true, Ordering::Relaxed);
        }
        self.seen.load(Ordering::Relaxed)
    }

    /// Returns [`Error::Cancelled`] if it was seen: the outputs are unfinished.
    pub(crate) fn finished(&self) -> Result<(), Error> {
        if self.now() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
