//! Attention in `f64`, written to be easy to read. The forward and backward passes in this module are the definition of
//! attention: tests compare all kernels with them.
//!
//! This code is slow and simple: the code computes one row of scores at a time and tests every cell. Arrays may have
//! any [`Element`] type; results are contiguous.
//!
//! ```
//! use noren::{Facts, Inputs, Options, Shape, View, atoms, reference};
//!
//! let plan = atoms::causal().bind(&Shape::square(3), &Facts::new())?.plan();
//! let x = View::new(&[1f32, 2.0, 3.0], [1, 1, 3, 1])?;
//! let (inputs, options) = (Inputs { q: x, k: x, v: x }, Options::default());
//! let whole = reference::forward(&inputs, &plan, &options)?;
//! let row = reference::row(&inputs, &plan, &options, [0, 0, 2]);
//! assert_eq!((row.out[0], row.lse), (whole.out[2], whole.lse[2]));
//! let gradients = reference::backward(&inputs, &x, &plan, &options)?;
//! assert_eq!(gradients.dq.len(), 3);
//! # Ok::<(), noren::Error>(())
//! ```

use crate::attention::check;
use crate::inputs::options::{LEAST_WEIGHT, LOWEST_SCORE};
use crate::{Bias, Element, Error, Inputs, Options, View};
use noren_mask::{BoundMask, Plan, Shape};

/// The cells `[batch, head, query row, key]` that a mask allows. [`Plan`], [`BoundMask`] and [`FromFns`] (a pair of
/// functions) implement this trait.
pub trait Cells {
    /// Returns the sizes that the arrays must have, or `None` if any sizes are accepted.
    fn shape(&self) -> Option<&Shape>;
    /// Returns whether the query of cell `[batch, head, query row, key]` may read its key.
    fn allowed(&self, cell: [usize; 4]) -> bool;
    /// Returns the position of the key minus the position of the query, for the cell `[batch, head, query row, key]`.
    /// ALiBi and relative biases use this distance.
    fn distance(&self, cell: [usize; 4]) -> i64;
}

impl Cells for BoundMask {
    fn shape(&self) -> Option<&Shape> {
        Some(self.shape())
    }

    fn allowed(&self, [b, h, i, j]: [usize; 4]) -> bool {
        self.allowed(b, h, i, j)
    }

    fn distance(&self, [b, _, i, j]: [usize; 4]) -> i64 {
        self.key_position(b, j) - self.query_position(b, i)
    }
}

/// The cells that the mask of the plan allows. They are computed from the definition of the mask; the tiles of the plan
/// are not used.
impl Cells for Plan {
    fn shape(&self) -> Option<&Shape> {
        Cells::shape(self.bound())
    }

    fn allowed(&self, cell: [usize; 4]) -> bool {
        Cells::allowed(self.bound(), cell)
    }

    fn distance(&self, cell: [usize; 4]) -> i64 {
        Cells::distance(self.bound(), cell)
    }
}

/// The allowed cells of a mask, defined by two functions.
pub struct FromFns<A, D> {
    /// The function that returns whether the query of cell `[batch, head, query row, key]` may read its key.
    pub allowed: A,
    /// The function that returns the position of the key minus the position of the query, for the cell `[batch, head,
    /// query row, key]`.
    pub distance: D,
}

impl<A: Fn([usize; 4]) -> bool, D: Fn([usize; 4]) -> i64> Cells for FromFns<A, D> {
    fn shape(&self) -> Option<&Shape> {
        None
    }

    fn allowed(&self, cell: [usize; 4]) -> bool {
        (self.allowed)(cell)
    }

    fn distance(&self, cell: [usize; 4]) -> i64 {
        (self.distance)(cell)
    }
}

/// The result of [`forward`], as contiguous arrays: `out` is `[batch, heads, q_len, v_dim]`, `lse` is `[batch, heads,
/// q_len]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Forward {
    /// The output, `[batch, heads, q_len, v_dim]`.
    pub out: Vec<f64>,
    /// The natural logarithm of each row's softmax denominator; minus infinity for a row that reads no key.
    pub lse: Vec<f64>,
}

/// The result of [`backward`]: the gradients of `sum(out * dout)`. Each gradient has the shape of the array to which it
/// belongs.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients {
    /// The gradient of the queries, with the shape of the queries.
    pub dq: Vec<f64>,
    /// The gradient of the keys, with the shape of the keys.
    pub dk: Vec<f64>,
    /// The gradient of the values, with the shape of the values.
    pub dv: Vec<f64>,
    /// The gradient of the scores after scale, softcap and bias, `[batch, heads, q_len, kv_len]`. The gradient of a
    /// bias array is the sum of this gradient over the dimensions in which the bias array has size 1.
    pub dscores: Vec<f64>,
    /// The gradients of [`Options::bias`], one for each entry, with the shape of the entry. The gradient of an ALiBi
    /// entry is an empty list.
    pub dbias: Vec<Vec<f64>>,
    /// The gradient of the soft weights, with the shape of the soft weights; empty if there are no soft weights.
    pub dsoft: Vec<f64>,
    /// The gradient of the sinks, one value for each query head.
    pub dsinks: Vec<f64>,
}

/// The result of [`forward`] for one query row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The output, `[v_dim]`.
    pub out: Vec<f64>,
    /// The natural logarithm of the softmax denominator; minus infinity if the row reads no key.
    pub lse: f64,
    /// For each key, the factor by which the value of the key is multiplied, dropout included; 0 if the key is not
    /// allowed.
    pub weights: Vec<f64>,
}

/// Computes the result of [`attention`](crate::attention()) (masked attention) by its definition.
///
/// # Errors
/// Returns an error if the shapes of the inputs do not fit each other or the mask, or if an option is invalid.
pub fn forward<T: Element>(
    inputs: &Inputs<'_, T>,
    cells: &impl Cells,
    options: &Options<'_>,
) -> Result<Forward, Error> {
    let [batch, heads, q_len, _] = fit(inputs, cells, options)?;
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for at in rows(batch, heads, q_len) {
        let row = row(inputs, cells, options, at);
        out.extend(row.out);
        lse.push(row.lse);
    }
    Ok(Forward { out, lse })
}

/// Computes only the row `[batch, head, query row]` of [`forward`].
///
/// # Panics
/// May panic if arrays, options and row do not fit the cells. The function does not check them, so that calls for many
/// rows are fast.
pub fn row<T: Element>(
    inputs: &Inputs<'_, T>,
    cells: &impl Cells,
    options: &Options<'_>,
    [b, h, i]: [usize; 3],
) -> Row {
    let [_, kv_heads, kv_len, v_dim] = inputs.v.shape();
    let row = Softmax::new(inputs, cells, options, [b, h, i]);
    let kv_head = h * kv_heads / inputs.q.shape()[1];
    let visible = || (0..kv_len).filter(|j| row.allowed[*j]);
    let weights: Vec<f64> = row.p.iter().zip(&row.kept).map(|(p, kept)| p * kept).collect();
    let output = |d| visible().map(|j| weights[j] * at(&inputs.v, [b, kv_head, j, d])).sum::<f64>();
    Row { out: (0..v_dim).map(output).collect(), lse: row.lse, weights }
}

/// Returns the scores `[kv_len]` of the row `[batch, head, query row]`, after scale, softcap and bias and before the
/// mask. Keys that the mask hides also have scores.
///
/// ```
/// use noren::{Facts, Inputs, Options, Shape, View, atoms, reference};
///
/// let plan = atoms::causal().bind(&Shape::square(3), &Facts::new())?.plan();
/// let x = View::new(&[1f32, 2.0, 3.0], [1, 1, 3, 1])?;
/// let scores = reference::scores(&Inputs { q: x, k: x, v: x }, &plan, &Options::default(), [0, 0, 1]);
/// assert_eq!(scores, [2.0, 4.0, 6.0]);
/// # Ok::<(), noren::Error>(())
/// ```
///
/// # Panics
/// May panic if arrays, options and row do not fit the cells, as [`row`] does.
pub fn scores<T: Element>(
    inputs: &Inputs<'_, T>,
    cells: &impl Cells,
    options: &Options<'_>,
    cell: [usize; 3],
) -> Vec<f64> {
    (0..inputs.k.shape()[2]).map(|j| score(inputs, cells, options, cell, j).0).collect()
}

/// Returns the score of key `j` in the row `[batch, head, query row]`, after scale, softcap and bias, and the
/// derivative of the softcap at this score.
fn score<T: Element>(
    Inputs { q, k, .. }: &Inputs<'_, T>,
    cells: &impl Cells,
    options: &Options<'_>,
    [b, h, i]: [usize; 3],
    j: usize,
) -> (f64, f64) {
    let ([batch, heads, q_len, head_dim], [_, kv_heads, kv_len, _]) = (q.shape(), k.shape());
    let dot = |d| at(q, [b, h, i, d]) * at(k, [b, h * kv_heads / heads, j, d]);
    let (mut x, mut slope) = ((0..head_dim).map(dot).sum::<f64>() * options.scale_for(head_dim), 1.0);
    if let Some(cap) = options.softcap.map(f64::from) {
        let tanh = (x / cap).tanh();
        (x, slope) = (cap * tanh, 1.0 - tanh * tanh);
    }
    for bias in &options.bias {
        x += match bias {
            Bias::Dense(view) => at(&view.broadcast([batch, heads, q_len, kv_len]).unwrap(), [b, h, i, j]),
            Bias::Alibi(slopes) => -f64::from(slopes[h]) * cells.distance([b, h, i, j]).abs() as f64,
            Bias::Relative { table } => {
                let reach = table.shape()[3] as i64 / 2;
                let entry = cells.distance([b, h, i, j]).clamp(-reach, reach) + reach;
                at(table, [0, h.min(table.shape()[1] - 1), 0, entry as usize])
            }
        };
    }
    (x, slope)
}

/// Computes the gradients of `sum(out * dout)` by their definition. `dout` has the shape of the output.
///
/// # Errors
/// Returns the errors of [`forward`], and [`Error::Shape`] if `dout` does not have the shape of the output.
pub fn backward<T: Element>(
    inputs: &Inputs<'_, T>,
    dout: &View<'_, T>,
    cells: &impl Cells,
    options: &Options<'_>,
) -> Result<Gradients, Error> {
    let out_shape = fit(inputs, cells, options)?;
    if dout.shape() != out_shape {
        let expected = format!("the output has shape {out_shape:?}: give a gradient of this shape");
        return Err(Error::Shape { name: "dout", given: dout.shape().to_vec(), expected });
    }
    let Inputs { q, k, v } = inputs;
    let ([batch, heads, q_len, head_dim], [_, kv_heads, kv_len, v_dim]) = (q.shape(), v.shape());
    let scale = options.scale_for(head_dim);
    let mut grad = Gradients {
        dq: vec![0.0; batch * heads * q_len * head_dim],
        dk: vec![0.0; batch * kv_heads * kv_len * head_dim],
        dv: vec![0.0; batch * kv_heads * kv_len * v_dim],
        dscores: vec![0.0; batch * heads * q_len * kv_len],
        dbias: options.bias.iter().map(|bias| vec![0.0; bias_shape(bias).iter().product()]).collect(),
        dsoft: vec![0.0; options.soft.map_or(0, |soft| soft.shape().iter().product())],
        dsinks: vec![0.0; heads],
    };
    for [b, h, i] in rows(batch, heads, q_len) {
        let row = Softmax::new(inputs, cells, options, [b, h, i]);
        let g = h * kv_heads / heads;
        let visible = || (0..kv_len).filter(|j| row.allowed[*j]);
        // dp is d(sum out * dout) / d p_j. The derivative of the softmax is p * (dp - mean), with the mean of dp under
        // p.
        let dp = |j| row.kept[j] * (0..v_dim).map(|d| at(dout, [b, h, i, d]) * at(v, [b, g, j, d])).sum::<f64>();
        let mean: f64 = visible().map(|j| row.p[j] * dp(j)).sum();
        grad.dsinks[h] -= row.sink * mean;
        for j in visible() {
            let key = (b * kv_heads + g) * kv_len + j;
            let query = (b * heads + h) * q_len + i;
            (0..v_dim).for_each(|d| grad.dv[key * v_dim + d] += row.p[j] * row.kept[j] * at(dout, [b, h, i, d]));
            let ds = row.p[j] * (dp(j) - mean);
            grad.dscores[query * kv_len + j] = ds;
            for (bias, dbias) in options.bias.iter().zip(&mut grad.dbias).filter(|(_, dbias)| !dbias.is_empty()) {
                let [_, heads, _, width] = bias_shape(bias);
                let at = match bias {
                    Bias::Relative { .. } => {
                        let reach = width as i64 / 2;
                        h.min(heads - 1) * width + (cells.distance([b, h, i, j]).clamp(-reach, reach) + reach) as usize
                    }
                    _ => place(bias_shape(bias), [b, h, i, j]),
                };
                dbias[at] += ds;
            }
            if let Some(soft) = &options.soft {
                let weight = at(
                    &soft
                        .broadcast([batch, heads, q_len, kv_len])
                        .expect("the shape of the soft weights was checked before"),
                    [b, h, i, j],
                );
                grad.dsoft[place(soft.shape(), [b, h, i, j])] += ds / weight;
            }
            let ds = ds * scale * row.cap_slope[j];
            for d in 0..head_dim {
                grad.dq[query * head_dim + d] += ds * at(k, [b, g, j, d]);
                grad.dk[key * head_dim + d] += ds * at(q, [b, h, i, d]);
            }
        }
    }
    Ok(grad)
}

/// Returns the shape of the output, or an error if the arrays and options do not fit each other or do not fit the
/// cells.
fn fit<T: Element>(inputs: &Inputs<'_, T>, cells: &impl Cells, options: &Options<'_>) -> Result<[usize; 4], Error> {
    let ([batch, heads, q_len, _], [_, kv_heads, kv_len, _]) = (inputs.q.shape(), inputs.k.shape());
    let own = || Shape::new(q_len, kv_len, 0).batch(batch).heads(heads).kv_heads(kv_heads);
    check(inputs, &cells.shape().cloned().unwrap_or_else(own), options)
}

/// The softmax of one query row. All lists have one entry for each key.
struct Softmax {
    allowed: Vec<bool>,
    /// The softmax weight of each key; 0 if the key is not allowed.
    p: Vec<f64>,
    /// The factor by which dropout multiplies the weight of each key: 0 if the key is dropped, `1 / (1 - probability)`
    /// otherwise.
    kept: Vec<f64>,
    /// For each key, the derivative of the softcap at the score of the key; 1 without a softcap.
    cap_slope: Vec<f64>,
    /// The softmax weight of the sink of this head; 0 without a sink.
    sink: f64,
    lse: f64,
}

impl Softmax {
    fn new<T: Element>(
        inputs: &Inputs<'_, T>,
        cells: &impl Cells,
        options: &Options<'_>,
        [b, h, i]: [usize; 3],
    ) -> Softmax {
        let Inputs { q, k, .. } = inputs;
        let ([_, heads, q_len, _], [.., kv_len, _]) = (q.shape(), k.shape());
        let broadcast =
            |view: &View<'_>, j| at(&view.broadcast([q.shape()[0], heads, q_len, kv_len]).unwrap(), [b, h, i, j]);
        let soft = |j| options.soft.as_ref().map_or(1.0, |soft| broadcast(soft, j));
        let allowed: Vec<bool> = (0..kv_len).map(|j| cells.allowed([b, h, i, j]) && soft(j) >= LEAST_WEIGHT).collect();
        let (mut scores, mut cap_slope) = (vec![f64::NEG_INFINITY; kv_len], vec![1.0; kv_len]);
        for j in (0..kv_len).filter(|j| allowed[*j]) {
            let (x, slope) = score(inputs, cells, options, [b, h, i], j);
            cap_slope[j] = slope;
            // NaN stays NaN
            scores[j] = if x < LOWEST_SCORE { f64::NEG_INFINITY } else { x };
        }
        let sink = options.sinks.map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[h]));
        let larger = |a: f64, b: &f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(*b) };
        let top = scores.iter().fold(f64::NEG_INFINITY, larger);
        if top == f64::NEG_INFINITY {
            // An empty row reads no value, not even an infinite one
            let allowed = vec![false; kv_len];
            return Softmax {
                p: vec![0.0; kv_len],
                kept: vec![0.0; kv_len],
                allowed,
                cap_slope,
                sink: 0.0,
                lse: f64::NEG_INFINITY,
            };
        }
        let top = top.max(sink);
        let weight: Vec<f64> =
            (0..kv_len).map(|j| if allowed[j] { soft(j) * (scores[j] - top).exp() } else { 0.0 }).collect();
        let total = weight.iter().sum::<f64>() + (sink - top).exp();
        let p = weight.iter().map(|w| w / total).collect();
        let stays = |j| {
            options
                .dropout
                .map_or(1.0, |d| if d.keeps([b, h, i, j]) { 1.0 / (1.0 - f64::from(d.probability)) } else { 0.0 })
        };
        let kept = (0..kv_len).map(stays).collect();
        Softmax { p, kept, allowed, cap_slope, sink: (sink - top).exp() / total, lse: total.ln() + top }
    }
}

/// Returns the shape of the array of a bias, or `[0; 4]` for ALiBi, which has no array.
fn bias_shape(bias: &Bias<'_>) -> [usize; 4] {
    match bias {
        Bias::Dense(view) | Bias::Relative { table: view } => view.shape(),
        Bias::Alibi(_) => [0; 4],
    }
}

/// Returns the index of the element for `cell` in a contiguous array of shape `shape`. In a dimension of size 1, all
/// cells share one element.
fn place(shape: [usize; 4], cell: [usize; 4]) -> usize {
    shape.iter().zip(cell).fold(0, |place, (n, i)| place * n + if *n == 1 { 0 } else { i })
}

fn rows(batch: usize, heads: usize, q_len: usize) -> impl Iterator<Item = [usize; 3]> {
    (0..batch).flat_map(move |b| (0..heads).flat_map(move |h| (0..q_len).map(move |i| [b, h, i])))
}

fn at<T: Element>(view: &View<'_, T>, index: [usize; 4]) -> f64 {
    f64::from(view.get(index).to_f32())
}
