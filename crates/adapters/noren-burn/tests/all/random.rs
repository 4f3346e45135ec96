//! Random masks over random shapes and facts, with random options, types and strides.

use crate::textbook::{Draw, close, gradients, magnitudes, textbook, values};
use burn::tensor::{DType, Device, Gradients, Tensor};
use noren::Shape;
use noren_burn::{Bias, Options, attention, to_drop};
use noren_testing::cases::{self, World};
use proptest::prelude::*;
use std::sync::Arc;

/// Calls `law` with random worlds, masks, plan options and seeds.
fn check(count: u32, law: impl Fn(&World, &noren::Mask, &noren::PlanOptions, Draw)) {
    let strategy = cases::worlds(70, 2500).prop_flat_map(|world| {
        let masks = cases::masks(&world);
        (Just(world), masks, cases::options(), any::<u64>())
    });
    noren_testing::check(count, strategy, |(world, mask, options, seed)| law(&world, &mask, &options, Draw(seed)));
}

/// Returns random options for a shape, of whose tensors burn computes gradients.
fn options(draw: &mut Draw, shape: &Shape) -> Options {
    fn leaf<const D: usize>(draw: &mut Draw, dims: [usize; D], low: f32, high: f32) -> Tensor<D> {
        let half = (high - low) / 2.0;
        (draw.tensor(half, dims, &Device::flex().autodiff()) + (low + half)).detach().require_grad()
    }
    let (batch, heads) = (shape.batch_len(), shape.head_count());
    let full = [batch, heads, shape.q_len(), shape.kv_len()];
    let broadcast = |draw: &mut Draw| full.map(|n| if draw.chance(35) { 1 } else { n });
    let mut options = Options::default();
    for _ in 0..draw.below(3) {
        let dims = broadcast(draw);
        options.bias.push(Bias::Dense(leaf(draw, dims, -2.0, 2.0)));
    }
    if draw.chance(35) {
        let dims = [if draw.chance(50) { 1 } else { heads }, 2 * draw.below(20) + 1];
        options.bias.push(Bias::Relative(leaf(draw, dims, -1.0, 1.0)));
    }
    if draw.chance(35) {
        options.bias.push(Bias::Alibi((0..heads).map(|_| 0.1 * draw.number()).collect()));
    }
    if draw.chance(30) {
        let dims = broadcast(draw);
        options.soft = Some(leaf(draw, dims, 0.05, 1.0));
    }
    if draw.chance(30) {
        options.sinks = Some(leaf(draw, [heads], -2.0, 2.0));
    }
    options.softcap = draw.chance(30).then(|| 2.0 + draw.number());
    options.scale = draw.chance(30).then(|| 0.3 * draw.number());
    options
}

/// Returns the gradient of each tensor of the options.
fn gradients_of(options: &Options, gradients: &Gradients) -> Vec<Tensor<1>> {
    fn flat<const D: usize>(x: &Tensor<D>, gradients: &Gradients) -> Tensor<1> {
        let gradient = x.grad(gradients).expect("a gradient");
        assert_eq!(gradient.dims(), x.dims());
        gradient.reshape([x.dims().iter().product::<usize>()])
    }
    let bias = options.bias.iter().filter_map(|bias| match bias {
        Bias::Dense(tensor) => Some(flat(tensor, gradients)),
        Bias::Relative(tensor) => Some(flat(tensor, gradients)),
        Bias::Alibi(_) => None,
    });
    let soft = options.soft.iter().map(|soft| flat(soft, gradients));
    bias.chain(soft).chain(options.sinks.iter().map(|sinks| flat(sinks, gradients))).collect()
}

/// A variable in one of several memory orders, from which a tensor `[batch, heads, length, width]` is made.
struct Strided {
    leaf: Tensor<4>,
    order: usize,
}

impl Strided {
    fn new(draw: &mut Draw, [batch, heads, len, width]: [usize; 4]) -> Self {
        let order = draw.below(4);
        let dims = match order {
            0 => [batch, len, heads, width],
            1 => [batch, heads, len + 3, width + 2],
            _ => [batch, heads, len, width],
        };
        Strided { leaf: draw.leaf(1.0, dims), order }
    }

    fn tensor(&self) -> Tensor<4> {
        let leaf = self.leaf.clone();
        let [batch, heads, len, width] = leaf.dims();
        match self.order {
            0 => leaf.swap_dims(1, 2),
            1 => leaf.slice([0..batch, 0..heads, 2..len - 1, 1..width - 1]),
            2 => leaf.flip([2]),
            _ => leaf,
        }
    }
}

#[test]
fn outputs_and_gradients_are_those_of_the_textbook() {
    check(120, |world, mask, plan_options, mut draw| {
        let bound = world.bind(mask);
        let plan = Arc::new(bound.plan_with(plan_options));
        let shape = bound.shape().clone();
        let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
        let (q_len, kv_len) = (shape.q_len(), shape.kv_len());
        let (width, v_width) = (1 + draw.below(24), 1 + draw.below(24));
        let inputs =
            [[batch, heads, q_len, width], [batch, kv_heads, kv_len, width], [batch, kv_heads, kv_len, v_width]]
                .map(|dims| Strided::new(&mut draw, dims));
        let options = options(&mut draw, &shape);
        let dout = draw.tensor(1.0, [batch, heads, q_len, v_width], &Device::flex());
        let drop = to_drop(&bound, &Device::flex()).unwrap();
        let tensors = || inputs.each_ref().map(Strided::tensor);

        let [q, k, v] = tensors();
        let out = attention(q, k, v, &plan, &options).unwrap();
        let wanted = textbook(tensors(), drop.clone(), &plan, &options);
        let (got, expected) = (gradients(out.clone(), &dout), gradients(wanted.clone(), &dout));
        let what = format!("{mask} over {shape:?}");
        close(&format!("{what}: out"), &out, &wanted, 1e-5);
        let magnitudes = magnitudes(tensors(), &dout, drop, &plan, &options);
        let [got, expected, terms] = [&got, &expected, &magnitudes].map(|gradients| {
            let of_inputs = inputs.iter().map(|input| values(&input.leaf.grad(gradients).unwrap()));
            of_inputs.chain(gradients_of(&options, gradients).iter().map(values)).collect::<Vec<_>>()
        });
        for (n, ((got, expected), terms)) in got.iter().zip(&expected).zip(&terms).enumerate() {
            let name = ["dq", "dk", "dv"].get(n).unwrap_or(&"a gradient of the options");
            for ((got, expected), terms) in got.iter().zip(expected).zip(terms) {
                assert!((got - expected).abs() <= 5e-6 * terms, "{what}: {name}: {got}, not {expected}");
            }
        }
    });
}

#[test]
fn without_gradients_and_with_them_the_bits_are_those_of_noren() {
    check(40, |world, mask, plan_options, mut draw| {
        let bound = world.bind(mask);
        let plan = Arc::new(bound.plan_with(plan_options));
        let shape = bound.shape().clone();
        let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
        let dims = [
            [batch, heads, shape.q_len(), 8],
            [batch, kv_heads, shape.kv_len(), 8],
            [batch, kv_heads, shape.kv_len(), 8],
        ];
        let [q, k, v] = dims.map(|dims| draw.leaf(1.0, dims));
        let arrays = [&q, &k, &v].map(values);
        let view = |n: usize| noren::View::new(&arrays[n], dims[n]).unwrap();
        let inputs = noren::Inputs { q: view(0), k: view(1), v: view(2) };
        let expected = noren::attention(&inputs, &plan, &noren::Options::new()).unwrap();
        let with = attention(q.clone(), k.clone(), v.clone(), &plan, &Options::default()).unwrap();
        let [q, k, v] = [q, k, v].map(Tensor::without_autodiff);
        let without = attention(q, k, v, &plan, &Options::default()).unwrap();
        for out in [with, without] {
            let same = values(&out).iter().zip(&expected.out).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{mask} over {shape:?}");
        }
    });
}

#[test]
fn half_types_agree_with_f32_on_the_same_values() {
    check(20, |world, mask, plan_options, mut draw| {
        let bound = world.bind(mask);
        let plan = Arc::new(bound.plan_with(plan_options));
        let shape = bound.shape().clone();
        let (batch, heads, kv_heads) = (shape.batch_len(), shape.head_count(), shape.kv_head_count());
        for (dtype, tolerance) in [(DType::BF16, 2e-2), (DType::F16, 4e-3)] {
            let dims = [
                [batch, heads, shape.q_len(), 16],
                [batch, kv_heads, shape.kv_len(), 16],
                [batch, kv_heads, shape.kv_len(), 16],
            ];
            let device = Device::flex().autodiff();
            let half = dims.map(|dims| draw.tensor(1.0, dims, &device).cast(dtype).detach().require_grad());
            let dout = draw.tensor(1.0, dims[0], &Device::flex()).cast(dtype).cast(DType::F32);
            let [q, k, v] = half.clone();
            let out = attention(q, k, v, &plan, &Options::default()).unwrap();
            assert_eq!(out.dtype(), dtype);
            let full = half.clone().map(|x| x.cast(DType::F32).detach().require_grad());
            let [q, k, v] = full.clone();
            let expected = attention(q, k, v, &plan, &Options::default()).unwrap();
            close(&format!("{mask} in {dtype:?}"), &out, &expected, tolerance);
            let (got, wanted) = (gradients(out, &dout), gradients(expected, &dout));
            for (half, full) in half.iter().zip(&full) {
                let (got, wanted) = (half.grad(&got).unwrap(), full.grad(&wanted).unwrap());
                assert_eq!(got.dtype(), dtype);
                close(&format!("a gradient of {mask} in {dtype:?}"), &got, &wanted, 2.0 * tolerance);
            }
        }
    });
}
