//! [`attention()`]: masked attention over burn's tensors, with a backward pass.

use crate::device::{Described, check};
use crate::error::{Error, Result};
use crate::op::{AutodiffTensor, Call, plain, tracked};
use crate::options::Options;
use crate::storage::FlexTensor;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing};
use burn::backend::{DispatchKindConversion, DispatchTensor, Flex, GradientCheckpointingStrategy};
use burn::tensor::{Float, PrimitiveConversionError, Tensor};
use noren::Plan;
use std::sync::Arc;

/// Computes masked attention: `softmax(scale * q k^T + ..., over the keys that plan allows) v`.
///
/// `q` is `[batch, heads, q_len, head_dim]`, `k` is `[batch, kv_heads, kv_len, head_dim]` and `v` is
/// `[batch, kv_heads, kv_len, v_dim]`. All three have the same type, `f32`, `bf16` or `f16`, and any strides: nothing
/// is copied. They are on burn's CPU backend Flex. The result is `[batch, heads, q_len, v_dim]`, a view of memory with
/// the order `[batch, q_len, heads, v_dim]`. `swap_dims(1, 2)` and a reshape therefore join the heads without a copy.
///
/// Gradients flow to `q`, `k` and `v`, and to the tensors of `options` that require a gradient. For the backward pass,
/// the forward pass keeps one number for each row (the log-sum-exp), but no matrix of weights. The guarantees of
/// [`noren::attention()`] hold, and the results have the same bits.
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use noren_burn::{Options, attention, plan};
/// use noren::{Facts, Shape, atoms};
///
/// let device = Device::flex().autodiff();
/// let plan = plan(&atoms::causal(), &Shape::square(5).heads(4).kv_heads(2), &Facts::new())?;
/// let q = Tensor::<4>::random([1, 4, 5, 8], Distribution::Default, &device).require_grad();
/// let kv = Tensor::<4>::random([1, 2, 5, 8], Distribution::Default, &device);
/// let out = attention(q.clone(), kv.clone(), kv, &plan, &Options::default())?;
/// let gradients = out.powi_scalar(2).sum().backward();
/// assert_eq!(q.grad(&gradients).unwrap().dims(), [1, 4, 5, 8]);
/// # Ok::<(), noren_burn::Error>(())
/// ```
///
/// # Errors
/// Returns an error for shapes that do not fit the plan, for other types, for tensors on another backend than Flex, and
/// for invalid options. Returns an error if the autodiff devices of the tensors have different gradient checkpointing.
pub fn attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, plan: &Arc<Plan>, options: &Options) -> Result<Tensor<4>> {
    let mut described = vec![Described::new("q", &q), Described::new("k", &k), Described::new("v", &v)];
    described.extend(options.describe());
    let strategy = check(&described)?;
    let (options, extra) = options.join();
    let extra = extra.unwrap_or_else(|| Tensor::zeros([1], &q.device()));
    let call = Call { plan: plan.clone(), options };
    match strategy {
        None => {
            let inputs = [primitive(q)?, primitive(k)?, primitive(v)?, primitive(extra)?];
            Ok(Tensor::from_primitive::<Flex>(plain(inputs, &call)?))
        }
        Some(GradientCheckpointingStrategy::Disabled) => with_autodiff::<NoCheckpointing>([q, k, v], extra, call),
        Some(GradientCheckpointingStrategy::Balanced) => with_autodiff::<BalancedCheckpointing>([q, k, v], extra, call),
    }
}

/// Computes attention with autodiff. At least one tensor is on an autodiff device, with the gradient checkpointing
/// strategy `C`. Tensors on a device without autodiff are constants. `extra` joins all tensors of the options.
fn with_autodiff<C>([q, k, v]: [Tensor<4>; 3], extra: Tensor<1>, call: Call) -> Result<Tensor<4>>
where
    C: CheckpointStrategy,
    DispatchTensor: DispatchKindConversion<Autodiff<Flex, C>>,
{
    let inputs = [lift::<C, 4>(q)?, lift::<C, 4>(k)?, lift::<C, 4>(v)?, lift::<C, 1>(extra)?];
    Ok(Tensor::from_primitive::<Autodiff<Flex, C>>(tracked::<C>(inputs, call)?))
}

/// Returns the Flex tensor inside `tensor`, which must not have autodiff.
fn primitive<const D: usize>(tensor: Tensor<D>) -> Result<FlexTensor> {
    <Tensor<D, Float>>::try_into_primitive::<Flex>(tensor).map_err(refused)
}

/// Returns the `Autodiff<Flex, C>` tensor inside `tensor`. A tensor without autodiff becomes a constant.
fn lift<C, const D: usize>(tensor: Tensor<D>) -> Result<AutodiffTensor>
where
    C: CheckpointStrategy,
    DispatchTensor: DispatchKindConversion<Autodiff<Flex, C>>,
{
    if !tensor.is_autodiff() {
        return Ok(AutodiffTensor::new(primitive(tensor)?));
    }
    tensor.try_into_primitive::<Autodiff<Flex, C>>().map_err(refused)
}

/// Converts an error of burn to an error of this crate: burn cannot convert a tensor to a tensor of the backend Flex.
fn refused(error: PrimitiveConversionError) -> Error {
    let (PrimitiveConversionError::BackendMismatch(given) | PrimitiveConversionError::KindMismatch(given)) = error;
    Error::tensor("a tensor", format!("not usable ({given})"), "give float tensors on burn's CPU backend Flex")
}

/// Returns the plan of a mask for [`attention`]. Layers can share the plan.
///
/// # Errors
/// Returns the errors of [`noren::Mask::bind`].
pub fn plan(mask: &noren::Mask, shape: &noren::Shape, facts: &noren::Facts) -> Result<Arc<Plan>> {
    Ok(Arc::new(mask.bind(shape, facts)?.plan()))
}
