//! Invalid input of attention is an error that names the value and the fix, never a panic.

use burn::tensor::{DType, Device, Tensor};
use noren::{Facts, Plan, Shape};
use noren_burn::{Bias, Error, Options, attend, attention, plan};
use std::sync::Arc;

fn causal() -> Arc<Plan> {
    plan(&"causal".parse().unwrap(), &Shape::square(4).heads(2), &Facts::new()).unwrap()
}

fn zeros<const D: usize>(dims: [usize; D]) -> Tensor<D> {
    Tensor::zeros(dims, &Device::flex())
}

#[test]
fn wrong_tensors_are_refused_by_name() {
    let x = zeros([1, 2, 4, 8]);
    let ask = |q: &Tensor<4>, k: &Tensor<4>, v: &Tensor<4>| {
        attention(q.clone(), k.clone(), v.clone(), &causal(), &Options::default()).unwrap_err().to_string()
    };
    let double = x.clone().cast(DType::F64);
    assert_eq!(
        ask(&double, &double, &double),
        "q is [1, 2, 4, 8] of F64: queries, keys and values must all be f32, bf16 or f16: convert with cast"
    );
    assert!(ask(&x, &x.clone().cast(DType::F16), &x).starts_with("k is [1, 2, 4, 8] of F16"));
    assert!(ask(&zeros([1, 2, 3, 8]), &x, &x).contains("q has shape [1, 2, 3, 8]"));
    assert!(ask(&x, &zeros([1, 2, 4, 6]), &x).contains("k has shape [1, 2, 4, 6]"));
    assert!(ask(&x, &x, &zeros([1, 2, 5, 8])).contains("v has shape [1, 2, 5, 8]"));
    assert!(ask(&x, &zeros([1, 3, 4, 8]), &zeros([1, 3, 4, 8])).contains("k has shape [1, 3, 4, 8]"));
    assert!(
        ask(&zeros([0, 2, 4, 8]), &x, &x).starts_with("q is [0, 2, 4, 8] of F32: every dimension must be at least 1")
    );
    let large = zeros([1, 2, 4, 1]).expand([1, 2, 4, usize::MAX / 16]);
    assert!(ask(&x, &x, &large).contains("this array does not fit into memory"));
}

#[test]
fn different_autodiff_devices_are_refused() {
    let plain = Tensor::<4>::zeros([1, 2, 4, 8], &Device::flex().autodiff());
    let balanced = Tensor::<4>::zeros([1, 2, 4, 8], &Device::flex().autodiff().gradient_checkpointing());
    let error = attention(plain.clone(), plain.clone(), balanced.clone(), &causal(), &Options::default()).unwrap_err();
    assert!(matches!(&error, Error::Tensor { name, .. } if name == "v"), "{error}");
    assert!(error.to_string().contains("create both tensors on the same autodiff device"), "{error}");
    let bias = Tensor::zeros([1, 1, 4, 4], &Device::flex().autodiff().gradient_checkpointing());
    let options = Options { bias: vec![Bias::Dense(bias)], ..Options::default() };
    let error = attention(plain.clone(), plain.clone(), plain, &causal(), &options).unwrap_err();
    assert!(matches!(&error, Error::Tensor { name, .. } if name == "the bias"), "{error}");
}

#[test]
fn wrong_options_are_refused() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        let x = Tensor::<4>::zeros([1, 2, 4, 8], &device);
        let x = if x.is_autodiff() { x.require_grad() } else { x };
        let ask =
            |options: Options| attention(x.clone(), x.clone(), x.clone(), &causal(), &options).unwrap_err().to_string();
        let bias = |dims| Options { bias: vec![Bias::Dense(zeros(dims))], ..Options::default() };
        assert!(ask(bias([1, 3, 4, 4])).contains("[1, 3, 4, 4]"));
        assert!(
            ask(bias([1, 0, 4, 4])).contains("the bias is [1, 0, 4, 4] of F32: every dimension must be at least 1")
        );
        let table = |dims| Options { bias: vec![Bias::Relative(zeros(dims))], ..Options::default() };
        assert!(ask(table([2, 4])).contains('4'));
        assert!(ask(table([3, 5])).contains('3'));
        assert!(ask(Options { bias: vec![Bias::Alibi(vec![0.5; 3])], ..Options::default() }).contains('3'));
        assert!(ask(Options { sinks: Some(zeros([3])), ..Options::default() }).contains('3'));
        assert!(ask(Options { soft: Some(zeros([2, 2, 4, 4])), ..Options::default() }).contains("[2, 2, 4, 4]"));
        assert!(ask(Options { softcap: Some(-1.0), ..Options::default() }).contains("-1"));
        assert!(ask(Options { scale: Some(f32::NAN), ..Options::default() }).contains("NaN"));
        assert!(ask(Options { threads: Some(0), ..Options::default() }).contains('0'));
        let double = zeros([2]).cast(DType::F64);
        assert!(
            ask(Options { sinks: Some(double), ..Options::default() }).contains("the tensor of sinks is [2] of F64")
        );
        let dropout = noren::Dropout { probability: 1.5, seed: 0 };
        assert!(ask(Options { dropout: Some(dropout), ..Options::default() }).contains("1.5"));
    }
}

#[test]
fn attend_refuses_what_it_would_have_to_guess() {
    let x = zeros([1, 2, 5, 4]);
    let one = zeros([1, 2, 1, 4]);
    let refused = |q: &Tensor<4>, mask: &str| match attend(q.clone(), x.clone(), x.clone(), mask).unwrap_err() {
        Error::Noren(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(refused(&one, "causal"), noren::Error::Alignment { q_len: 1, kv_len: 5 });
    assert!(matches!(refused(&x, "causal + sinks"), noren::Error::Missing { .. }));
    assert!(matches!(refused(&x, "cuasal"), noren::Error::Parse(_)));
    assert!(attend(x.clone(), x.clone(), x.clone(), "causal + softcap(3) + softcap(4)").is_err());
}

#[test]
fn attend_is_attention_under_a_plan_of_the_tensors_own_sizes() {
    let mut draw = crate::textbook::Draw(6);
    let [q, k, v] = [[2, 4, 9, 8], [2, 2, 9, 8], [2, 2, 9, 6]].map(|dims| draw.leaf(1.0, dims));
    let shape = Shape::square(9).batch(2).heads(4).kv_heads(2);
    let plan = plan(&"sliding(4)".parse().unwrap(), &shape, &Facts::new()).unwrap();
    let slopes = noren::Score::alibi_slopes(4).into_iter().map(|slope| slope as f32).collect();
    let options = Options { softcap: Some(3.0), bias: vec![Bias::Alibi(slopes)], ..Options::default() };
    let values = |x: &Tensor<4>| crate::textbook::values(x);
    let expected = attention(q.clone(), k.clone(), v.clone(), &plan, &options).unwrap();
    let got = attend(q.clone(), k.clone(), v.clone(), "sliding(4) + alibi + softcap(3)").unwrap();
    assert_eq!(values(&got), values(&expected));
    let gradient = |out: &Tensor<4>| values(&q.grad(&out.clone().sum().backward()).unwrap());
    assert_eq!(gradient(&got), gradient(&expected));
    let plain = attention(q.clone(), k.clone(), v.clone(), &plan, &Options::default()).unwrap();
    assert_eq!(values(&attend(q, k, v, &plan).unwrap()), values(&plain));
}
