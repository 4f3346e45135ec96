//! burn's decomposed attention (matmul, mask, softmax, matmul), random tensors, and comparisons.

use burn::tensor::activation::softmax;
use burn::tensor::module::attention as burns_attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, DType, Device, Gradients, Int, Tensor, TensorData};
use noren::Plan;
use noren_burn::{Bias, Options};

/// Values that are the same in every run.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a number from -1 to 1.
    pub(crate) fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Returns a tensor of numbers from `-spread` to `spread`.
    pub(crate) fn tensor<const D: usize>(&mut self, spread: f32, shape: [usize; D], device: &Device) -> Tensor<D> {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| spread * self.number()).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    /// Returns a tensor as [`tensor`](Self::tensor) does, of which burn computes the gradient.
    pub(crate) fn leaf<const D: usize>(&mut self, spread: f32, shape: [usize; D]) -> Tensor<D> {
        self.tensor(spread, shape, &Device::flex().autodiff()).require_grad()
    }
}

/// Returns the key-value heads repeated for their query heads.
fn repeat(x: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, kv_heads, len, width] = x.dims();
    let group = heads / kv_heads;
    x.reshape([batch, kv_heads, 1, len, width])
        .expand([batch, kv_heads, group, len, width])
        .reshape([batch, heads, len, width])
}

/// Returns the sum of the biases of `options`, broadcast to `[batch, heads, q_len, kv_len]`; `None` without biases.
fn dense_bias(options: &Options, plan: &Plan, device: &Device) -> Option<Tensor<4>> {
    let shape = plan.shape();
    let (batch, heads, q_len, kv_len) = (shape.batch_len(), shape.head_count(), shape.q_len(), shape.kv_len());
    let full = [batch, heads, q_len, kv_len];
    let distance = |b: usize, q: usize, k: usize| plan.key_position(b, k) - plan.query_position(b, q);
    let cells = || {
        (0..batch).flat_map(move |b| {
            (0..heads).flat_map(move |h| (0..q_len).flat_map(move |q| (0..kv_len).map(move |k| [b, h, q, k])))
        })
    };
    let terms = options.bias.iter().map(|bias| match bias {
        Bias::Dense(tensor) => tensor.clone().cast(DType::F32).expand(full),
        Bias::Relative(table) => {
            let [rows, width] = table.dims();
            let most = (width / 2) as i64;
            let index = |[b, h, q, k]: [usize; 4]| {
                let row = if rows == 1 { 0 } else { h } as i64;
                row * width as i64 + distance(b, q, k).clamp(-most, most) + most
            };
            let index: Vec<i64> = cells().map(index).collect();
            let count = index.len();
            let index = Tensor::<1, Int>::from_data(TensorData::new(index, [count]), device);
            table.clone().reshape([rows * width]).select(0, index).reshape(full)
        }
        Bias::Alibi(slopes) => {
            let value = |[b, h, q, k]: [usize; 4]| -slopes[h] * distance(b, q, k).abs() as f32;
            Tensor::from_data(TensorData::new(cells().map(value).collect::<Vec<f32>>(), full), device)
        }
    });
    terms.reduce(|sum, term| sum + term)
}

/// Returns the softmax of masked scores times values, computed with burn's operations only. Rows without an allowed key
/// are 0. `drop` is true for hidden cells.
pub(crate) fn textbook([q, k, v]: [Tensor<4>; 3], drop: Tensor<4, Bool>, plan: &Plan, options: &Options) -> Tensor<4> {
    let heads = q.dims()[1];
    weights(q, k, drop, plan, options).matmul(repeat(v.cast(DType::F32), heads))
}

/// Returns the weights of the values, `[batch, heads, q_len, kv_len]`.
fn weights(q: Tensor<4>, k: Tensor<4>, drop: Tensor<4, Bool>, plan: &Plan, options: &Options) -> Tensor<4> {
    let device = q.device();
    let [_, heads, _, width] = q.dims();
    let [q, k] = [q, k].map(|x| x.cast(DType::F32));
    let scale = options.scale.unwrap_or(1.0 / (width as f32).sqrt());
    let mut scores = q.matmul(repeat(k, heads).swap_dims(2, 3)) * scale;
    if let Some(cap) = options.softcap {
        scores = (scores / cap).tanh() * cap;
    }
    if let Some(bias) = dense_bias(options, plan, &device) {
        scores = scores + bias;
    }
    let [batch, _, q_len, kv_len] = scores.dims();
    let keep = drop.clone().bool_not().float();
    let scores = scores.mask_fill(drop, -1e30);
    if options.soft.is_none() && options.sinks.is_none() {
        let some = keep.clone().max_dim(3);
        softmax(scores, 3) * some
    } else {
        let most = scores.clone().detach().max_dim(3).clamp_min(-30.0);
        let mut exp = (scores - most.clone()).exp() * keep;
        if let Some(soft) = &options.soft {
            exp = exp * soft.clone().cast(DType::F32).expand([batch, heads, q_len, kv_len]);
        }
        let mut sum = exp.clone().sum_dim(3);
        if let Some(sinks) = &options.sinks {
            sum = sum + (sinks.clone().cast(DType::F32).reshape([1, heads, 1, 1]) - most).exp();
        }
        let empty = sum.clone().detach().equal_scalar(0.0);
        exp / sum.mask_fill(empty, 1.0)
    }
}

/// Returns, in the place of each gradient of `sum(textbook * dout)`, the sum of the absolute values of the terms that the gradient adds
/// (with softcaps, at least this sum). Rounding errors are in proportion to these sums and not to the gradients, because the terms of a row
/// cancel: the gradients of the scores of a row have the sum 0, and are 0 in a row with one key.
pub(crate) fn magnitudes(
    [q, k, v]: [Tensor<4>; 3],
    dout: &Tensor<4>,
    drop: Tensor<4, Bool>,
    plan: &Plan,
    options: &Options,
) -> Gradients {
    let [batch, heads, q_len, width] = q.dims();
    let scale = options.scale.unwrap_or(1.0 / (width as f32).sqrt()).abs();
    let [k, v] = [k, v].map(|x| repeat(x, heads).swap_dims(2, 3));
    let weights = weights(q.clone(), k.clone().swap_dims(2, 3), drop, plan, options).detach();
    let dout = dout.clone().abs();
    let products = dout.clone().matmul(v.clone().detach().abs());
    let mean = (weights.clone() * products.clone()).sum_dim(3);
    let of_scores = weights.clone() * (products + mean.clone());
    let scores = q.clone().matmul(k.clone().detach().abs()) + q.detach().abs().matmul(k);
    let mut sum = (of_scores.clone() * scores).sum() * scale + (weights.clone() * dout.matmul(v)).sum();
    if let Some(bias) = dense_bias(options, plan, &of_scores.device()) {
        sum = sum + (bias * of_scores.clone()).sum();
    }
    if let Some(soft) = &options.soft {
        let soft = soft.clone().expand(of_scores.dims());
        sum = sum + (of_scores / soft.clone().detach() * soft).sum();
    }
    if let Some(sinks) = &options.sinks {
        let sinks = sinks.clone().reshape([1, heads, 1, 1]).expand([batch, heads, q_len, 1]);
        let of_sinks = (weights.sum_dim(3).neg() + 1.0) * mean;
        sum = sum + (of_sinks * sinks).sum();
    }
    sum.backward()
}

/// Returns the result of burn's own function `attention` on an autodiff device, which is decomposed there. It has no
/// soft weights and no sinks.
pub(crate) fn burns([q, k, v]: [Tensor<4>; 3], drop: Tensor<4, Bool>, plan: &Plan, options: &Options) -> Tensor<4> {
    assert!(options.soft.is_none() && options.sinks.is_none());
    let heads = q.dims()[1];
    let bias = dense_bias(options, plan, &q.device());
    let theirs = AttentionModuleOptions {
        scale: options.scale.map(f64::from),
        softcap: options.softcap.map(f64::from),
        is_causal: false,
    };
    burns_attention(q, repeat(k, heads), repeat(v, heads), Some(drop), bias, theirs)
}

pub(crate) fn values<const D: usize>(x: &Tensor<D>) -> Vec<f32> {
    x.clone().without_autodiff().cast(DType::F32).into_data().iter::<f32>().collect()
}

/// Returns the largest difference between two tensors, divided by the largest expected value or by `unit`, whichever is
/// larger. NaN counts as infinity.
pub(crate) fn difference<const D: usize>(got: &Tensor<D>, expected: &Tensor<D>, unit: f32) -> f32 {
    assert_eq!(got.dims(), expected.dims());
    let (got, expected) = (values(got), values(expected));
    let largest = expected.iter().fold(unit, |most, x| most.max(x.abs()));
    let off = got.iter().zip(&expected).map(|(a, b)| if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() });
    off.fold(0.0, f32::max) / largest
}

/// Asserts that two tensors agree: the largest difference is at most `tolerance` of the largest expected value, or of
/// 0.01 if all expected values are below 0.01.
#[track_caller]
pub(crate) fn close<const D: usize>(what: &str, got: &Tensor<D>, expected: &Tensor<D>, tolerance: f32) {
    let off = difference(got, expected, 1e-2);
    assert!(off <= tolerance, "{what}: off by {off:e} of the largest value");
}

/// Returns the gradients of `sum(out * dout)`.
pub(crate) fn gradients(out: Tensor<4>, dout: &Tensor<4>) -> Gradients {
    (out.cast(DType::F32) * dout.clone()).sum().backward()
}
