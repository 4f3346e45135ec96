//! [`attention`] and [`attention_into`]: the public entry to the forward pass.

use crate::inputs::options::{Cancel, MOST_DIM};
use crate::kernel::arrays::rows::{Rows, SharedRows};
use crate::kernel::{forward::Forward, forward::Jobs, forward::Keys, math::scores::Modifiers, tile::Context};
use crate::{Element, Error, Isa, Options, View, ViewMut};
use noren_mask::{Plan, Shape};

/// The input arrays of attention, each with any strides. `heads` must be a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T = f32> {
    /// The queries, `[batch, heads, q_len, head_dim]`.
    pub q: View<'a, T>,
    /// The keys, `[batch, kv_heads, kv_len, head_dim]`.
    pub k: View<'a, T>,
    /// The values, `[batch, kv_heads, kv_len, v_dim]`.
    pub v: View<'a, T>,
}

/// The memory that [`attention_into`] writes. Every element is overwritten.
#[derive(Debug)]
pub struct Outputs<'a, T = f32> {
    /// The output, `[batch, heads, q_len, v_dim]` with any strides.
    pub out: ViewMut<'a, T>,
    /// Optional memory for the natural logarithm of each row's softmax denominator, contiguous, `[batch, heads,
    /// q_len]`.
    pub lse: Option<&'a mut [f32]>,
}

/// The result of [`attention`].
#[derive(Clone, PartialEq, Debug)]
pub struct Attention<T = f32> {
    /// The output, contiguous, `[batch, heads, q_len, v_dim]`.
    pub out: Vec<T>,
    /// The shape of `out`, `[batch, heads, q_len, v_dim]`.
    pub shape: [usize; 4],
    /// The natural logarithm of each row's softmax denominator, contiguous, `[batch, heads, q_len]`. Minus infinity for
    /// a row that has no allowed key.
    pub lse: Vec<f32>,
}

/// Computes masked attention: `softmax(scale * q k^T + ...) v`, with the softmax over the keys that `plan` allows.
///
/// The arrays in `inputs` must have the sizes of the plan. Values of type [`bf16`](crate::bf16) and
/// [`f16`](struct@crate::f16) are widened to `f32`. All arithmetic is in `f32`, and the output is rounded once, at the
/// end. The exception is `bf16` on [`Isa::Avx512Bf16`] and [`Isa::Amx`]: values are multiplied in pairs or tiles, softmax
/// weights are rounded to `bf16` (on `Amx` first to 1/512 of an octave), and sums are in `f32`.
///
/// The bits of a row's result depend only on the keys and values that the row may read, and on the processor path. The
/// bits do not depend on hidden keys and values (infinities and NaN included), padding, other batch rows, other
/// documents in the same batch row, or the number of threads. There are two exceptions. Sums and products that are too
/// small for normal `f32` numbers may round differently. If `bf16` values are multiplied in pairs or tiles, these begin where
/// content begins ([`PatternPlan::content_starts`](noren_mask::PatternPlan::content_starts)), which a plan knows from `padding`,
/// `keys` and `documents`, but not from masks that are given as cells.
///
/// # Errors
/// Returns an error if the shapes of the inputs do not fit the plan, if an option is invalid or does not fit the
/// shapes, or if the call is cancelled.
pub fn attention<T: Element>(
    inputs: &Inputs<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
) -> Result<Attention<T>, Error> {
    let shape = check(inputs, plan.shape(), options)?;
    let rows = shape[..3].iter().product::<usize>();
    let mut out = vec![T::from_f32(0.0); rows * shape[3]];
    let mut lse = vec![0.0; rows];
    compute(inputs, plan, options, Outputs { out: ViewMut::new(&mut out, shape)?, lse: Some(&mut lse) })?;
    Ok(Attention { out, shape, lse })
}

/// Computes [`attention`] and writes the result to the caller's memory.
///
/// ```
/// use noren::{Facts, Inputs, Options, Outputs, Shape, View, ViewMut, atoms, attention_into, bf16};
///
/// let plan = atoms::causal().bind(&Shape::square(3), &Facts::new())?.plan();
/// let x = [1.0, 2.0, 3.0].map(bf16::from_f32);
/// let x = View::new(&x, [1, 1, 3, 1])?;
/// let mut memory = [bf16::ZERO; 6]; // every other value is the output's
/// let out = ViewMut::strided(&mut memory, [1, 1, 3, 1], [0, 0, 2, 1], 0)?;
/// attention_into(&Inputs { q: x, k: x, v: x }, &plan, &Options::default(), Outputs { out, lse: None })?;
/// assert_eq!(memory[0], bf16::ONE);
/// # Ok::<(), noren::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`attention`](crate::attention()), and [`Error::Shape`] if the memory for an output has
/// another size than the output.
pub fn attention_into<T: Element>(
    inputs: &Inputs<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
    outputs: Outputs<'_, T>,
) -> Result<(), Error> {
    let shape = check(inputs, plan.shape(), options)?;
    check_outputs(&outputs, shape)?;
    compute(inputs, plan, options, outputs)
}

/// Returns an error if the outputs do not have the shape `shape`, `[batch, heads, q_len, v_dim]`.
pub(crate) fn check_outputs<T: Element>(outputs: &Outputs<'_, T>, shape: [usize; 4]) -> Result<(), Error> {
    if outputs.out.shape() != shape {
        let expected =
            format!("the output has shape [batch, heads, q_len, v_dim] = {shape:?}: give memory of this shape");
        return Err(mismatch("out", outputs.out.shape().to_vec(), expected));
    }
    let rows = shape[..3].iter().product::<usize>();
    if let Some(lse) = outputs.lse.as_ref().filter(|lse| lse.len() != rows) {
        let expected = format!(
            "the log-sum-exps have shape [batch, heads, q_len] = {:?}: give memory for {rows} values",
            &shape[..3]
        );
        return Err(mismatch("lse", vec![lse.len()], expected));
    }
    Ok(())
}

/// Runs the forward pass. The arguments were checked before.
fn compute<T: Element>(
    inputs: &Inputs<'_, T>,
    plan: &Plan,
    options: &Options<'_>,
    outputs: Outputs<'_, T>,
) -> Result<(), Error> {
    let [batch, heads, q_len, _] = outputs.out.shape();
    let lse = outputs.lse.map(|lse| ViewMut::new(lse, [batch, heads, q_len, 1])).transpose()?;
    let isa = Isa::choose(options.isa)?;
    let cancel = Cancel::new(options);
    let results = (SharedRows::of(outputs.out), lse.map(SharedRows::of));
    let run = Run { plan, options, isa, threads: thread_count(options), cancel: &cancel };
    run.forward(inputs, &Jobs::new(plan), results);
    cancel.finished()
}

/// Returns the maximum number of threads of a call: the option `threads`, but at most the number of threads of the
/// thread pool.
pub(crate) fn thread_count(options: &Options<'_>) -> usize {
    let threads = rayon::current_num_threads();
    options.threads.unwrap_or(threads).min(threads)
}

/// The settings of a forward or backward pass over one plan. The code that creates a `Run` has checked these settings.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) options: &'a Options<'a>,
    pub(crate) isa: Isa,
    pub(crate) threads: usize,
    pub(crate) cancel: &'a Cancel<'a>,
}

impl<'a> Run<'a> {
    /// Runs the forward pass. Writes the outputs to `out`, and the log-sum-exps (`[batch, heads, q_len, 1]`) to `lse`
    /// if `lse` is not `None`. `jobs` is the division of the plan into units of work, each for one thread.
    pub(crate) fn forward<T: Element>(
        &self,
        inputs: &Inputs<'a, T>,
        jobs: &'a Jobs,
        (out, lse): (SharedRows<'a>, Option<SharedRows<'a>>),
    ) {
        let pass = Forward {
            context: Context {
                plan: self.plan,
                q: Rows::of(inputs.q),
                starts: None,
                bits: (0..jobs.shared_bits).map(|_| Default::default()).collect(),
                segments: Vec::new(),
                modifiers: Modifiers::new(self.plan, inputs.q.shape()[3], self.options),
                out,
                lse,
            },
            jobs,
            keys: Keys::Given { k: Rows::of(inputs.k), v: Rows::of(inputs.v) },
            threads: self.threads,
            cancel: self.cancel,
        };
        pass.compute_on(self.isa);
    }
}

/// Returns the shape of the output, `[batch, heads, q_len, v_dim]`. Returns an error if arrays or options do not fit
/// the shape of the plan.
pub(crate) fn check<T: Element>(
    inputs: &Inputs<'_, T>,
    shape: &Shape,
    options: &Options<'_>,
) -> Result<[usize; 4], Error> {
    shape.check()?;
    let Inputs { q, k, v } = inputs;
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    let [.., head_dim] = q.shape();
    let [.., v_dim] = v.shape();
    for (name, given, expected, what) in [
        ("q", q.shape(), [batch, heads, shape.q_len(), head_dim], "[batch, heads, q_len, head_dim]"),
        ("k", k.shape(), [batch, kv_heads, shape.kv_len(), head_dim], "[batch, kv_heads, kv_len, head_dim]"),
        ("v", v.shape(), [batch, kv_heads, shape.kv_len(), v_dim], "[batch, kv_heads, kv_len, v_dim]"),
    ] {
        if given != expected {
            let expected = format!(
                "the plan and the head_dim of q require the shape {what} = {expected:?}: bind the mask to the sizes of the arrays"
            );
            return Err(mismatch(name, given.to_vec(), expected));
        }
    }
    let output = output_shape(inputs)?;
    options.check(shape)?;
    Ok(output)
}

/// Checks that k has the batch rows and the head_dim of q, and v those of k.
pub(crate) fn check_keys<T: Element>(Inputs { q, k, v }: &Inputs<'_, T>) -> Result<(), Error> {
    let ([batch, _, _, head_dim], [_, kv_heads, kv_len, _], [.., v_dim]) = (q.shape(), k.shape(), v.shape());
    let fits = |name, given: [usize; 4], expected: [usize; 4], what: &str| match given == expected {
        true => Ok(()),
        false => Err(mismatch(name, given.to_vec(), format!("{name} must have {what} = {expected:?}"))),
    };
    let what = "the batch rows and the head_dim of q: give k the shape [batch, kv_heads, kv_len, head_dim]";
    fits("k", k.shape(), [batch, kv_heads, kv_len, head_dim], what)?;
    let what = "the batch rows, key-value heads and keys of k: give v the shape [batch, kv_heads, kv_len, v_dim]";
    fits("v", v.shape(), [batch, kv_heads, kv_len, v_dim], what)
}

/// Returns the shape of the output, `[batch, heads, q_len, v_dim]`.
///
/// # Errors
/// Returns an error if the rows of q or v are too long, or if the output would not fit into memory.
pub(crate) fn output_shape<T: Element>(Inputs { q, v, .. }: &Inputs<'_, T>) -> Result<[usize; 4], Error> {
    for (name, given) in [("q", q.shape()), ("v", v.shape())] {
        if given[3] > MOST_DIM {
            let expected = "the length of the last dimension can be at most 2^24".to_owned();
            return Err(mismatch(name, given.to_vec(), expected));
        }
    }
    let ([batch, heads, q_len, _], [.., v_dim]) = (q.shape(), v.shape());
    let shape = [batch, heads, q_len, v_dim];
    let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    if elements.is_none_or(|n| n > isize::MAX as usize / 4) {
        let expected =
            "the output would not fit into memory: give a v with a smaller last dimension and without strides of 0"
                .to_owned();
        return Err(mismatch("v", v.shape().to_vec(), expected));
    }
    Ok(shape)
}

pub(crate) fn mismatch(name: &'static str, given: Vec<usize>, expected: String) -> Error {
    Error::Shape { name, given, expected }
}
