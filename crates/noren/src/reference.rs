//! Attention in `f64`, written to be read: forward and backward are the definition that everything else is tested against.
//!
//! Slow and plain: one row of scores at a time, every cell asked for. All arrays are contiguous.

use crate::options::{LEAST_WEIGHT, LOWEST_SCORE};
use crate::{Bias, Error, Options, View};
use noren_mask::Plan;

/// What a cell's mask says and where it lies, by `[batch, head, query row, key]`.
pub struct Cells<'a> {
    /// Whether the query may read the key.
    pub allowed: &'a dyn Fn([usize; 4]) -> bool,
    /// The position of the key minus that of the query, for ALiBi and relative bias.
    pub distance: &'a dyn Fn([usize; 4]) -> i64,
}

/// What [`forward`] returns: `out` is `[batch, heads, q_len, v_dim]`, `lse` is `[batch, heads, q_len]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Forward {
    /// The output.
    pub out: Vec<f64>,
    /// The natural logarithm of each row's softmax denominator; minus infinity for an empty row.
    pub lse: Vec<f64>,
}

/// What [`backward`] returns: the gradients of `sum(out * dout)`, each shaped as what it is the gradient of.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients {
    /// Of the queries.
    pub dq: Vec<f64>,
    /// Of the keys.
    pub dk: Vec<f64>,
    /// Of the values.
    pub dv: Vec<f64>,
    /// Of the scores after scale, softcap and bias, `[batch, heads, q_len, kv_len]`: summed over what a bias broadcasts
    /// over, this is the bias's gradient.
    pub dscores: Vec<f64>,
    /// Of the sinks, one for each query head.
    pub dsinks: Vec<f64>,
}

/// [`forward`] for the cells that a plan's mask allows, asked one by one from its definition.
pub fn forward_plan(
    q: &View<'_>,
    k: &View<'_>,
    v: &View<'_>,
    plan: &Plan,
    options: &Options<'_>,
) -> Result<Forward, Error> {
    crate::attention::check(q, k, v, plan, options)?;
    let allowed = |[b, h, i, j]: [usize; 4]| plan.bound().allowed(b, h, i, j);
    let distance = |[b, _, i, j]: [usize; 4]| plan.key_position(b, j) - plan.query_position(b, i);
    Ok(forward(q, k, v, &Cells { allowed: &allowed, distance: &distance }, options))
}

/// Masked attention. Shapes as in [`attention`](crate::attention()), not checked: a wrong one panics.
pub fn forward(q: &View<'_>, k: &View<'_>, v: &View<'_>, cells: &Cells<'_>, options: &Options<'_>) -> Forward {
    let ([batch, heads, q_len, _], [_, kv_heads, kv_len, v_dim]) = (q.shape(), v.shape());
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for (b, h, i) in rows(batch, heads, q_len) {
        let row = Row::new(q, k, cells, options, [b, h, i]);
        let kv_head = h * kv_heads / heads;
        let output =
            |d| (0..kv_len).filter(|j| row.allowed[*j]).map(|j| row.p[j] * at(v, [b, kv_head, j, d])).sum::<f64>();
        out.extend((0..v_dim).map(output));
        lse.push(row.lse);
    }
    Forward { out, lse }
}

/// The gradients of `sum(out * dout)`, where `dout` is shaped as the output.
pub fn backward([q, k, v]: [&View<'_>; 3], dout: &View<'_>, cells: &Cells<'_>, options: &Options<'_>) -> Gradients {
    let ([batch, heads, q_len, head_dim], [_, kv_heads, kv_len, v_dim]) = (q.shape(), v.shape());
    let scale = options.scale_for(head_dim);
    let mut grad = Gradients {
        dq: vec![0.0; batch * heads * q_len * head_dim],
        dk: vec![0.0; batch * kv_heads * kv_len * head_dim],
        dv: vec![0.0; batch * kv_heads * kv_len * v_dim],
        dscores: vec![0.0; batch * heads * q_len * kv_len],
        dsinks: vec![0.0; heads],
    };
    for (b, h, i) in rows(batch, heads, q_len) {
        let row = Row::new(q, k, cells, options, [b, h, i]);
        let g = h * kv_heads / heads;
        let visible = || (0..kv_len).filter(|j| row.allowed[*j]);
        // d(sum out * dout) / d p_j, and its mean under p: the softmax's derivative is p * (dp - mean).
        let dp = |j| (0..v_dim).map(|d| at(dout, [b, h, i, d]) * at(v, [b, g, j, d])).sum::<f64>();
        let mean: f64 = visible().map(|j| row.p[j] * dp(j)).sum();
        grad.dsinks[h] -= row.sink * mean;
        for j in visible() {
            let key = (b * kv_heads + g) * kv_len + j;
            let query = (b * heads + h) * q_len + i;
            (0..v_dim).for_each(|d| grad.dv[key * v_dim + d] += row.p[j] * at(dout, [b, h, i, d]));
            let ds = row.p[j] * (dp(j) - mean);
            grad.dscores[query * kv_len + j] = ds;
            let ds = ds * scale * row.cap_slope[j];
            for d in 0..head_dim {
                grad.dq[query * head_dim + d] += ds * at(k, [b, g, j, d]);
                grad.dk[key * head_dim + d] += ds * at(q, [b, h, i, d]);
            }
        }
    }
    grad
}

/// One query's softmax.
struct Row {
    allowed: Vec<bool>,
    /// Weights; 0 where not allowed.
    p: Vec<f64>,
    /// The derivative of the softcap.
    cap_slope: Vec<f64>,
    /// The sink's share of the softmax.
    sink: f64,
    lse: f64,
}

impl Row {
    fn new(q: &View<'_>, k: &View<'_>, cells: &Cells<'_>, options: &Options<'_>, [b, h, i]: [usize; 3]) -> Row {
        let ([_, heads, q_len, head_dim], [_, kv_heads, kv_len, _]) = (q.shape(), k.shape());
        let broadcast =
            |view: &View<'_>, j| at(&view.broadcast([q.shape()[0], heads, q_len, kv_len]).unwrap(), [b, h, i, j]);
        let soft = |j| options.soft.as_ref().map_or(1.0, |soft| broadcast(soft, j));
        let allowed: Vec<bool> =
            (0..kv_len).map(|j| (cells.allowed)([b, h, i, j]) && soft(j) >= LEAST_WEIGHT).collect();
        let (mut score, mut cap_slope) = (vec![f64::NEG_INFINITY; kv_len], vec![1.0; kv_len]);
        for j in (0..kv_len).filter(|j| allowed[*j]) {
            let dot = |d| at(q, [b, h, i, d]) * at(k, [b, h * kv_heads / heads, j, d]);
            let mut x = (0..head_dim).map(dot).sum::<f64>() * options.scale_for(head_dim);
            if let Some(cap) = options.softcap.map(f64::from) {
                let tanh = (x / cap).tanh();
                (x, cap_slope[j]) = (cap * tanh, 1.0 - tanh * tanh);
            }
            for bias in &options.bias {
                x += match bias {
                    Bias::Dense(view) => broadcast(view, j),
                    Bias::Alibi(slopes) => -f64::from(slopes[h]) * (cells.distance)([b, h, i, j]).abs() as f64,
                    Bias::Relative { table } => {
                        let reach = table.shape()[3] as i64 / 2;
                        let entry = (cells.distance)([b, h, i, j]).clamp(-reach, reach) + reach;
                        at(table, [0, h.min(table.shape()[1] - 1), 0, entry as usize])
                    }
                };
            }
            // NaN stays NaN
            score[j] = if x < LOWEST_SCORE { f64::NEG_INFINITY } else { x };
        }
        let sink = options.sinks.map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[h]));
        let larger = |a: f64, b: &f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(*b) };
        let top = score.iter().fold(f64::NEG_INFINITY, larger);
        if top == f64::NEG_INFINITY {
            // nothing is read, not even a value that is infinite
            let allowed = vec![false; kv_len];
            return Row { p: vec![0.0; kv_len], allowed, cap_slope, sink: 0.0, lse: f64::NEG_INFINITY };
        }
        let top = top.max(sink);
        let weight: Vec<f64> =
            (0..kv_len).map(|j| if allowed[j] { soft(j) * (score[j] - top).exp() } else { 0.0 }).collect();
        let total = weight.iter().sum::<f64>() + (sink - top).exp();
        let p = weight.iter().map(|w| w / total).collect();
        Row { p, allowed, cap_slope, sink: (sink - top).exp() / total, lse: total.ln() + top }
    }
}

fn rows(batch: usize, heads: usize, q_len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..batch).flat_map(move |b| (0..heads).flat_map(move |h| (0..q_len).map(move |i| (b, h, i))))
}

fn at(view: &View<'_>, index: [usize; 4]) -> f64 {
    f64::from(view.get(index))
}
