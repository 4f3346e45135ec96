//! burn's `MultiHeadAttention` under noren masks: outputs and gradients are those of its own `forward` with a dense mask.

use crate::textbook::{Draw, close, values};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::tensor::{Bool, Device, Gradients, Tensor};
use noren::{Facts, Plan, Shape, Side};
use noren_burn::{Error, multi_head_attention, plan, to_drop};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// burn has one generator of random numbers for all threads: tests that use it run one after another.
static GENERATOR: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a layer without dropout on an autodiff device.
fn layer(width: usize, heads: usize, quiet: bool) -> MultiHeadAttention {
    let device = Device::flex().autodiff();
    device.seed(7);
    MultiHeadAttentionConfig::new(width, heads).with_dropout(0.0).with_quiet_softmax(quiet).init(&device)
}

/// Returns the gradients of all parameters of a layer.
fn parameters(layer: &MultiHeadAttention, gradients: &Gradients) -> Vec<(String, Tensor<1>)> {
    let linears = [("query", &layer.query), ("key", &layer.key), ("value", &layer.value), ("output", &layer.output)];
    let mut all = Vec::new();
    for (name, linear) in linears {
        let weight = linear.weight.val().grad(gradients).unwrap();
        let count = weight.dims().iter().product::<usize>();
        all.push((format!("{name}.weight"), weight.reshape([count])));
        all.push((format!("{name}.bias"), linear.bias.as_ref().unwrap().val().grad(gradients).unwrap()));
    }
    all
}

/// Returns the mask of a plan without heads as burn's `mask_attn`, `[batch, q_len, kv_len]`.
fn mask_attn(plan: &Plan, device: &Device) -> Tensor<3, Bool> {
    let drop = to_drop(plan.bound(), device).unwrap();
    let [batch, _, q_len, kv_len] = drop.dims();
    drop.slice([0..batch, 0..1, 0..q_len, 0..kv_len]).reshape([batch, q_len, kv_len])
}

#[test]
fn outputs_and_gradients_are_those_of_the_layer() {
    let _alone = alone();
    let square = |len: usize| Shape::square(len).batch(2).heads(4);
    let padded = |side| Facts::new().lengths([17, 9]).side(side).documents(vec![vec![8, 9], vec![4, 5]]);
    let cases = [
        ("full", square(12), Facts::new()),
        ("causal", square(17), Facts::new()),
        ("sliding(5) | keys(0)", square(33), Facts::new()),
        ("causal & documents", square(17), Facts::new().documents(vec![vec![10, 7], vec![3, 14]])),
        ("causal & documents & padding | window(left=0, right=0)", square(17), padded(Side::Right)),
        ("documents & padding | window(left=0, right=0)", square(17), padded(Side::Left)),
        ("padding", Shape::cross(6, 17).batch(2).heads(4), padded(Side::Left)),
    ];
    for ((mask, shape, facts), quiet) in cases.iter().flat_map(|case| [(case, false), (case, true)]) {
        let plan = plan(&mask.parse().unwrap(), shape, facts).unwrap();
        let layer = layer(32, 4, quiet);
        let mut draw = Draw(1);
        let x = draw.leaf(1.0, [2, shape.q_len(), 32]);
        let memory = if mask == &"padding" { draw.leaf(1.0, [2, shape.kv_len(), 32]) } else { x.clone() };
        let dout = draw.tensor(1.0, [2, shape.q_len(), 32], &Device::flex());
        let input = MhaInput::new(x.clone(), memory.clone(), memory.clone()).mask_attn(mask_attn(&plan, &x.device()));
        let expected = layer.forward(input).context;
        let got = multi_head_attention(&layer, x.clone(), memory.clone(), memory.clone(), &plan).unwrap();
        let what = format!("{mask}, quiet softmax {quiet}");
        close(&what, &got, &expected, 1e-5);
        let [got, expected] = [got, expected].map(|out| (out * dout.clone()).sum().backward());
        close(&format!("{what}: x"), &x.grad(&got).unwrap(), &x.grad(&expected).unwrap(), 1e-5);
        close(&format!("{what}: memory"), &memory.grad(&got).unwrap(), &memory.grad(&expected).unwrap(), 1e-5);
        for ((name, got), (_, expected)) in parameters(&layer, &got).iter().zip(parameters(&layer, &expected)) {
            // The bias of the keys has no influence on a softmax: its gradient is 0 apart from rounding.
            let unit = if name == "key.bias" && !quiet { &(expected.zeros_like() + 1.0) } else { &expected };
            let (got, expected) = (got.clone() - expected.clone() + unit.clone(), unit.clone());
            close(&format!("{what}: {name}"), &got, &expected, 1e-5);
        }
    }
}

#[test]
fn masks_that_differ_by_head_are_computed() {
    let _alone = alone();
    let device = Device::flex().autodiff();
    let layer = layer(16, 2, false);
    let shape = Shape::square(9).heads(2);
    let of = |mask: &str| plan(&mask.parse().unwrap(), &shape, &Facts::new()).unwrap();
    let x = Draw(2).tensor(1.0, [1, 9, 16], &device);
    let out = |plan: &Arc<Plan>| multi_head_attention(&layer, x.clone(), x.clone(), x.clone(), plan).unwrap();
    let both = out(&of("heads(0: causal, 1: sliding(3))"));
    // The output layer is linear: each head alone, and the bias of the output counted once.
    let bias = layer.output.bias.as_ref().unwrap().val().unsqueeze::<3>();
    let parts = out(&of("heads(0: causal)")) + out(&of("heads(1: sliding(3))")) - bias;
    close("the sum of both heads", &both, &parts, 1e-5);
}

#[test]
fn dropout_is_active_in_training_only_and_follows_the_seed_of_burn() {
    let _alone = alone();
    let device = Device::flex().autodiff();
    let layer = MultiHeadAttentionConfig::new(16, 2).with_dropout(0.5).init(&device);
    let plan = plan(&"causal".parse().unwrap(), &Shape::square(20).heads(2), &Facts::new()).unwrap();
    let x = Draw(3).tensor(1.0, [1, 20, 16], &device);
    let run = |layer: &MultiHeadAttention, x: &Tensor<3>, seed: u64| {
        device.seed(seed);
        values(&multi_head_attention(layer, x.clone(), x.clone(), x.clone(), &plan).unwrap())
    };
    run(&layer, &x, 5); // burn draws the parameters of a layer when they are used for the first time
    assert_eq!(run(&layer, &x, 5), run(&layer, &x, 5));
    assert_ne!(run(&layer, &x, 5), run(&layer, &x, 6));
    use burn::module::Module;
    let (evaluated, plain) = (layer.clone().valid(), x.clone().without_autodiff());
    assert_eq!(run(&evaluated, &plain, 5), run(&evaluated, &plain, 6));
}

#[test]
fn wrong_inputs_and_layers_are_refused_by_name() {
    let _alone = alone();
    let device = Device::flex();
    let layer = MultiHeadAttentionConfig::new(16, 2).init(&device);
    let plan = plan(&"causal".parse().unwrap(), &Shape::square(5).heads(2), &Facts::new()).unwrap();
    let x = Tensor::<3>::zeros([1, 5, 16], &device);
    let ask = |layer: &MultiHeadAttention, q: &Tensor<3>, k: &Tensor<3>, v: &Tensor<3>| {
        multi_head_attention(layer, q.clone(), k.clone(), v.clone(), &plan).unwrap_err().to_string()
    };
    let wrong = |dims: [usize; 3]| Tensor::<3>::zeros(dims, &device);
    let message = ask(&layer, &wrong([1, 4, 16]), &x, &x);
    assert_eq!(
        message,
        "query is [1, 4, 16]: the plan and the layer need the shape [1, 5, 16] ([batch, length, d_model]): change the tensor or the plan"
    );
    assert!(ask(&layer, &x, &wrong([2, 5, 16]), &x).starts_with("key is [2, 5, 16]"));
    assert!(ask(&layer, &x, &x, &wrong([1, 5, 12])).starts_with("value is [1, 5, 12]"));
    let uneven = MultiHeadAttentionConfig::new(16, 3).init(&device);
    assert!(
        ask(&uneven, &x, &x, &x)
            .contains("of d_model 16, with 3 heads of d_k 5: d_model must be the number of heads times d_k")
    );
    let mut changed = layer.clone();
    changed.value = burn::nn::LinearConfig::new(16, 8).init(&device);
    assert!(ask(&changed, &x, &x, &x).contains(
        "the weight of the layer's value is [16, 8] of F32: this parameter of the layer must have the shape [16, 16]"
    ));
    let four = MultiHeadAttentionConfig::new(16, 4).init(&device);
    let error = multi_head_attention(&four, x.clone(), x.clone(), x.clone(), &plan).unwrap_err();
    assert!(matches!(error, Error::Noren(noren::Error::Shape { name: "q", .. })), "{error}");
    let half = x.clone().cast(burn::tensor::DType::BF16);
    assert!(ask(&layer, &half, &x, &x).contains("key is [1, 5, 16] of F32: queries, keys and values must"));
    assert!(ask(&layer, &half, &half, &half).contains(
        "the weight of the layer's query is [16, 16] of F32: the input `query` of the layer has the number type BF16"
    ));
    let other = Device::flex().autodiff().gradient_checkpointing();
    let (x, layer) =
        (Tensor::zeros([1, 5, 16], &Device::flex().autodiff()), MultiHeadAttentionConfig::new(16, 2).init(&other));
    assert!(ask(&layer, &x, &x, &x).contains("create both tensors on the same autodiff device"));
}
