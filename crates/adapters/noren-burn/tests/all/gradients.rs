//! Where gradients flow, and what they do not depend on.

use crate::textbook::{Draw, gradients, values};
use burn::tensor::{Device, Tensor};
use noren::{Dropout, Facts, Plan, Shape, Side};
use noren_burn::{Bias, Options, attention, plan};
use std::sync::Arc;

fn causal(len: usize) -> Arc<Plan> {
    plan(&"causal".parse().unwrap(), &Shape::square(len).heads(2), &Facts::new()).unwrap()
}

fn bits<const D: usize>(x: &Tensor<D>) -> Vec<u32> {
    values(x).into_iter().map(f32::to_bits).collect()
}

#[test]
fn gradient_checkpointing_changes_no_bit() {
    let run = |device: Device| {
        let mut draw = Draw(1);
        let x = draw.tensor(1.0, [1, 2, 9, 4], &device).require_grad();
        let dout = draw.tensor(1.0, [1, 2, 9, 4], &Device::flex());
        // The queries and the values are results of operations that balanced checkpointing computes again.
        let (q, v) = (x.clone() * 2.0, x.clone().exp());
        let out = attention(q, x.clone(), v, &causal(9), &Options::default()).unwrap();
        bits(&x.grad(&gradients(out * 0.5, &dout)).unwrap())
    };
    let plain = run(Device::flex().autodiff());
    assert_eq!(run(Device::flex().autodiff().gradient_checkpointing()), plain);
    assert!(plain.iter().any(|bits| *bits != 0));
}

#[test]
fn tensors_without_gradients_are_constants() {
    let mut draw = Draw(2);
    let shape = [1, 2, 7, 4];
    let [q, k, v] = [(); 3].map(|()| draw.leaf(1.0, shape));
    let bias = draw.leaf(1.0, [1, 1, 7, 7]);
    let dout = draw.tensor(1.0, shape, &Device::flex());
    let options = |bias: &Tensor<4>| Options { bias: vec![Bias::Dense(bias.clone())], ..Options::default() };
    let all = attention(q.clone(), k.clone(), v.clone(), &causal(7), &options(&bias)).unwrap();
    let all = gradients(all, &dout);
    let expected = [&q, &k, &v, &bias].map(|x| bits(&x.grad(&all).unwrap()));
    for only in 0..4 {
        // The others are on a device without autodiff, or on one with autodiff but without the need of a gradient.
        for detached in [false, true] {
            let constant = |n: usize, x: &Tensor<4>| match (n == only, detached) {
                (true, _) => x.clone(),
                (false, false) => x.clone().without_autodiff(),
                (false, true) => x.clone().detach().set_require_grad(false),
            };
            let bias = constant(3, &bias);
            let out = attention(constant(0, &q), constant(1, &k), constant(2, &v), &causal(7), &options(&bias));
            let got = gradients(out.unwrap(), &dout);
            let leaf = [&q, &k, &v, &bias][only];
            assert_eq!(bits(&leaf.grad(&got).unwrap()), expected[only], "tensor {only}, detached {detached}");
        }
    }
    let constant = |x: &Tensor<4>| x.clone().detach().set_require_grad(false);
    let out = attention(constant(&q), constant(&k), constant(&v), &causal(7), &options(&constant(&bias))).unwrap();
    assert!(out.is_autodiff() && !out.is_tracked());
}

#[test]
fn one_tensor_in_several_places_gets_the_sum() {
    let mut draw = Draw(3);
    let x = draw.leaf(1.0, [1, 2, 6, 4]);
    let dout = draw.tensor(1.0, [1, 2, 6, 4], &Device::flex());
    let parts = [(); 3].map(|()| x.clone().detach().require_grad());
    let [q, k, v] = parts.clone();
    let separate = gradients(attention(q, k, v, &causal(6), &Options::default()).unwrap(), &dout);
    let joined = attention(x.clone(), x.clone(), x.clone(), &causal(6), &Options::default()).unwrap();
    let got = values(&x.grad(&gradients(joined, &dout)).unwrap());
    let parts = parts.map(|part| values(&part.grad(&separate).unwrap()));
    for (n, got) in got.iter().enumerate() {
        assert!((got - parts.iter().map(|part| part[n]).sum::<f32>()).abs() < 1e-5);
    }
}

#[test]
fn hidden_content_changes_no_bit() {
    let facts = Facts::new().lengths([6, 9]).side(Side::Left);
    let shape = Shape::square(9).batch(2).heads(2);
    let plan = plan(&"causal & padding(on=both)".parse().unwrap(), &shape, &facts).unwrap();
    let run = |poison: f32| {
        let mut draw = Draw(4);
        let device = Device::flex().autodiff();
        let mut leaf = || {
            // The first three tokens of the first batch row are padding.
            let x = draw.tensor(1.0, [2, 2, 9, 4], &device);
            x.slice_assign([0..1, 0..2, 0..3, 0..4], Tensor::full([1, 2, 3, 4], poison, &device))
                .detach()
                .require_grad()
        };
        let leaves = [leaf(), leaf(), leaf()];
        let [q, k, v] = leaves.clone();
        let out = attention(q, k, v, &plan, &Options::default()).unwrap();
        let gradients = out.clone().sum().backward();
        let mut all = vec![bits(&out)];
        all.extend(leaves.iter().map(|leaf| bits(&leaf.grad(&gradients).unwrap())));
        all
    };
    let clean = run(0.0);
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
        assert_eq!(run(poison), clean, "{poison}");
    }
}

#[test]
fn dropout_has_the_gradient_of_its_own_cells() {
    let mut draw = Draw(5);
    let dropout = Dropout { probability: 0.4, seed: 11 };
    let options = Options { dropout: Some(dropout), ..Options::default() };
    let v = draw.leaf(1.0, [1, 2, 8, 4]);
    let [q, k] = [(); 2].map(|()| draw.tensor(1.0, [1, 2, 8, 4], &Device::flex()));
    let out = attention(q.clone(), k.clone(), v.clone(), &causal(8), &options).unwrap();
    // The output is linear in the values: sum(out) = sum(v * gradient).
    let gradient = v.grad(&out.clone().sum().backward()).unwrap();
    let product: f32 = values(&v).iter().zip(values(&gradient)).map(|(v, g)| v * g).sum();
    let sum: f32 = values(&out).iter().sum();
    assert!((product - sum).abs() < 1e-4 * sum.abs().max(1.0), "{product} and {sum}");
    let without = attention(q, k, v, &causal(8), &Options::default()).unwrap();
    assert_ne!(bits(&out), bits(&without));
}
