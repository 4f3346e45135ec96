//! [`attention`] and [`attention_into`]: the public entry to the forward pass.

use crate::kernel::{forward::Forward, forward::Jobs, output::SharedRows, scores::Modifiers, tile::Context};
use crate::{Error, Level, Options, View, ViewMut};
use noren_mask::Plan;

/// What [`attention`] returns.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// The output, contiguous, `[batch, heads, q_len, v_dim]`.
    pub out: Vec<f32>,
    /// The shape of `out`.
    pub shape: [usize; 4],
    /// The natural logarithm of each row's softmax denominator, contiguous, `[batch, heads, q_len]`; minus infinity for a
    /// row that may read nothing.
    pub lse: Vec<f32>,
}

/// Masked attention, `softmax(scale * q k^T + ..., over the keys that plan allows) v`.
///
/// `q` is `[batch, heads, q_len, head_dim]`, `k` is `[batch, kv_heads, kv_len, head_dim]`, `v` is
/// `[batch, kv_heads, kv_len, v_dim]`, as the plan's shape says; `heads` must be a multiple of `kv_heads`.
///
/// A row's result depends on what the row may read and on the processor path, and on nothing else, to the bit: not on
/// hidden keys and values (infinities and NaN included), padding, batch mates, packed neighbours, or threads. (The one
/// reservation: sums and products so small that they leave the range of normal `f32` numbers may round differently.)
pub fn attention(
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    plan: &Plan,
    options: &Options<'_>,
) -> Result<Output, Error> {
    let shape = check(q, k, v, plan, options)?;
    let rows = shape[..3].iter().product::<usize>();
    let mut out = vec![0.0; rows * shape[3]];
    let mut lse = vec![0.0; rows];
    attention_into(q, k, v, plan, options, &mut ViewMut::new(&mut out, shape)?, Some(&mut lse))?;
    Ok(Output { out, shape, lse })
}

/// [`attention`] into the caller's memory: `out` is `[batch, heads, q_len, v_dim]` with any strides, `lse`, when wanted,
/// contiguous `[batch, heads, q_len]`. Every element is overwritten.
pub fn attention_into(
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    plan: &Plan,
    options: &Options<'_>,
    out: &mut ViewMut<'_>,
    lse: Option<&mut [f32]>,
) -> Result<(), Error> {
    let shape = check(q, k, v, plan, options)?;
    if out.shape() != shape {
        return Err(mismatch("out", out.shape().to_vec(), format!("[batch, heads, q_len, v_dim] is {shape:?}")));
    }
    let rows = shape[..3].iter().product::<usize>();
    let mut lse = match lse {
        Some(lse) if lse.len() != rows => {
            let expected = format!("[batch, heads, q_len] is {:?}: give {rows} values", &shape[..3]);
            return Err(mismatch("lse", vec![lse.len()], expected));
        }
        Some(lse) => Some(ViewMut::new(lse, [shape[0], shape[1], shape[2], 1])?),
        None => None,
    };
    let level = Level::choose(options.level)?;
    let threads = rayon::current_num_threads();
    let jobs = Jobs::new(plan);
    level.run(Forward {
        context: Context {
            plan,
            q: *q,
            bits: (0..jobs.shared_bits).map(|_| Default::default()).collect(),
            modifiers: Modifiers::new(plan, q.shape()[3], options),
            out: SharedRows::new(out.parts()),
            lse: lse.as_mut().map(|lse| SharedRows::new(lse.parts())),
        },
        jobs,
        k: *k,
        v: *v,
        threads: options.threads.unwrap_or(threads).min(threads),
    });
    Ok(())
}

/// Refuses arrays and options that do not fit the plan; returns the shape of the output.
pub(crate) fn check(
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    plan: &Plan,
    options: &Options<'_>,
) -> Result<[usize; 4], Error> {
    let shape = plan.shape();
    shape.check()?;
    let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
    let [.., head_dim] = q.shape();
    let [.., v_dim] = v.shape();
    for (name, given, expected, what) in [
        ("q", q.shape(), [batch, heads, shape.q_len(), head_dim], "[batch, heads, q_len, head_dim]"),
        ("k", k.shape(), [batch, kv_heads, shape.kv_len(), head_dim], "[batch, kv_heads, kv_len, head_dim]"),
        ("v", v.shape(), [batch, kv_heads, shape.kv_len(), v_dim], "[batch, kv_heads, kv_len, v_dim]"),
    ] {
        if given != expected {
            let expected =
                format!("the plan and q's head_dim make {what} {expected:?}: bind the mask to the arrays' sizes");
            return Err(mismatch(name, given.to_vec(), expected));
        }
    }
    options.check(shape)?;
    let elements = [batch, heads, shape.q_len(), v_dim].iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    if elements.is_none_or(|n| n > isize::MAX as usize / 4) {
        let expected = "the output would not fit into memory: give a v that really has so many columns".to_owned();
        return Err(mismatch("v", v.shape().to_vec(), expected));
    }
    Ok([batch, heads, shape.q_len(), v_dim])
}

fn mismatch(name: &'static str, given: Vec<usize>, expected: String) -> Error {
    Error::Shape { name, given, expected }
}
