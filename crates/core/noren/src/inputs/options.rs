//! [`Options`]: all settings of attention except the arrays and the mask.

use crate::{Dropout, Error, Isa, View};
use noren_mask::{Score, Shape};
use std::sync::atomic::{AtomicBool, Ordering};

/// Attention treats soft weights below this number as 0, because their products with softmax weights could be below the
/// range of `f32`.
pub(crate) const LEAST_WEIGHT: f64 = f64::from_bits((1023 - 100) << 52); // 2^-100

/// Attention treats scores below this number as minus infinity. In base 2 (times `log2(e)`), such scores are below
/// -1e38, near the end of the range of `f32`.
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
    /// The factor by which the dot products `q . k` are multiplied (default: `1 / sqrt(head_dim)`). Its absolute value
    /// is at most 1e30. On the paths `avx512bf16` and `amx`, the dot products of `bf16` numbers are computed first and must not
    /// overflow; on other paths, `q` is multiplied first.
    pub scale: Option<f32>,
    /// The softcap `cap`, from 1e-30 to 1e30: each score becomes `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// The biases. All entries are added to the scores. A score below -6.9e37 is treated as minus infinity; a bias with
    /// the lowest finite number of `f32` or `bf16` gives such scores. A query that has only such scores reads no key:
    /// its output is 0, not the mean of all values. A score above 2.3e38 is infinite, which gives NaN.
    pub bias: Vec<Bias<'a>>,
    /// The soft weights, from 0 to 1, by which `exp(score)` is multiplied. Each dimension of the array is 1 or equal to
    /// the same dimension of `[batch, heads, q_len, kv_len]`. If the weight of a cell is 0 or below 2^-100, the cell is
    /// not allowed.
    pub soft: Option<View<'a>>,
    /// The sinks: one logit for each query head. The exponential of the logit is added only to the softmax denominator.
    /// For a row without an allowed key, the output is 0 and the log-sum-exp is minus infinity, with or without a sink.
    pub sinks: Option<&'a [f32]>,
    /// The dropout of probabilities after the softmax, for training.
    pub dropout: Option<Dropout>,
    /// For the backward pass: whether the given output and log-sum-exps belong to more keys than the plan allows,
    /// because other calls compute the gradients of the other keys. If true, the backward pass uses the given output
    /// and log-sum-exps for every row, and a row with a single key in the plan can have a gradient other than 0. If
    /// false, the backward pass computes these values again for some rows, with higher precision.
    pub partial: bool,
    /// The maximum number of threads, at least 1 (default: the number of threads of the current rayon pool). The call uses no
    /// more threads than the pool has: the calling thread, and threads of the pool. No result depends on the number of
    /// threads.
    pub threads: Option<usize>,
    /// The processor path (default: see [`Isa::choose`]).
    pub isa: Option<Isa>,
    /// A flag that cancels the call. If another thread sets the flag to true (for example, after Ctrl-C or at a
    /// deadline), the call soon returns [`Error::Cancelled`], and its outputs are incomplete.
    pub cancel: Option<&'a AtomicBool>,
}

/// The maximum number of values in a row of queries, keys or values. With this limit, memory for a few rows can always
/// be allocated.
pub(crate) const MOST_DIM: usize = 1 << 24;

/// A bias that is added to scores.
#[derive(Clone, Debug)]
pub enum Bias<'a> {
    /// An array of biases. Each dimension is 1 or equal to the same dimension of the scores, `[batch, heads, q_len,
    /// kv_len]`.
    Dense(View<'a>),
    /// A table of biases for distances, `[1, heads or 1, 1, 2 * reach + 1]`, where `reach` is the largest distance that
    /// has its own entry. The bias of a cell is the table entry with index `clamp(k - q, -reach, reach) + reach`, where
    /// `q` and `k` are the positions of the query and the key.
    Relative {
        /// The table of biases, `[1, heads or 1, 1, 2 * reach + 1]`.
        table: View<'a>,
    },
    /// The slopes of ALiBi (Press et al. 2021), one for each query head. The bias of a cell is `-slope * |q - k|`,
    /// where `q` and `k` are the positions of the query and the key.
    Alibi(Vec<f32>),
}

/// Setters, one for each option. All setters except `bias`, `sinks`, `partial` and `cancel` also accept an `Option`;
/// `None` sets the default.
impl<'a> Options<'a> {
    /// Returns the default options: plain attention without score modifiers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the factor by which the dot products `q . k` are multiplied ([`scale`](field@Self::scale)).
    pub fn scale(mut self, scale: impl Into<Option<f32>>) -> Self {
        self.scale = scale.into();
        self
    }

    /// Sets the softcap, with which each score becomes `cap * tanh(score / cap)` ([`softcap`](field@Self::softcap)).
    pub fn softcap(mut self, cap: impl Into<Option<f32>>) -> Self {
        self.softcap = cap.into();
        self
    }

    /// Appends a bias, which is added to the scores, to [`bias`](field@Self::bias).
    pub fn bias(mut self, bias: Bias<'a>) -> Self {
        self.bias.push(bias);
        self
    }

    /// Sets the soft weights, which multiply `exp(score)` ([`soft`](field@Self::soft)).
    pub fn soft(mut self, weights: impl Into<Option<View<'a>>>) -> Self {
        self.soft = weights.into();
        self
    }

    /// Sets the sinks: one logit for each query head, whose exponential is added to the softmax denominator
    /// ([`sinks`](field@Self::sinks)).
    pub fn sinks(mut self, sinks: &'a [f32]) -> Self {
        self.sinks = Some(sinks);
        self
    }

    /// Sets the dropout of probabilities after the softmax ([`dropout`](field@Self::dropout)).
    pub fn dropout(mut self, dropout: impl Into<Option<Dropout>>) -> Self {
        self.dropout = dropout.into();
        self
    }

    /// Sets whether the output and log-sum-exps that the backward pass receives belong to more keys than the plan
    /// allows ([`partial`](field@Self::partial)).
    pub fn partial(mut self, partial: bool) -> Self {
        self.partial = partial;
        self
    }

    /// Sets the number of threads of the computation ([`threads`](field@Self::threads)).
    pub fn threads(mut self, threads: impl Into<Option<usize>>) -> Self {
        self.threads = threads.into();
        self
    }

    /// Sets the processor path of the computation ([`isa`](field@Self::isa)).
    pub fn isa(mut self, isa: impl Into<Option<Isa>>) -> Self {
        self.isa = isa.into();
        self
    }

    /// Sets the flag that another thread sets to true to cancel the call ([`cancel`](field@Self::cancel)).
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }
}

impl<'a> Options<'a> {
    /// Returns the options for `scores`, the score modifiers of a [`Spec`](noren_mask::Spec), over `heads` query heads.
    ///
    /// The caller's function `array(score, name)` returns the array for the score modifier `score`, which refers to it
    /// by the name `name`. A bias has the shape of [`Bias::Dense`] or [`Bias::Relative`], soft weights have the shape
    /// of [`soft`](Self::soft), and sinks are `[1, 1, 1, heads]`.
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
    /// Returns the error of `array`, and [`Error::Option`] if two scores are softcaps, two are soft weights or two are
    /// sinks, or if sinks have another shape.
    pub fn for_scores<E: From<Error>>(
        scores: &[Score],
        heads: usize,
        array: impl FnMut(&Score, &str) -> Result<View<'a>, E>,
    ) -> Result<Self, E> {
        Options::new().with_scores(scores, heads, array)
    }

    /// Adds the options that [`for_scores`](Self::for_scores) returns for `scores` to these options. If `scores` has a
    /// softcap, soft weights or sinks, these options must not already have the same modifier.
    ///
    /// # Errors
    /// Returns the errors of [`for_scores`](Self::for_scores).
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
                        return Err(refuse(&format!(
                            "the array of sinks must have the shape [1, 1, 1, {heads}], one value for each query head"
                        ))
                        .into());
                    }
                    let row = sinks.row([0; 3]).ok_or_else(|| {
                        refuse("the array of sinks must be contiguous in memory: copy the array to a new array")
                    })?;
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
                _ => {
                    return Err(
                        refuse("the kernels do not support this score modifier: remove it from the mask").into()
                    );
                }
            };
            if taken {
                return Err(refuse(
                    "the mask and the options together have two score modifiers of this kind, but at most one is possible: remove one of the two",
                )
                .into());
            }
        }
        Ok(options)
    }

    /// Returns the scale of the scores: the option `scale`, or `1 / sqrt(head_dim)` if `scale` is `None`.
    pub fn scale_for(&self, head_dim: usize) -> f64 {
        self.scale.map_or(1.0 / (head_dim as f64).sqrt(), f64::from)
    }

    /// Returns an error if an option is invalid for this shape.
    pub(crate) fn check(&self, shape: &Shape) -> Result<(), Error> {
        let refuse =
            |name, given: String, problem: &str| Err(Error::Option { name, given, problem: problem.to_owned() });
        if let Some(scale) = self.scale.filter(|s| !(..=1e30).contains(&s.abs())) {
            return refuse("scale", scale.to_string(), "give a finite number with an absolute value of at most 1e30");
        }
        if let Some(cap) = self.softcap.filter(|c| !(1e-30..=1e30).contains(c)) {
            return refuse("softcap", cap.to_string(), "give a number from 1e-30 to 1e30, or omit the softcap");
        }
        if let Some(p) = self.dropout.map(|d| d.probability).filter(|p| !(0.0..1.0).contains(p)) {
            return refuse("dropout", p.to_string(), "give a probability from 0.0 to less than 1.0, or omit dropout");
        }
        if self.threads == Some(0) {
            return refuse("threads", "0".into(), "give at least 1 thread, or omit the option to use all threads");
        }
        let heads = shape.head_count();
        let per_head = |name, len: usize| match len == heads {
            true => Ok(()),
            false => {
                let expected = format!("there are {heads} query heads: give one value for each head");
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
                            "give finite numbers with absolute values of at most 1e30",
                        );
                    }
                }
                Bias::Relative { table } => match table.shape() {
                    [1, h, 1, width] if (h == 1 || h == heads) && width % 2 == 1 => {}
                    given => {
                        let expected = format!(
                            "the table of a relative bias must have the shape [1, {heads} or 1, 1, 2 * reach + 1], where reach is the largest distance with its own entry"
                        );
                        return Err(Error::Shape { name: "relative bias table", given: given.to_vec(), expected });
                    }
                },
            }
        }
        if let Some(soft) = &self.soft {
            check_broadcast("soft weights", soft, shape)?;
            if let Some(weight) = soft.find(|w| !(0.0..=1.0).contains(&w)) {
                return refuse("a soft weight", weight.to_string(), "give soft weights from 0 to 1");
            }
        }
        let Some(sinks) = self.sinks else { return Ok(()) };
        per_head("sinks", sinks.len())?;
        match sinks.iter().find(|s| s.is_nan() || **s == f32::INFINITY) {
            Some(sink) => refuse("a sink", sink.to_string(), "give a finite number, or -inf for a head without a sink"),
            None => Ok(()),
        }
    }
}

/// Returns the shape of the scores, `[batch, heads, q_len, kv_len]`.
pub(crate) fn score_shape(shape: &Shape) -> [usize; 4] {
    [shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len()]
}

fn check_broadcast(name: &'static str, view: &View<'_>, shape: &Shape) -> Result<(), Error> {
    let full = score_shape(shape);
    match view.broadcast(full) {
        Some(_) => Ok(()),
        None => {
            let expected = format!(
                "each dimension must be 1 or equal to that of the scores, [batch, heads, q_len, kv_len] = {full:?}"
            );
            Err(Error::Shape { name, given: view.shape().to_vec(), expected })
        }
    }
}

/// The cancellation state of a call. If the call has once read the caller's flag as true, the call stays cancelled,
/// even if the flag is set to false later.
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

    /// Returns [`Error::Cancelled`] if the call was cancelled, because its outputs are then incomplete.
    pub(crate) fn finished(&self) -> Result<(), Error> {
        if self.now() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
