//! [`Operation`]: attention as an operation of candle, with a forward and a backward pass.

use super::carry::{Slot, carry};
use super::options::{Options, Owned, OwnedBias, Values};
use super::storage::{Stored, by_token, by_type, view, views};
use crate::error::{Error, Result, into_candle};
use candle_core::{CpuStorage, CustomOp3, DType, Device, Layout, Shape, Tensor};
use noren::{GradientsMut, Inputs, Outputs, Plan, Saved, View, ViewMut, bf16, f16};
use std::sync::{Arc, OnceLock};

/// The forward and the backward pass of an attention over `q`, `k` and `v`.
pub(crate) trait Computed: Send + Sync {
    /// The name of the operation.
    const NAME: &str;

    /// Returns the output and its shape.
    fn forward<T: Stored>(&self, parts: [(&CpuStorage, &Layout); 3]) -> Result<(CpuStorage, Shape)>;

    /// Returns the gradients of `q`, `k` and `v`. `tensors` are `q`, `k`, `v`, the output and the gradient of the output.
    fn backward<T: Stored>(&self, tensors: [&Tensor; 5]) -> Result<[Tensor; 3]>;
}

/// An attention as an operation of candle.
pub(crate) struct Operation<C>(pub(crate) C);

impl<C: Computed> CustomOp3 for Operation<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let parts = [(q, q_layout), (k, k_layout), (v, v_layout)];
        let result = match q {
            CpuStorage::BF16(_) => self.0.forward::<bf16>(parts),
            CpuStorage::F16(_) => self.0.forward::<f16>(parts),
            _ => self.0.forward::<f32>(parts),
        };
        result.map_err(into_candle)
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        dout: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let tensors = [q, k, v, out, dout];
        let [dq, dk, dv] = by_type!(q, T => self.0.backward::<T>(tensors)).map_err(into_candle)?;
        Ok((Some(dq), Some(dk), Some(dv)))
    }
}

/// The operation of candle that computes attention with one plan, from `q`, `k` and `v` to
/// `[batch, q_len, heads, v_dim]`.
pub(crate) struct AttentionOp {
    plan: Arc<Plan>,
    options: Owned,
    /// True if `q`, `k`, `v` or a tensor of the options needs a gradient. The forward pass then keeps the log-sum-exps
    /// for the backward pass.
    tracked: bool,
    /// The log-sum-exps of the forward pass, for the backward pass: `[batch, heads, q_len]`.
    lse: OnceLock<Vec<f32>>,
    /// The places in which the backward pass stores the gradients of the biases, in the order of the biases; `None` for
    /// a bias that needs no gradient.
    bias: Vec<Option<Slot>>,
    /// The place in which the backward pass stores the gradient of the soft weights; `None` if no gradient is needed.
    soft: Option<Slot>,
    /// The place in which the backward pass stores the gradient of the sinks; `None` if no gradient is needed.
    sinks: Option<Slot>,
}

impl AttentionOp {
    /// Returns a copy of `v` and the operation. The copy must be given to the operation instead of `v`. Through this
    /// copy, candle's backward pass reaches the biases, soft weights and sinks, which are not arguments of the
    /// operation ([`carry`]).
    pub(crate) fn new([q, k, v]: [&Tensor; 3], plan: &Arc<Plan>, options: &Options) -> Result<(Tensor, Self)> {
        let owned = options.own()?;
        let mut v = v.clone();
        let mut slot = |tensor: Option<&Tensor>| -> Result<Option<Slot>> {
            let Some(tensor) = tensor.filter(|tensor| tensor.track_op()) else { return Ok(None) };
            let slot = Slot::default();
            v = carry(&v, tensor, &slot)?;
            Ok(Some(slot))
        };
        let tensor_of = |bias: &super::Bias| match bias {
            super::Bias::Dense(tensor) | super::Bias::Relative(tensor) => Some(tensor.clone()),
            super::Bias::Alibi(_) => None,
        };
        let bias = options.bias.iter().map(|bias| slot(tensor_of(bias).as_ref())).collect::<Result<_>>()?;
        let (soft, sinks) = (slot(options.soft.as_ref())?, slot(options.sinks.as_ref())?);
        let tracked = [q, k, &v].into_iter().any(Tensor::track_op);
        Ok((v, AttentionOp { plan: plan.clone(), options: owned, tracked, lse: OnceLock::new(), bias, soft, sinks }))
    }
}

impl Computed for AttentionOp {
    const NAME: &str = "noren-attention";

    fn forward<T: Stored>(&self, [q, k, v]: [(&CpuStorage, &Layout); 3]) -> Result<(CpuStorage, Shape)> {
        let (q, k, v) = (view::<T>(q.0, q.1)?, view::<T>(k.0, k.1)?, view::<T>(v.0, v.1)?);
        let ([batch, heads, q_len, _], v_dim) = (q.shape(), v.shape()[3]);
        let mut lse = vec![0.0; if self.tracked { batch * heads * q_len } else { 0 }];
        let mut out = vec![T::from_f32(0.0); batch * heads * q_len * v_dim];
        let outputs = Outputs {
            out: by_token(&mut out, [batch, heads, q_len, v_dim])?,
            lse: self.tracked.then_some(&mut lse[..]),
        };
        noren::attention_into(&Inputs { q, k, v }, &self.plan, &self.options.borrow()?, outputs)?;
        // A second forward pass of the same operation would write the same numbers.
        let _ = self.lse.set(lse);
        Ok((T::store(out), (batch, q_len, heads, v_dim).into()))
    }

    fn backward<T: Stored>(&self, [q, k, v, out, dout]: [&Tensor; 5]) -> Result<[Tensor; 3]> {
        let (device, [out, dout]) = (q.device(), [out.transpose(1, 2)?, dout.transpose(1, 2)?]);
        let held = [q, k, v, &out, &dout].map(Tensor::storage_and_layout);
        let [q, k, v, out, dout] = views::<T, _, _>(&held)?;
        let lse = self.lse.get().ok_or_else(|| {
            Error::input("the attention output", "not computed yet", "run the forward pass before the backward pass")
        })?;
        let saved = Saved { out, lse, dout };
        let of = |view: &View<'_, T>| vec![T::from_f32(0.0); view.shape().iter().product()];
        let (mut dq, mut dk, mut dv) = (of(&q), of(&k), of(&v));
        let mut extra = Extra::new(self);
        noren::attention_backward_into(
            &Inputs { q, k, v },
            &saved,
            &self.plan,
            &self.options.borrow()?,
            extra.gradients(GradientsMut::new(
                ViewMut::new(&mut dq, q.shape())?,
                ViewMut::new(&mut dk, k.shape())?,
                ViewMut::new(&mut dv, v.shape())?,
            ))?,
        )?;
        extra.leave(self, device)?;
        let tensor = |values, view: View<'_, T>| Tensor::from_vec(values, view.shape().to_vec(), device);
        Ok([tensor(dq, q)?, tensor(dk, k)?, tensor(dv, v)?])
    }
}

/// The buffers for the gradients of biases, soft weights and sinks; `None` for a gradient that is not needed.
struct Extra {
    bias: Vec<Option<([usize; 4], Vec<f32>)>>,
    soft: Option<([usize; 4], Vec<f32>)>,
    sinks: Option<Vec<f32>>,
}

impl Extra {
    fn new(op: &AttentionOp) -> Self {
        let memory = |values: &Values| (values.shape, vec![0.0; values.data.len()]);
        let needed = |values: Option<&Values>| values.filter(|values| values.tracked).map(memory);
        Extra {
            bias: op.options.bias.iter().map(|bias| needed(OwnedBias::values(bias))).collect(),
            soft: needed(op.options.soft.as_ref()),
            sinks: needed(op.options.sinks.as_ref()).map(|(_, memory)| memory),
        }
    }

    /// Adds the buffers of `self` to `plain`, which has the buffers for the gradients of queries, keys and values. The
    /// backward pass writes all gradients to these buffers.
    fn gradients<'a, T: Stored>(&'a mut self, plain: GradientsMut<'a, T>) -> Result<GradientsMut<'a, T>> {
        let place = |array: &'a mut Option<([usize; 4], Vec<f32>)>| {
            array.as_mut().map(|(shape, memory)| ViewMut::new(memory, *shape)).transpose()
        };
        Ok(GradientsMut {
            bias: self.bias.iter_mut().map(place).collect::<std::result::Result<_, _>>()?,
            soft: place(&mut self.soft)?,
            sinks: self.sinks.as_deref_mut(),
            ..plain
        })
    }

    /// Stores each gradient in the [`Slot`] (place for one gradient) that `op` has for it. The backward pass of the
    /// operation that [`carry`] adds later returns the gradient from this place to candle.
    fn leave(self, op: &AttentionOp, device: &Device) -> Result<()> {
        let leave = |slot: &Option<Slot>, memory: Option<Vec<f32>>| -> Result<()> {
            let (Some(slot), Some(memory)) = (slot, memory) else { return Ok(()) };
            let len = memory.len();
            let gradient = Tensor::from_vec(memory, len, device)?.to_dtype(DType::F32)?;
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(gradient);
            Ok(())
        };
        for (slot, array) in op.bias.iter().zip(self.bias) {
            leave(slot, array.map(|(_, memory)| memory))?;
        }
        leave(&op.soft, self.soft.map(|(_, memory)| memory))?;
        leave(&op.sinks, self.sinks)
    }
}
