//! Attention as an operation of burn's backend Flex, and its backward pass for `Autodiff<Flex>`.

use crate::error::{Error, Result};
use crate::options::{Joined, JoinedBias, Place};
use crate::storage::{FlexTensor, Stored, by_token, view, zeros};
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::backend::{Flex, tensor::FloatTensor};
use burn::tensor::{DType, TensorData};
use noren::{GradientsMut, Inputs, Outputs, Plan, Saved, ViewMut, bf16, f16};
use std::sync::Arc;

/// A tensor of burn's CPU backend Flex with autodiff.
pub(crate) type AutodiffTensor = FloatTensor<Autodiff<Flex>>;

/// The plan and the options of one call of attention.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) plan: Arc<Plan>,
    pub(crate) options: Joined,
}

/// Computes attention without gradients. `inputs` are `q`, `k`, `v` and the joined tensor: all tensors of the options in
/// one.
pub(crate) fn plain(inputs: [FlexTensor; 4], call: &Call) -> Result<FlexTensor> {
    Ok(forward(&inputs, call, false)?.0)
}

/// Computes attention with autodiff. `inputs` are `q`, `k`, `v` and the joined tensor: all tensors of the options in one.
pub(crate) fn tracked<C: CheckpointStrategy>(inputs: [AutodiffTensor; 4], call: Call) -> Result<AutodiffTensor> {
    let needed = inputs.iter().any(AutodiffTensor::is_tracked);
    let (out, lse) = forward(&inputs.each_ref().map(|tensor| tensor.primitive().clone()), &call, needed)?;
    let nodes = inputs.each_ref().map(AutodiffTensor::node);
    Ok(match AttentionBackward.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let [q, k, v, extra] = &inputs;
            let inputs = [q, k, v].map(|tensor| prep.checkpoint(tensor));
            let extra = extra.primitive().clone();
            prep.finish(State { inputs, extra, out: out.clone(), lse: lse.into(), call: Arc::new(call) }, out)
        }
        OpsKind::UnTracked(prep) => prep.finish(out),
    })
}

/// Returns the output `[batch, heads, q_len, v_dim]`, and the log-sum-exps `[batch, heads, q_len]` if `lse` is true.
fn forward(inputs: &[FlexTensor; 4], call: &Call, lse: bool) -> Result<(FlexTensor, Vec<f32>)> {
    match inputs[0].dtype() {
        DType::BF16 => forward_of::<bf16>(inputs, call, lse),
        DType::F16 => forward_of::<f16>(inputs, call, lse),
        _ => forward_of::<f32>(inputs, call, lse),
    }
}

fn forward_of<T: Stored>([q, k, v, extra]: &[FlexTensor; 4], call: &Call, lse: bool) -> Result<(FlexTensor, Vec<f32>)> {
    let (q, k, v) = (view::<T>("q", q)?, view::<T>("k", k)?, view::<T>("v", v)?);
    let ([batch, heads, q_len, _], v_dim) = (q.shape(), v.shape()[3]);
    let shape = [batch, heads, q_len, v_dim];
    let mut sums = if lse { zeros::<f32>("the log-sum-exp", [batch, heads, q_len, 1])? } else { Vec::new() };
    let mut out = zeros::<T>("the output", shape)?;
    let outputs = Outputs { out: by_token_mut(&mut out, shape)?, lse: lse.then_some(&mut sums[..]) };
    let extra = extra.to_contiguous();
    noren::attention_into(&Inputs { q, k, v }, &call.plan, &call.options.borrow(values(&extra))?, outputs)?;
    Ok((by_token(out, shape), sums))
}

/// Returns the values of the joined tensor (all tensors of the options in one), which is contiguous and of `f32`.
fn values(extra: &FlexTensor) -> &[f32] {
    extra.as_slice().unwrap_or_default()
}

/// Returns a view of `memory` with the shape `shape`, which is `[batch, heads, length, width]`. The numbers in `memory`
/// have the order `[batch, length, heads, width]`.
fn by_token_mut<T: Stored>(memory: &mut [T], shape: [usize; 4]) -> Result<ViewMut<'_, T>> {
    let [_, heads, len, width] = shape.map(|n| n as isize);
    Ok(ViewMut::strided(memory, shape, [len * heads * width, width, heads * width, 1], 0)?)
}

/// The backward pass of attention as a step of burn's graph. Its parents are `q`, `k`, `v` and the joined tensor (all
/// tensors of the options in one).
#[derive(Debug)]
struct AttentionBackward;

/// The data that the forward pass keeps for [`AttentionBackward`].
#[derive(Clone, Debug)]
struct State {
    /// The nodes of `q`, `k` and `v` in burn's autodiff graph. burn keeps or recomputes their values.
    inputs: [NodeId; 3],
    /// The joined tensor: all tensors of the options in one.
    extra: FlexTensor,
    /// The output of the forward pass.
    out: FlexTensor,
    /// The log-sum-exps of the forward pass, `[batch, heads, q_len]`.
    lse: Arc<[f32]>,
    call: Arc<Call>,
}

impl Backward<Flex, 4> for AttentionBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 4>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dout = grads.consume::<Flex>(&ops.node);
        let inputs: [FlexTensor; 3] = ops.state.inputs.map(|node| checkpointer.retrieve_node_output(node));
        let wanted = ops.parents[3].is_some();
        let result = match inputs[0].dtype() {
            DType::BF16 => backward_of::<bf16>(&inputs, &ops.state, &dout, wanted),
            DType::F16 => backward_of::<f16>(&inputs, &ops.state, &dout, wanted),
            _ => backward_of::<f32>(&inputs, &ops.state, &dout, wanted),
        };
        // burn's backward pass has no result for errors. The forward pass has checked the same inputs, so that only a
        // lack of memory is left.
        let gradients = result.unwrap_or_else(|error| panic!("the backward pass of noren's attention failed: {error}"));
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(node) = parent {
                grads.register::<Flex>(node.id, gradient);
            }
        }
    }
}

/// Returns the gradients of `q`, `k`, `v` and the joined tensor (all tensors of the options in one). If `wanted` is false,
/// the gradient of the joined tensor is not computed and the tensor returned for it contains zeros.
fn backward_of<T: Stored>(
    [q, k, v]: &[FlexTensor; 3],
    state: &State,
    dout: &FlexTensor,
    wanted: bool,
) -> Result<[FlexTensor; 4]> {
    let (q, k, v) = (view::<T>("q", q)?, view::<T>("k", k)?, view::<T>("v", v)?);
    let saved = Saved { out: view("the output", &state.out)?, lse: &state.lse, dout: view("its gradient", dout)? };
    let mut dq = zeros::<T>("the gradient of q", q.shape())?;
    let mut dk = zeros::<T>("the gradient of k", k.shape())?;
    let mut dv = zeros::<T>("the gradient of v", v.shape())?;
    let gradients = GradientsMut::new(
        by_token_mut(&mut dq, q.shape())?,
        by_token_mut(&mut dk, k.shape())?,
        by_token_mut(&mut dv, v.shape())?,
    );
    let extra = state.extra.to_contiguous();
    let options = &state.call.options;
    let mut more = zeros::<f32>("the gradient of the tensors of the options", [1, 1, 1, values(&extra).len()])?;
    let gradients = if wanted { with_options(gradients, options, &mut more)? } else { gradients };
    noren::attention_backward_into(
        &Inputs { q, k, v },
        &saved,
        &state.call.plan,
        &options.borrow(values(&extra))?,
        gradients,
    )?;
    let (dq, dk, dv) = (by_token(dq, q.shape()), by_token(dk, k.shape()), by_token(dv, v.shape()));
    let count = more.len();
    Ok([dq, dk, dv, FlexTensor::from_data(TensorData::new(more, [count]))])
}

/// Adds memory for the gradients of the tensors of `options` to `plain`, which has memory for the gradients of `q`, `k`
/// and `v`. `memory` is as long as the joined tensor (all tensors of the options in one). Each tensor that needs a
/// gradient gets the part of `memory` that has the indices of its values in the joined tensor.
fn with_options<'a, T>(
    plain: GradientsMut<'a, T>,
    options: &Joined,
    memory: &'a mut [f32],
) -> Result<GradientsMut<'a, T>> {
    let mut rest = memory;
    let mut take = |place: &Place| -> Result<Option<&'a mut [f32]>> {
        let (values, others) = std::mem::take(&mut rest).split_at_mut_checked(place.len()).ok_or_else(|| {
            Error::input(
                "the gradient of the tensors of the options",
                "too short",
                "this is a fault of noren-burn: report the shapes of these tensors",
            )
        })?;
        rest = others;
        Ok(place.tracked.then_some(values))
    };
    let mut bias = Vec::with_capacity(options.bias.len());
    for part in &options.bias {
        bias.push(match part {
            JoinedBias::Dense(place) | JoinedBias::Relative(place) => {
                take(place)?.map(|values| ViewMut::new(values, place.shape)).transpose()?
            }
            JoinedBias::Alibi(_) => None,
        });
    }
    let soft = match &options.soft {
        Some(place) => take(place)?.map(|values| ViewMut::new(values, place.shape)).transpose()?,
        None => None,
    };
    let sinks = match &options.sinks {
        Some(place) => take(place)?,
        None => None,
    };
    Ok(GradientsMut { bias, soft, sinks, ..plain })
}
