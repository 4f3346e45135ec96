//! [`attention_backward`] and [`attention_backward_into`]: the public entry to the backward pass.

use crate::attention::{check, mismatch};
use crate::kernel::backward::{Backward, Context, Gradient, Sums, Wanted};
use crate::kernel::{rows::Rows, rows::SharedRows, scores::Modifiers};
use crate::options::Cancel;
use crate::{Bias, Dtype, Element, Error, Inputs, Isa, Options, View, ViewMut};
use noren_mask::Plan;

/// What the backward pass reads beside the [`Inputs`]: what the forward pass gave, and the gradient of it.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, T = f32> {
    /// The output of the forward pass, `[batch, heads, q_len, v_dim]`.
    pub out: View<'a, T>,
    /// Its log-sum-exps, contiguous, `[batch, heads, q_len]`.
    pub lse: &'a [f32],
    /// The gradient of the loss with respect to `out`, `[batch, heads, q_len, v_dim]`.
    pub dout: View<'a, T>,
}

/// Where [`attention_backward_into`] writes, with any strides. Every element is overwritten; where nothing was allowed, it
/// is 0.
#[derive(Debug)]
pub struct GradientsMut<'a, T = f32> {
    /// Of the queries, `[batch, heads, q_len, head_dim]`.
    pub dq: ViewMut<'a, T>,
    /// Of the keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub dk: ViewMut<'a, T>,
    /// Of the values, `[batch, kv_heads, kv_len, v_dim]`.
    pub dv: ViewMut<'a, T>,
    /// Where they are wanted, the gradients of what [`Options::bias`] lists, in the same order, each shaped as the array
    /// it belongs to: dimensions of 1 are summed over. Empty for none; `None` for ALiBi, which has no gradient. Each takes
    /// a pass of its own, about as long as the backward pass itself.
    pub bias: Vec<Option<ViewMut<'a>>>,
    /// Where it is wanted, the gradient of [`Options::soft`], as for a bias; 0 where the weight counts as 0.
    pub soft: Option<ViewMut<'a>>,
    /// Where it is wanted, the gradient of [`Options::sinks`], one value for each query head.
    pub sinks: Option<&'a mut [f32]>,
}

impl<'a, T> GradientsMut<'a, T> {
    /// The gradients of queries, keys and values alone.
    pub fn new(dq: ViewMut<'a, T>, dk: ViewMut<'a, T>, dv: ViewMut<'a, T>) -> Self {
        GradientsMut { dq, dk, dv, bias: Vec::new(), soft: None, sinks: None }
    }
}

/// What [`attention_backward`] returns, contiguous.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients<T = f32> {
    /// Of the queries, `[batch, heads, q_len, head_dim]`.
    pub dq: Vec<T>,
    /// Of the keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub dk: Vec<T>,
    /// Of the values, `[batch, kv_heads, kv_len, v_dim]`.
    pub dv: Vec<T>,
}

/// The gradients of [`attention`](crate::attention()): of `sum(out * dout)` with respect to queries, keys and values.
///
/// With weights `P`, `dP = dout v^T` and `dS = P (dP - sum(dout * out))` by row: `dq = scale * dS k`,
/// `dk = scale * dS^T q`, `dv = P^T dout` (Dao et al. 2022; with a softcap, `dS` times its derivative), over the cells that
/// the plan allows and no others.
///
/// What is promised for the forward pass holds here: hidden queries, keys, values, output gradients and biases, infinities
/// and NaN included, change no bit; neither do threads, padding, batch mates, or documents packed beside. The gradients of
/// keys and values that nobody reads, and of queries that read nothing, are 0. Where `bf16` is multiplied in pairs, weights and
/// their gradients are rounded to `bf16`, and bits survive what moves rows and keys by even numbers.
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
/// assert_eq!(gradients.dq[0], 0.0); // the first query has one key to read, whatever it is
/// assert!((gradients.dv.iter().sum::<f32>() - 3.0).abs() < 1e-6); // each of three rows shares out a weight of 1
/// # Ok::<(), noren::Error>(())
/// ```
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
        let expected = "its gradient would not fit into memory: give arrays that really have so many elements";
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

/// [`attention_backward`] into the caller's memory, with the gradients of score modifiers that `gradients` asks for.
///
/// ```
/// # use noren::{Facts, Inputs, Options, Saved, Shape, View, atoms, attention};
/// use noren::{Bias, GradientsMut, ViewMut, attention_backward_into};
/// # let plan = atoms::causal().bind(&Shape::square(3), &Facts::new())?.plan();
/// # let (x, ones) = ([0.5, -1.0, 2.0], [1.0; 3]);
/// # let [x, dout] = [View::new(&x, [1, 1, 3, 1])?, View::new(&ones, [1, 1, 3, 1])?];
/// # let inputs = Inputs { q: x, k: x, v: x };
///
/// let bias = [0.0, 0.5, 0.25]; // of each key, for all queries
/// let options = Options::default().bias(Bias::Dense(View::new(&bias, [1, 1, 1, 3])?));
/// let forward = attention(&inputs, &plan, &options)?;
/// let saved = Saved { out: View::new(&forward.out, forward.shape)?, lse: &forward.lse, dout };
///
/// let (mut dq, mut dk, mut dv, mut dbias) = ([0.0; 3], [0.0; 3], [0.0; 3], [0.0; 3]);
/// let [dq, dk, dv] = [&mut dq, &mut dk, &mut dv].map(|x| ViewMut::new(x, [1, 1, 3, 1]));
/// let bias = vec![Some(ViewMut::new(&mut dbias, [1, 1, 1, 3])?)];
/// let gradients = GradientsMut { bias, ..GradientsMut::new(dq?, dk?, dv?) };
/// attention_backward_into(&inputs, &saved, &plan, &options, gradients)?;
/// assert!(dbias.iter().sum::<f32>().abs() < 1e-6); // what one key wins, the others lose
/// # Ok::<(), noren::Error>(())
/// ```
pub fn attention_backward_into<T: Element>(
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
    gradients: GradientsMut<'_, T>,
) -> Result<(), Error> {
    check_saved(inputs, saved, plan, options)?;
    check_gradients(inputs, options, &gradients)?;
    // Sums over queries and keys are taken in their own order, whatever the forward pass read them in.
    let plan = &*plan.in_place();
    let isa = Isa::choose(options.isa)?;
    let threads = rayon::current_num_threads();
    let GradientsMut { dq, dk, dv, bias, soft, sinks } = gradients;
    let of_bias = |bias: &Bias<'_>| if let Bias::Relative { .. } = bias { Gradient::Relative } else { Gradient::Bias };
    let mut arrays: Vec<_> = options
        .bias
        .iter()
        .zip(bias)
        .filter_map(|(term, array)| Some((of_bias(term), SharedRows::of(array?))))
        .collect();
    arrays.extend(soft.map(|array| (Gradient::Soft, SharedRows::of(array))));

    let shape = dq.shape();
    // Sums in progress keep their digits.
    let mut sums = if T::DTYPE == Dtype::F32 { Vec::new() } else { vec![0.0f32; shape.iter().product()] };
    let dq_sums = if sums.is_empty() { None } else { Some(SharedRows::of(ViewMut::new(&mut sums, shape)?)) };
    let head_dim = inputs.q.shape()[3];
    let cancel = Cancel::new(options);
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
        sums: Sums { dq: SharedRows::of(dq), dq_sums, dk: SharedRows::of(dk), dv: SharedRows::of(dv) },
        wanted: Wanted { arrays, sinks },
        threads: options.threads.unwrap_or(threads).min(threads),
        cancel: &cancel,
    };
    pass.compute_on(isa);
    cancel.finished()
}

/// Refuses what does not fit the plan.
fn check_saved<T: Element>(
    inputs: &Inputs<'_, T>,
    saved: &Saved<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
) -> Result<(), Error> {
    let shape = check(inputs, plan.shape(), options)?;
    for (name, view) in [("out", &saved.out), ("dout", &saved.dout)] {
        if view.shape() != shape {
            let expected =
                format!("[batch, heads, q_len, v_dim] is {shape:?}: give one value for each of the output's");
            return Err(mismatch(name, view.shape().to_vec(), expected));
        }
    }
    let rows = shape[..3].iter().product::<usize>();
    if saved.lse.len() != rows {
        let expected =
            format!("[batch, heads, q_len] is {:?}: give the {rows} values that the forward pass wrote", &shape[..3]);
        return Err(mismatch("lse", vec![saved.lse.len()], expected));
    }
    Ok(())
}

/// Refuses gradients that are not shaped as what they belong to.
fn check_gradients<T: Element>(
    inputs: &Inputs<'_, T>,
    options: &Options<'_>,
    gradients: &GradientsMut<'_, T>,
) -> Result<(), Error> {
    let same = |name, given: [usize; 4], of: &str, expected: [usize; 4]| match given == expected {
        true => Ok(()),
        false => Err(mismatch(name, given.to_vec(), format!("{of} is {expected:?}: a gradient has the same shape"))),
    };
    same("dq", gradients.dq.shape(), "q", inputs.q.shape())?;
    same("dk", gradients.dk.shape(), "k", inputs.k.shape())?;
    same("dv", gradients.dv.shape(), "v", inputs.v.shape())?;
    let refuse =
        |name, problem: &str| Err(Error::Option { name, given: "asked for".to_owned(), problem: problem.to_owned() });
    if !gradients.bias.is_empty() && gradients.bias.len() != options.bias.len() {
        let expected = format!("options.bias has {}: give one entry for each, or none at all", options.bias.len());
        return Err(mismatch("gradients of biases", vec![gradients.bias.len()], expected));
    }
    for (bias, gradient) in options.bias.iter().zip(&gradients.bias) {
        match (bias, gradient) {
            (_, None) => {}
            (Bias::Dense(view), Some(gradient)) => {
                same("gradient of a bias", gradient.shape(), "the bias", view.shape())?
            }
            (Bias::Relative { table }, Some(gradient)) => {
                same("gradient of a relative bias", gradient.shape(), "the table", table.shape())?;
            }
            (Bias::Alibi(_), Some(_)) => return refuse("the gradient of ALiBi", "its slopes are fixed: give None"),
        }
    }
    match (&options.soft, &gradients.soft) {
        (_, None) => {}
        (Some(soft), Some(gradient)) => same("gradient of soft weights", gradient.shape(), "soft", soft.shape())?,
        (None, Some(_)) => return refuse("the gradient of soft weights", "there are none: set options.soft"),
    }
    match (options.sinks, &gradients.sinks) {
        (_, None) => Ok(()),
        (Some(sinks), Some(gradient)) if sinks.len() == gradient.len() => Ok(()),
        (Some(sinks), Some(gradient)) => {
            let expected = format!("there are {} sinks: give one value for each", sinks.len());
            Err(mismatch("gradient of sinks", vec![gradient.len()], expected))
        }
        (None, Some(_)) => refuse("the gradient of sinks", "there are none: set options.sinks"),
    }
}
