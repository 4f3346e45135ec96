//! [`attend`]: attention in one call, and [`Attend`], its builder.

mod input;
mod masking;
#[cfg(feature = "ndarray")]
mod ndarray;

use input::view;
pub use input::{CowView, IntoView, IntoViewMut};
pub use masking::{IntoMasking, Masking};

use crate::attention::check_keys;
use crate::{
    Attention, Bias, Dropout, Element, Error, Gradients, GradientsMut, Inputs, Isa, KvCache, Options, Outputs, Saved,
    View, attention, attention_backward, attention_backward_into, attention_into, attention_weights,
};
use noren_mask::{Facts, Offset, Plan, PlanOptions, Shape, Spec};
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// Computes masked attention in one call: `softmax(q k^T / sqrt(head_dim)) v`, with the softmax over the keys that
/// `mask` allows.
///
/// `q` is `[batch, heads, q_len, head_dim]`, `k` is `[batch, kv_heads, kv_len, head_dim]` and `v` is `[batch, kv_heads,
/// kv_len, v_dim]`. Each of these arrays has a type that [`IntoView`] lists, and all three have elements of the same
/// type. `heads` is a multiple of `kv_heads`. `mask` is a text, a [`Mask`](crate::Mask), a [`Spec`] (a mask with score
/// modifiers) or a [`Plan`]. If `mask` is not a plan, each call makes a plan of the mask, without a time limit. For an
/// untrusted mask, make the plan with [`BoundMask::plan_within`](crate::BoundMask::plan_within), which has limits.
///
/// ```
/// let q = vec![0.5f32; 4 * 8 * 64]; // 4 heads, 8 tokens, 64 numbers each
/// let kv = vec![0.25f32; 2 * 8 * 64]; // 2 key-value heads: two query heads share each
/// let (q, kv) = ((&q, [1, 4, 8, 64]), (&kv, [1, 2, 8, 64]));
/// let result = noren::attend(q, kv, kv, "causal & documents([5, 3])")?;
/// assert_eq!((result.shape, result.out[0]), ([1, 4, 8, 64], 0.25));
/// # Ok::<(), noren::Error>(())
/// ```
///
/// [`Attend`] sets everything else: facts, scale, score modifiers, dropout, threads, output memory.
///
/// # Errors
/// Returns an error if the text is not a valid mask, if the mask needs facts (data such as documents), or if the shapes
/// do not fit. Returns [`Error::Alignment`] if the numbers of queries and keys differ and the mask depends on the
/// position of the first query, because `attend` does not guess this position.
pub fn attend<'v, T: Element>(
    q: impl IntoView<'v, Value = T>,
    k: impl IntoView<'v, Value = T>,
    v: impl IntoView<'v, Value = T>,
    mask: impl IntoMasking<'v>,
) -> Result<Attention<T>, Error> {
    Attend::new(mask)?.forward(q, k, v)
}

/// Attention with one mask, and with settings for the facts and options that [`attend`] leaves at their defaults.
///
/// Lengths, heads and batch come from the arrays. `Attend` stores the plan of the last call. A backward pass and
/// further calls use the stored plan if their arrays have the same shape.
///
/// ```
/// use noren::{Attend, Bias, Facts};
///
/// let attend = Attend::new("causal & documents & padding + softcap(30)")?
///     .facts(Facts::new().documents([3, 4]).lengths([7, 5]))
///     .scale(0.1)
///     .bias(Bias::Alibi(vec![0.5, 0.25]))
///     .threads(2);
/// let x = vec![0.5f32; 2 * 2 * 7 * 4];
/// let x = (&x, [2, 2, 7, 4]);
/// let result = attend.forward(x, x, x)?; // .out, .shape and .lse
/// let gradients = attend.backward(x, x, x, &result, x)?; // .dq, .dk and .dv
/// # assert_eq!(gradients.dq.len(), result.out.len());
/// # Ok::<(), noren::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Attend<'a> {
    masking: Masking<'a>,
    facts: Option<Facts>,
    query_offsets: Option<Vec<i64>>,
    plan_options: PlanOptions,
    options: Options<'a>,
    arrays: Vec<(String, CowView<'a>)>,
    /// The plan for the shape of the last call; `None` before the first call that makes a plan. Clones share it until a
    /// setting of one of them changes its plan.
    planned: Arc<Mutex<Option<Arc<Plan>>>>,
}

/// The plan that a call uses: a plan that the caller gave, or the plan that [`Attend`] made for the last shape.
enum Ready<'a> {
    Given(&'a Plan),
    Kept(Arc<Plan>),
}

impl Deref for Ready<'_> {
    type Target = Plan;
    fn deref(&self) -> &Plan {
        match self {
            Ready::Given(plan) => plan,
            Ready::Kept(plan) => plan,
        }
    }
}

/// The constructor and the methods that change settings.
impl<'a> Attend<'a> {
    /// Returns attention with `mask`: a text, a [`Mask`](crate::Mask), a [`Spec`] or a [`Plan`].
    ///
    /// # Errors
    /// Returns [`Error::Parse`] if a text is not a valid mask.
    pub fn new(mask: impl IntoMasking<'a>) -> Result<Self, Error> {
        Ok(Attend {
            masking: mask.into_masking()?,
            facts: None,
            query_offsets: None,
            plan_options: PlanOptions::default(),
            options: Options::new(),
            arrays: Vec::new(),
            planned: Arc::default(),
        })
    }

    /// Sets the facts about the data that the mask needs: lengths, documents, labels, clearance levels, arrays.
    pub fn facts(mut self, facts: Facts) -> Self {
        self.facts = Some(facts);
        self.replanned()
    }

    /// Sets the position of the first query. The position must be set if the numbers of queries and keys differ and the
    /// result depends on positions: `kv_len - q_len` if the queries are the last tokens of the sequence of keys, and 0
    /// if queries and keys are different sequences.
    pub fn query_offset(self, offset: impl Offset) -> Self {
        self.query_offsets([offset])
    }

    /// Sets the positions of the first queries: one position for each batch row, or one position for all batch rows.
    pub fn query_offsets(mut self, offsets: impl IntoIterator<Item = impl Offset>) -> Self {
        self.query_offsets = Some(offsets.into_iter().map(Offset::offset).collect());
        self.replanned()
    }

    /// Sets the tile sizes and whether the plan may reorder queries and keys.
    pub fn plan_options(mut self, options: PlanOptions) -> Self {
        self.plan_options = options;
        self.replanned()
    }

    /// Sets the array to which a score modifier of the mask refers by the name `name`. For a bias or soft weights, each
    /// dimension of the array is 1 or equal to the same dimension of `[batch, heads, q_len, kv_len]`. A table of
    /// relative biases is `[1, heads or 1, 1, 2 * reach + 1]`, where `reach` is the largest distance that has its own
    /// entry. Sinks are `[1, 1, 1, heads]`.
    ///
    /// ```
    /// let x = vec![0.5f32; 3];
    /// let x = (&x, [1, 1, 3, 1]);
    /// let bias = [0.0, 1.0, 2.0]; // one bias for each key
    /// let attend = noren::Attend::new("causal + bias(mine)")?.array("mine", (&bias, [1, 1, 1, 3]))?;
    /// assert_eq!(attend.forward(x, x, x)?.out, [0.5; 3]);
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the shape does not fit the values.
    pub fn array(mut self, name: impl Into<String>, values: impl IntoView<'a, Value = f32>) -> Result<Self, Error> {
        self.arrays.push((name.into(), values.into_view()?));
        Ok(self)
    }

    /// Replaces all options with `options`.
    pub fn options(mut self, options: Options<'a>) -> Self {
        self.options = options;
        self
    }

    /// Sets the factor by which the dot products `q . k` are multiplied ([`Options::scale`]).
    pub fn scale(self, scale: impl Into<Option<f32>>) -> Self {
        self.with(|options| options.scale(scale))
    }

    /// Sets the softcap, with which each score becomes `cap * tanh(score / cap)` ([`Options::softcap`]).
    pub fn softcap(self, cap: impl Into<Option<f32>>) -> Self {
        self.with(|options| options.softcap(cap))
    }

    /// Appends a bias, which is added to the scores, to [`Options::bias`].
    pub fn bias(self, bias: Bias<'a>) -> Self {
        self.with(|options| options.bias(bias))
    }

    /// Sets the soft weights, which multiply `exp(score)` ([`Options::soft`]).
    pub fn soft(self, weights: impl Into<Option<View<'a>>>) -> Self {
        self.with(|options| options.soft(weights))
    }

    /// Sets the sinks: one logit for each query head, whose exponential is added to the softmax denominator
    /// ([`Options::sinks`]).
    pub fn sinks(self, sinks: &'a [f32]) -> Self {
        self.with(|options| options.sinks(sinks))
    }

    /// Sets the dropout of probabilities after the softmax ([`Options::dropout`]).
    pub fn dropout(self, dropout: impl Into<Option<Dropout>>) -> Self {
        self.with(|options| options.dropout(dropout))
    }

    /// Sets the number of threads of the computation ([`Options::threads`]).
    pub fn threads(self, threads: impl Into<Option<usize>>) -> Self {
        self.with(|options| options.threads(threads))
    }

    /// Sets the processor path of the computation ([`Options::isa`]).
    pub fn isa(self, isa: impl Into<Option<Isa>>) -> Self {
        self.with(|options| options.isa(isa))
    }

    /// Sets the flag that another thread sets to true to cancel a call ([`Options::cancel`]).
    pub fn cancel(self, flag: &'a AtomicBool) -> Self {
        self.with(|options| options.cancel(flag))
    }

    fn with(mut self, set: impl FnOnce(Options<'a>) -> Options<'a>) -> Self {
        self.options = set(self.options);
        self
    }

    /// Returns `self` without the stored plan. Methods that change a setting of plans end with a call of this method.
    fn replanned(mut self) -> Self {
        self.planned = Arc::default();
        self
    }
}

/// The methods that compute attention and plans.
impl Attend<'_> {
    /// Returns the attention of `q` over `k` and `v`. The arrays have the shapes that [`attend`] requires.
    ///
    /// # Errors
    /// Returns the errors of [`attend`], and an error if an option is out of range.
    pub fn forward<'v, T: Element>(
        &self,
        q: impl IntoView<'v, Value = T>,
        k: impl IntoView<'v, Value = T>,
        v: impl IntoView<'v, Value = T>,
    ) -> Result<Attention<T>, Error> {
        let (q, k, v) = (view("q", q)?, view("k", k)?, view("v", v)?);
        let inputs = Inputs { q: q.view(), k: k.view(), v: v.view() };
        let plan = self.fit(&inputs)?;
        attention(&inputs, &plan, &self.options_for(plan.shape().head_count())?)
    }

    /// Writes the result of [`forward`](Self::forward) to `out`, `[batch, heads, q_len, v_dim]` with any strides, and
    /// the log-sum-exps to `lse`, `[batch, heads, q_len]`, if `lse` is not `None`.
    ///
    /// ```
    /// let x = [1f32, 2.0, 3.0];
    /// let x = (&x, [1, 1, 3, 1]);
    /// let (mut out, mut lse) = (vec![0f32; 3], vec![0f32; 3]);
    /// noren::Attend::new("causal")?.forward_into(x, x, x, (&mut out, [1, 1, 3, 1]), Some(&mut lse))?;
    /// assert_eq!(out[0], 1.0);
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward), and an error if `out` or `lse` has another shape.
    pub fn forward_into<'v, 'o, T: Element>(
        &self,
        q: impl IntoView<'v, Value = T>,
        k: impl IntoView<'v, Value = T>,
        v: impl IntoView<'v, Value = T>,
        out: impl IntoViewMut<'o, Value = T>,
        lse: Option<&'o mut [f32]>,
    ) -> Result<(), Error> {
        let (q, k, v) = (view("q", q)?, view("k", k)?, view("v", v)?);
        let inputs = Inputs { q: q.view(), k: k.view(), v: v.view() };
        let plan = self.fit(&inputs)?;
        let options = self.options_for(plan.shape().head_count())?;
        let out = out.into_view_mut().map_err(|error| error.named("out"))?;
        attention_into(&inputs, &plan, &options, Outputs { out, lse })
    }

    /// Returns the gradients of `sum(out * dout)` with respect to `q`, `k` and `v`. `forward` is the result of
    /// [`forward`](Self::forward) for the same arrays.
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward), and an error if `dout` does not have the shape of the output.
    pub fn backward<'v, T: Element>(
        &self,
        q: impl IntoView<'v, Value = T>,
        k: impl IntoView<'v, Value = T>,
        v: impl IntoView<'v, Value = T>,
        forward: &Attention<T>,
        dout: impl IntoView<'v, Value = T>,
    ) -> Result<Gradients<T>, Error> {
        let (q, k, v, dout) = (view("q", q)?, view("k", k)?, view("v", v)?, view("dout", dout)?);
        let inputs = Inputs { q: q.view(), k: k.view(), v: v.view() };
        let plan = self.fit(&inputs)?;
        let saved = Saved { out: View::new(&forward.out, forward.shape)?, lse: &forward.lse, dout: dout.view() };
        attention_backward(&inputs, &saved, &plan, &self.options_for(plan.shape().head_count())?)
    }

    /// Writes the result of [`backward`](Self::backward) to `gradients`, and the gradients of the score modifiers for
    /// which `gradients` has memory. The entries of `gradients.bias` are first the biases of the mask, in their order
    /// in the mask, and then the biases of the options.
    ///
    /// # Errors
    /// Returns the errors of [`attention_backward_into`].
    pub fn backward_into<T: Element>(
        &self,
        inputs: &Inputs<'_, T>,
        saved: &Saved<'_, T>,
        gradients: GradientsMut<'_, T>,
    ) -> Result<(), Error> {
        let plan = self.fit(inputs)?;
        attention_backward_into(inputs, saved, &plan, &self.options_for(plan.shape().head_count())?, gradients)
    }

    /// Returns the attention probabilities `[rows, kv_len]` of the query rows `rows` in one batch row and head. The
    /// probabilities are computed in `f64`, which is slow: use this function for a few rows, for example to draw them.
    ///
    /// # Errors
    /// Returns the errors of [`attention_weights`].
    pub fn weights<'v, T: Element>(
        &self,
        q: impl IntoView<'v, Value = T>,
        k: impl IntoView<'v, Value = T>,
        [batch, head]: [usize; 2],
        rows: Range<usize>,
    ) -> Result<Vec<f32>, Error> {
        let (q, k) = (view("q", q)?, view("k", k)?);
        // Probabilities do not depend on values, so the keys are passed as values
        let inputs = Inputs { q: q.view(), k: k.view(), v: k.view() };
        let plan = self.fit(&inputs)?;
        attention_weights(&inputs, &plan, &self.options_for(plan.shape().head_count())?, [batch, head], rows)
    }

    /// Computes one step of a decoder: appends the keys and values of new tokens to `cache`, and returns the attention
    /// of the queries of these tokens. `q` is `[sequences, heads, new, head_dim]`, `k` is `[sequences, kv_heads, new,
    /// head_dim]` and `v` is `[sequences, kv_heads, new, v_dim]`. The positions of the queries come from the cache.
    ///
    /// ```
    /// use noren::{Attend, KvCache, KvShape};
    /// let mut cache = KvCache::contiguous(&KvShape::new(1, 4), 16)?;
    /// let attend = Attend::new("sliding(3)")?;
    /// for token in 0..5 {
    ///     let x = [token as f32; 4];
    ///     let x = (&x, [1, 1, 1, 4]);
    ///     assert_eq!(attend.decode(&mut cache, x, x, x)?.shape, [1, 1, 1, 4]);
    /// }
    /// # Ok::<(), noren::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`KvCache::append`], [`KvCache::plan`] and [`KvCache::attention`], and an error if a plan
    /// or a query offset was set. After an error the cache is unchanged.
    pub fn decode<'v, T: Element>(
        &self,
        cache: &mut KvCache<T>,
        q: impl IntoView<'v, Value = T>,
        k: impl IntoView<'v, Value = T>,
        v: impl IntoView<'v, Value = T>,
    ) -> Result<Attention<T>, Error> {
        let refuse = |name, problem: &str| Error::Option { name, given: "set".to_owned(), problem: problem.to_owned() };
        let Masking::Spec(spec) = &self.masking else {
            return Err(refuse(
                "a plan",
                "`decode` makes a plan for each step of the cache: give the mask instead of a plan",
            ));
        };
        if self.query_offsets.is_some() {
            return Err(refuse(
                "query_offset",
                "`decode` takes the positions of the queries from the cache: remove `query_offset`",
            ));
        }
        let (q, k, v) = (view("q", q)?, view("k", k)?, view("v", v)?);
        let [_, heads, new, _] = q.view().shape();
        let options = self.options_for(heads)?;
        let none = Facts::new();
        let facts = self.facts.as_ref().unwrap_or(&none);
        let sequences = 0..cache.sequence_count();
        let before: Vec<usize> = sequences.map(|sequence| cache.len(sequence)).collect();
        cache.append(k.view(), v.view())?;
        let step = cache.plan(&spec.mask, facts, heads, new);
        step.and_then(|plan| cache.attention(q.view(), &plan, &options)).inspect_err(|_| {
            for (sequence, len) in before.into_iter().enumerate() {
                cache.truncate(sequence, len).expect("the tokens of the last step can be removed");
            }
        })
    }

    /// Returns the plan for arrays of the shape `shape`. Further calls of this `Attend` with the same shape use the
    /// same plan. [`attend`] and [`Attend::new`] also accept the plan as their mask.
    ///
    /// # Errors
    /// Returns the errors of [`Mask::bind`](crate::Mask::bind), and an error if `Attend` was created with a plan of
    /// another shape.
    pub fn plan(&self, shape: &Shape) -> Result<Arc<Plan>, Error> {
        let given = match &self.masking {
            Masking::Spec(spec) => return self.planned(spec, shape),
            Masking::Plan(plan) => Arc::new((*plan).clone()),
            Masking::Shared(plan) => plan.clone(),
        };
        match given.shape() == shape {
            true => Ok(given),
            false => Err(Error::Option {
                name: "the shape",
                given: format!("{shape:?}"),
                problem: format!(
                    "the plan that was given as the mask has the shape {:?}: give the mask instead of the plan",
                    given.shape()
                ),
            }),
        }
    }
}

impl<'a> Attend<'a> {
    /// Returns the plan that the caller gave as the mask; otherwise a plan of the mask for the shapes of `inputs`.
    fn fit<T: Element>(&self, inputs: &Inputs<'_, T>) -> Result<Ready<'_>, Error> {
        let spec = match &self.masking {
            Masking::Spec(spec) => spec,
            Masking::Plan(plan) => return self.given(Ready::Given(plan)),
            Masking::Shared(plan) => return self.given(Ready::Kept(plan.clone())),
        };
        let ([batch, heads, q_len, _], [_, kv_heads, kv_len, _]) = (inputs.q.shape(), inputs.k.shape());
        check_keys(inputs)?;
        let shape = Shape::new(q_len, kv_len, 0).batch(batch).heads(heads).kv_heads(kv_heads);
        let shape = match &self.query_offsets {
            Some(offsets) => shape.query_offsets(offsets.iter().copied()),
            None if q_len == kv_len || !self.uses_query_offset(spec) => shape,
            None => return Err(Error::Alignment { q_len, kv_len }),
        };
        Ok(Ready::Kept(self.planned(spec, &shape)?))
    }

    /// Returns whether the result of a call may depend on the query offset, the position of the first query.
    fn uses_query_offset(&self, spec: &Spec) -> bool {
        spec.uses_query_offset() || self.options.bias.iter().any(|bias| !matches!(bias, Bias::Dense(_)))
    }

    /// Returns `plan`, the plan that the caller gave as the mask. Returns an error if facts (data to which a mask is
    /// bound) or query offsets are also set, because a plan already contains them.
    fn given<'s>(&'s self, plan: Ready<'s>) -> Result<Ready<'s>, Error> {
        for (name, given) in [("facts", self.facts.is_some()), ("query_offset", self.query_offsets.is_some())] {
            if given {
                let problem = "the mask is a plan, which already contains facts (lengths, documents, ...) and positions: set them \
                               when you bind the mask, or give the mask instead of the plan"
                    .to_owned();
                return Err(Error::Option { name, given: "set".to_owned(), problem });
            }
        }
        Ok(plan)
    }

    /// Returns the plan of the last call if it was made for `shape`, otherwise a new plan of the mask in `spec`.
    fn planned(&self, spec: &Spec, shape: &Shape) -> Result<Arc<Plan>, Error> {
        let mut kept = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = kept.as_ref().filter(|plan| plan.shape() == shape) {
            return Ok(plan.clone());
        }
        let none = Facts::new();
        let bound = spec.mask.bind(shape, self.facts.as_ref().unwrap_or(&none))?;
        let plan = Arc::new(bound.plan_with(&self.plan_options));
        *kept = Some(plan.clone());
        Ok(plan)
    }

    /// Returns the options of a call with `heads` query heads: the options that the caller set, and the score modifiers
    /// of the mask. The biases of the mask are before those of the caller.
    fn options_for(&self, heads: usize) -> Result<Options<'_>, Error> {
        let Masking::Spec(spec) = &self.masking else { return Ok(self.options.clone()) };
        let mut options: Options<'_> = self.options.clone();
        let own = std::mem::take(&mut options.bias);
        let mut options = options.with_scores(&spec.scores, heads, |score, name| {
            let array = self.arrays.iter().rev().find(|(given, _)| given == name).map(|(_, array)| array.view());
            array.ok_or_else(|| Error::Missing {
                part: score.to_string(),
                what: format!("the array `{name}`"),
                fix: format!("give the array with Attend::array(\"{name}\", ...)"),
            })
        })?;
        options.bias.extend(own);
        Ok(options)
    }
}
