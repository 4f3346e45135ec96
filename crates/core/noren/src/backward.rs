//! [`attention_backward`] and [`attention_backward_into`]: the public entry to the backward pass.

use crate::attention::{Run, check, mismatch, thread_count};
use crate::inputs::options::Cancel;
use crate::kernel::backward::{Backward, Context, Gradient, Sums, Wanted};
use crate::kernel::{arrays::rows::Rows, arrays::rows::SharedRows, math::scores::Modifiers};
use crate::{Bias, Dtype, Element, Error, Inputs, Isa, Options, View, ViewMut};
use noren_mask::Plan;

/// The results of the forward pass and the gradient of its output, which the backward pass reads in addition to
/// [`Inputs`].
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, T = f32> {
    /// The output of the forward pass, `[batch, heads, q_len, v_dim]`.
    pub out: View<'a, T>,
    /// The log-sum-exps of the forward pass, contiguous, `[batch, heads, q_len]`.
    pub lse: &'a [f32],
    /// The gradient of the loss with respect to `out`, `[batch, heads, q_len, v_dim]`.
    pub dout: View<'a, T>,
}

/// The memory that [`attention_backward_into`] writes, with any strides. Every element is overwritten. The gradient of
/// a query, key or value without an allowed cell is 0.
#[derive(Debug)]
pub struct GradientsMut<'a, T = f32> {
    /// The gradient of the queries, `[batch, heads, q_len, head_dim]`.
    pub dq: ViewMut<'a, T>,
    /// The gradient of the keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub dk: ViewMut<'a, T>,
    /// The gradient of the values, `[batch, kv_heads, kv_len, v_dim]`.
    pub dv: ViewMut<'a, T>,
    /// Optional memory for the gradient of each entry of [`Options::bias`], in the same order. Each gradient has the
    /// shape of its bias array: where the array has size 1 in a dimension, the gradient is summed over this dimension.
    /// If the list is empty, no gradient of a bias is computed. Use `None` for an entry without a gradient, and for
    /// ALiBi, whose gradient is never computed. Each gradient of a bias takes a separate pass, about as long as the
    /// backward pass without bias gradients.
    pub bias: Vec<Option<ViewMut<'a>>>,
    /// Optional memory for the gradient of [`Options::soft`], with the shape of the soft weights: where the weights
    /// have size 1 in a dimension, the gradient is summed over this dimension. The gradient of a soft weight below
    /// 2^-100 is 0, because attention treats such a weight as 0.
    pub soft: Option<ViewMut<'a>>,
    /// Optional memory for the gradient of [`Options::sinks`], one value for each query head.
    pub sinks: Option<&'a mut [f32]>,
}

impl<'a, T> GradientsMut<'a, T> {
    /// Returns a `GradientsMut` that has the given memory for the gradients of queries, keys and values, and no memory
    /// for the gradients of score modifiers.
    pub fn new(dq: ViewMut<'a, T>, dk: ViewMut<'a, T>, dv: ViewMut<'a, T>) -> Self {
        GradientsMut { dq, dk, dv, bias: Vec::new(), soft: None, sinks: None }
    }
}

/// The result of [`attention_backward`]: contiguous gradients.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients<T = f32> {
    /// The gradient of the queries, `[batch, heads, q_len, head_dim]`.
    pub dq: Vec<T>,
    /// The gradient of the keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub dk: Vec<T>,
    /// The gradient of the values, `[batch, kv_heads, kv_len, v_dim]`.
    pub dv: Vec<T>,
}

/// Computes the gradients of `sum(out * dout)` with respect to queries, keys and values, for
/// [`attention`](crate::attention()).
///
/// `P` are the softmax weights. With `dP = dout v^T` and, for each row, `dS = P (dP - sum(dout * out))`, the gradients
/// are `dq = scale * dS k`, `dk = scale * dS^T q` and `dv = P^T dout` (Dao et al. 2022). With a softcap, `dS` is
/// multiplied by the derivative of the softcap. All sums are over the cells that the plan allows.
///
/// The guarantees of the forward pass also hold for the gradients. Hidden queries, keys, values, output gradients and
/// biases change no bit of the gradients, even if they are infinite or NaN. The number of threads, padding, other batch
/// rows, and other documents in the same batch row change no bit either. The gradients of keys and values that no query
/// may read are 0. The gradients of queries that may read no key are also 0. If `bf16` values are multiplied in pairs
/// ([`Isa::Avx512Bf16`]), weights and their gradients are rounded to `bf16`. Then padding and other documents change no
/// bit only if they move rows and keys by an even number of positions.
///
/// ```
/// use noren::{Facts, Inputs, Options, Saved, Shape, View, atoms, attention, attention_backward};
///
/// let plan = atoms::causal().bind(&Shape::square(3), &Facts::new())?.plan();
/// let (x, ones) = ([0.5, -1.0, 2.0], [1.0; 3]);
/// let [x, dout] = [View::new(&x, [1, 1, 3, 1])?, View::new(&ones, [1, 1, 3, 1])?];
/// let (inputs, options) = (Inputs { q: x, k: x, v: x }, Options::default());
///
/// let forward = attention(&inputs, &plan, &options)?;
/// let saved = Saved { out: View::new(&forward.out, forward.shape)?, lse: &forward.lse, dout };
/// let gradients = attention_backward(&inputs, &saved, &plan, &options)?;
/// assert_eq!(gradients.dq[0], 0.0); // the first query has only one key, so its weight is always 1
/// // the weights of each of the three rows sum to 1
/// assert!((gradients.dv.iter().sum::<f32>() - 3.0).abs() < 1e-6);
/// # Ok::<(), noren::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`attention`](crate::attention()), and [`Error::Shape`] if an array of `saved` has another
/// shape than the forward pass gives.
pub fn attention_backward<T: Element>(
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
) -> Result<Gradients<T>, Error> {
    check_saved(inputs, saved, plan, options)?;
    let memory = |view: &View<'_, T>, name| {
        let len =
            view.shape().iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n <= isize::MAX as usize / 4);
        let expected =
            "the gradient of this array would not fit into memory: give a smaller array, without strides of 0";
        len.map(|len| vec![T::from_f32(0.0); len])
            .ok_or_else(|| mismatch(name, view.shape().to_vec(), expected.to_owned()))
    };
    let (mut dq, mut dk, mut dv) = (memory(&inputs.q, "q")?, memory(&inputs.k, "k")?, memory(&inputs.v, "v")?);
    let gradients = GradientsMut::new(
        ViewMut::new(&mut dq, inputs.q.shape())?,
        ViewMut::new(&mut dk, inputs.k.shape())?,
        ViewMut::new(&mut dv, inputs.v.shape())?,
    );
    attention_backward_into(inputs, saved, plan, options, gradients)?;
    Ok(Gradients { dq, dk, dv })
}

/// Computes the gradients that [`attention_backward`] computes, and the gradients of the score modifiers for which
/// `gradients` has memory. Writes all gradients to the caller's memory.
///
/// ```
/// # use noren::{Facts, Inputs, Options, Saved, Shape, View, atoms, attention};
/// use noren::{Bias, GradientsMut, ViewMut, attention_backward_into};
/// # let plan = atoms::causal().bind(&Shape::square(3), &Facts::new())?.plan();
/// # let (x, ones) = ([0.5, -1.0, 2.0], [1.0; 3]);
/// # let [x, dout] = [View::new(&x, [1, 1, 3, 1])?, View::new(&ones, [1, 1, 3, 1])?];
/// # let inputs = Inputs { q: x, k: x, v: x };
///
/// let bias = [0.0, 0.5, 0.25]; // one bias for each key, equal for all queries
/// let options = Options::default().bias(Bias::Dense(View::new(&bias, [1, 1, 1, 3])?));
/// let forward = attention(&inputs, &plan, &options)?;
/// let saved = Saved { out: View::new(&forward.out, forward.shape)?, lse: &forward.lse, dout };
///
/// let (mut dq, mut dk, mut dv, mut dbias) = ([0.0; 3], [0.0; 3], [0.0; 3], [0.0; 3]);
/// let [dq, dk, dv] = [&mut dq, &mut dk, &mut dv].map(|x| ViewMut::new(x, [1, 1, 3, 1]));
/// let bias = vec![Some(ViewMut::new(&mut dbias, [1, 1, 1, 3])?)];
/// let gradients = GradientsMut { bias, ..GradientsMut::new(dq?, dk?, dv?) };
/// attention_backward_into(&inputs, &saved, &plan, &options, gradients)?;
/// assert!(dbias.iter().sum::<f32>().abs() < 1e-6); // the gradient of a softmax sums to 0
/// # Ok::<(), noren::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`attention_backward`], and an error if the memory for a gradient does not have the shape of
/// the gradient, or if an option whose gradient is requested is not given.
pub fn attention_backward_into<T: Element>(
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
    gradients: GradientsMut<'_, T>,
) -> Result<(), Error> {
    check_saved(inputs, saved, plan, options)?;
    check_gradients(inputs, options, &gradients)?;
    // The plan may reorder queries and keys for the forward pass; the backward pass sums over queries and keys in their
    // original order.
    let plan = &*plan.in_place();
    let isa = Isa::choose(options.isa)?;
    let GradientsMut { dq, dk, dv, bias, soft, sinks } = gradients;
    let of_bias = |bias: &Bias<'_>| if let Bias::Relative { .. } = bias { Gradient::Relative } else { Gradient::Bias };
    let mut arrays: Vec<_> = options
        .bias
        .iter()
        .zip(bias)
        .filter_map(|(term, array)| Some((of_bias(term), SharedRows::of(array?))))
        .collect();
    arrays.extend(soft.map(|array| (Gradient::Soft, SharedRows::of(array))));
    let [batch, heads, q_len, _] = inputs.q.shape();
    let rows = SavedRows { out: saved.out, lse: View::new(saved.lse, [batch, heads, q_len, 1])?, dout: saved.dout };
    let cancel = Cancel::new(options);
    let run = Run { plan, options, isa, threads: thread_count(options), cancel: &cancel };
    run.backward(inputs, &rows, [dq, dk, dv].map(SharedRows::of), Wanted { arrays, sinks })?;
    cancel.finished()
}

/// The arrays of [`Saved`] in the form that the kernels read. The log-sum-exps are `[batch, heads, q_len, 1]` and may
/// have any strides.
pub(crate) struct SavedRows<'a, T> {
    pub(crate) out: View<'a, T>,
    pub(crate) lse: View<'a>,
    pub(crate) dout: View<'a, T>,
}

impl<'a> Run<'a> {
    /// Runs the backward pass over a plan that keeps queries and keys in their order (not reordered). Writes the
    /// gradients of queries, keys and values to `[dq, dk, dv]`, and those of score modifiers to `wanted`.
    ///
    /// # Errors
    /// Returns an error if the memory for partial sums would be too large.
    pub(crate) fn backward<T: Element>(
        &self,
        inputs: &Inputs<'a, T>,
        saved: &SavedRows<'a, T>,
        [dq, dk, dv]: [SharedRows<'a>; 3],
        wanted: Wanted<'a>,
    ) -> Result<(), Error> {
        let (plan, options) = (self.plan, self.options);
        let shape = dq.shape();
        // Sums are accumulated in `f32`, even if the result has a 16-bit type.
        let mut sums = if T::DTYPE == Dtype::F32 { Vec::new() } else { vec![0.0f32; shape.iter().product()] };
        let dq_sums = if sums.is_empty() { None } else { Some(SharedRows::of(ViewMut::new(&mut sums, shape)?)) };
        let head_dim = inputs.q.shape()[3];
        let pass = Backward {
            context: Context {
                plan,
                q: Rows::of(inputs.q),
                k: Rows::of(inputs.k),
                v: Rows::of(inputs.v),
                out: Rows::of(saved.out),
                dout: Rows::of(saved.dout),
                lse: saved.lse,
                modifiers: Modifiers::new(plan, head_dim, options),
                scale: options.scale_for(head_dim),
                softcap: options.softcap.map(f64::from),
                partial: options.partial,
                stats: Vec::new(),
            },
            sums: Sums { dq, dq_sums, dk, dv },
            wanted,
            threads: self.threads,
            cancel: self.cancel,
        };
        pass.compute_on(self.isa);
        Ok(())
    }
}

/// Returns an error if the results of the forward pass do not have the shapes of the plan.
fn check_saved<T: Element>(
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
) -> Result<(), Error> {
    check_saved_shapes(saved, check(inputs, plan.shape(), options)?)
}

/// Returns an error if the results of the forward pass do not fit an output of the shape `shape`, `[batch, heads,
/// q_len, v_dim]`.
pub(crate) fn check_saved_shapes<T: Element>(saved: &Saved<'_, T>, shape: [usize; 4]) -> Result<(), Error> {
    for (name, view) in [("out", &saved.out), ("dout", &saved.dout)] {
        if view.shape() != shape {
            let expected =
                format!("the output has shape [batch, heads, q_len, v_dim] = {shape:?}: give an array of this shape");
            return Err(mismatch(name, view.shape().to_vec(), expected));
        }
    }
    let rows = shape[..3].iter().product::<usize>();
    if saved.lse.len() != rows {
        let expected = format!(
            "the log-sum-exps have shape [batch, heads, q_len] = {:?}: give the {rows} values that the forward pass wrote",
            &shape[..3]
        );
        return Err(mismatch("lse", vec![saved.lse.len()], expected));
    }
    Ok(())
}

/// Returns an error if the memory for a gradient does not have the shape of the array to which the gradient belongs.
pub(crate) fn check_gradients<T: Element>(
    inputs: &Inputs<'_, T>,
    options: &Options<'_>,
    gradients: &GradientsMut<'_, T>,
) -> Result<(), Error> {
    let same = |name, given: [usize; 4], of: &str, expected: [usize; 4]| match given == expected {
        true => Ok(()),
        false => Err(mismatch(
            name,
            given.to_vec(),
            format!("the shape of {of} is {expected:?}: give a gradient of this shape"),
        )),
    };
    same("dq", gradients.dq.shape(), "q", inputs.q.shape())?;
    same("dk", gradients.dk.shape(), "k", inputs.k.shape())?;
    same("dv", gradients.dv.shape(), "v", inputs.v.shape())?;
    let refuse =
        |name, problem: &str| Err(Error::Option { name, given: "requested".to_owned(), problem: problem.to_owned() });
    if !gradients.bias.is_empty() && gradients.bias.len() != options.bias.len() {
        let expected = format!(
            "options.bias has {} entries: give one gradient for each of these entries, or an empty list",
            options.bias.len()
        );
        return Err(mismatch("gradients of biases", vec![gradients.bias.len()], expected));
    }
    for (bias, gradient) in options.bias.iter().zip(&gradients.bias) {
        match (bias, gradient) {
            (_, None) => {}
            (Bias::Dense(view), Some(gradient)) => same("bias gradient", gradient.shape(), "the bias", view.shape())?,
            (Bias::Relative { table }, Some(gradient)) => {
                same("relative bias gradient", gradient.shape(), "the table", table.shape())?;
            }
            (Bias::Alibi(_), Some(_)) => {
                return refuse(
                    "ALiBi gradient",
                    "the slopes have no gradient: give None for this entry of the gradients of biases",
                );
            }
        }
    }
    match (&options.soft, &gradients.soft) {
        (_, None) => {}
        (Some(soft), Some(gradient)) => same("soft gradient", gradient.shape(), "soft", soft.shape())?,
        (None, Some(_)) => {
            return refuse("soft gradient", "options.soft is None: set options.soft, or do not request its gradient");
        }
    }
    match (options.sinks, &gradients.sinks) {
        (_, None) => Ok(()),
        (Some(sinks), Some(gradient)) if sinks.len() == gradient.len() => Ok(()),
        (Some(sinks), Some(gradient)) => {
            let expected = format!("there are {} sinks: give a gradient with one value for each sink", sinks.len());
            Err(mismatch("sinks gradient", vec![gradient.len()], expected))
        }
        (None, Some(_)) => {
            refuse("sinks gradient", "options.sinks is None: set options.sinks, or do not request their gradient")
        }
    }
}
