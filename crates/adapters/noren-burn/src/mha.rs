//! [`multi_head_attention`]: burn's attention layer under a noren mask.

use crate::attention::attention;
use crate::device::{Described, check};
use crate::error::{Error, Result};
use crate::options::Options;
use burn::nn::Linear;
use burn::nn::attention::MultiHeadAttention;
use burn::tensor::{Distribution, Tensor};
use noren::{Dropout, Plan};
use std::sync::Arc;

/// Computes the output of burn's own [`MultiHeadAttention`] layer under the mask of `plan`. Gradients flow to the
/// inputs and to the parameters of the layer. The layer keeps its type, its parameters and its records.
///
/// `query` is `[batch, q_len, d_model]`; `key` and `value` are `[batch, kv_len, d_model]`. The result is the `context`
/// of the layer, `[batch, q_len, d_model]`. The attention weights, which burn's own `forward` also returns, are not
/// stored here: memory grows with the length and not with its square.
///
/// The scale, the dropout and the quiet softmax are those of the layer. As in burn, dropout is active in training on an
/// autodiff device. The seed of dropout comes from burn's generator, which `Device::seed` sets, but other cells are
/// dropped than in burn's own layer. `min_float` is not used: a hidden key has the weight 0. For a query that may read
/// no key, the output projection reads zeros, where burn's layer averages all values.
///
/// ```
/// use burn::nn::attention::MultiHeadAttentionConfig;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use noren::{Facts, Mask, Shape};
///
/// let device = Device::flex();
/// let layer = MultiHeadAttentionConfig::new(32, 4).init(&device);
/// let mask: Mask = "causal & documents([5, 3])".parse()?;
/// let plan = noren_burn::plan(&mask, &Shape::square(8).heads(4), &Facts::new())?;
/// let x = Tensor::<3>::random([1, 8, 32], Distribution::Default, &device);
/// let out = noren_burn::multi_head_attention(&layer, x.clone(), x.clone(), x, &plan)?;
/// assert_eq!(out.dims(), [1, 8, 32]);
/// # Ok::<(), noren_burn::Error>(())
/// ```
///
/// # Errors
/// Returns an error for shapes that do not fit the layer or the plan, for a layer whose sizes contradict each other, and
/// the errors of [`attention`](crate::attention()).
pub fn multi_head_attention(
    layer: &MultiHeadAttention,
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    plan: &Arc<Plan>,
) -> Result<Tensor<3>> {
    let inputs = [Described::new("query", &query), Described::new("key", &key), Described::new("value", &value)];
    check_layer(layer, inputs)?;
    let shape = plan.shape();
    let (batch, width) = (shape.batch_len(), layer.d_model);
    for (name, tensor, len) in
        [("query", &query, shape.q_len()), ("key", &key, shape.kv_len()), ("value", &value, shape.kv_len())]
    {
        if tensor.dims() != [batch, len, width] {
            let expected = format!(
                "the plan and the layer need the shape [{batch}, {len}, {width}] ([batch, length, d_model]): change the tensor or the plan"
            );
            return Err(Error::tensor(name, format!("{:?}", tensor.dims()), expected));
        }
    }
    let device = query.device();
    let heads = layer.n_heads;
    let mut options = Options::default();
    if layer.quiet_softmax {
        // The quiet softmax adds 1 to the denominator, which is exp(0).
        options.sinks = Some(Tensor::zeros([heads], &device));
    }
    let training = layer.dropout.training.is_enabled() && device.is_autodiff();
    if training && layer.dropout.prob > 0.0 {
        options.dropout = Some(Dropout { probability: layer.dropout.prob as f32, seed: seed(&query) });
    }
    let [q, k, v] = [(query, &layer.query), (key, &layer.key), (value, &layer.value)]
        .map(|(x, linear)| split_heads(linear.forward(x), heads));
    let out = attention(q, k, v, plan, &options)?;
    let [batch, heads, len, width] = out.dims();
    Ok(layer.output.forward(out.swap_dims(1, 2).reshape([batch, len, heads * width])))
}

/// Returns an error in cases in which burn's functions panic: the sizes of the layer contradict each other, a parameter
/// has another size, or number types or devices of the parameters and `inputs` (the query, key and value) differ.
fn check_layer(layer: &MultiHeadAttention, inputs: [Described; 3]) -> Result<()> {
    let (width, heads) = (layer.d_model, layer.n_heads);
    if heads == 0 || layer.d_k.checked_mul(heads) != Some(width) {
        let given = format!("of d_model {width}, with {heads} heads of d_k {}", layer.d_k);
        let expected =
            "d_model must be the number of heads times d_k: change n_heads in the configuration of the layer";
        return Err(Error::input("the layer", given, expected));
    }
    let linears: [(&str, &Linear); 4] =
        [("query", &layer.query), ("key", &layer.key), ("value", &layer.value), ("output", &layer.output)];
    check(&inputs)?;
    let mut described = Vec::from(inputs);
    for (name, linear) in linears {
        let weight = Described::new(format!("the weight of the layer's {name}"), &linear.weight.val());
        weight.check_parameter(&[width, width], &described[0])?;
        described.push(weight);
        if let Some(bias) = &linear.bias {
            let bias = Described::new(format!("the bias of the layer's {name}"), &bias.val());
            bias.check_parameter(&[width], &described[0])?;
            described.push(bias);
        }
    }
    check(&described)?;
    Ok(())
}

/// Returns a seed for dropout from the generator of the tensor's device.
fn seed(tensor: &Tensor<3>) -> u64 {
    let drawn = Tensor::<1>::random([4], Distribution::Uniform(0.0, 65536.0), &tensor.device());
    drawn.into_data().iter::<f32>().fold(0, |seed, part| seed << 16 | (part as u64 & 0xffff))
}

/// Splits the last dimension of `x` `[batch, length, heads * width]` into heads. The result is
/// `[batch, heads, length, width]`.
fn split_heads(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, len, width] = x.dims();
    x.reshape([batch, len, heads, width / heads]).swap_dims(1, 2)
}
