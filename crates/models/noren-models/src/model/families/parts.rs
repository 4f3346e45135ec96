//! The two parts of a decoder layer: attention and the feed-forward part, with all options of [`DecoderConfig`].

use crate::error::Result;
use crate::layers::{join_heads, split_heads};
use crate::model::configs::decoder::{DecoderConfig, Experts, Names};
use crate::model::configs::rope::Rotary;
use crate::model::pass::Pass;
use crate::nn::{Activation, Linear, Norm};
use crate::stack::Stack;
use candle_core::{D, DType, Tensor};
use candle_nn::{Init, VarBuilder};
use noren::Dtype;
use noren::linear::Weight;
use noren_candle::Options;

/// The packing of the weights of linear layers while a model is made.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    /// The type of the packed weights.
    pub(crate) dtype: Dtype,
    /// True to pack all weights; false to pack only those that [`Model::encode`](crate::model::Model::encode) needs.
    pub(crate) all: bool,
}

/// Returns the row of `table` for each token id. `ids` is `[batch, length]`, and the result `[batch, length, width]`.
pub(crate) fn embed(table: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (batch, len) = ids.dims2()?;
    let width = table.dim(1)?;
    Ok(table.index_select(&ids.flatten_all()?, 0)?.reshape((batch, len, width))?)
}

/// Returns the parameters of a model without its head. Their names in a checkpoint begin with `root`, unless the checkpoint
/// holds the model without its head: then only the name without `root` of the parameter `first` exists.
pub(crate) fn without_head<'a>(vb: &VarBuilder<'a>, root: &str, first: &str) -> VarBuilder<'a> {
    let bare = vb.contains_tensor(first) && !vb.contains_tensor(&format!("{root}.{first}"));
    if bare { vb.clone() } else { vb.pp(root) }
}

/// Returns queries, keys and values, `[batch, heads, length, head_dim]` each, for the states `x` `[batch, length, width]`.
/// `heads` has the numbers of query heads and of key-value heads.
pub(crate) fn project(x: &Tensor, projections: &[Linear; 3], heads: [usize; 2]) -> Result<[Tensor; 3]> {
    let [q, k, v] = Linear::forward_all(x, projections.each_ref().map(|linear| (linear, None)))?;
    Ok([split_heads(&q, heads[0])?, split_heads(&k, heads[1])?, split_heads(&v, heads[1])?])
}

/// Self-attention with linear projections before and after it.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    projections: [Linear; 3],
    out: Linear,
    qk_norms: Option<[Norm; 2]>,
    heads: usize,
    kv_heads: usize,
    options: Options,
}

impl Attention {
    pub(crate) fn new(config: &DecoderConfig, layer: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let DecoderConfig { hidden, heads, kv_heads, head_dim, attention_bias: bias, out_bias, .. } = *config;
        let (width, kv_width) = (heads * head_dim, kv_heads * head_dim);
        let (projections, out) = match config.names {
            Names::Llama => {
                let load = |name, width| Linear::load(hidden, width, bias, &vb.pp(name));
                let parts = [load("q_proj", width)?, load("k_proj", kv_width)?, load("v_proj", kv_width)?];
                (parts, Linear::load(width, hidden, out_bias, &vb.pp("o_proj"))?)
            }
            Names::Gpt2 => {
                let joined = Linear::load_transposed(hidden, width + 2 * kv_width, &vb.pp("c_attn"))?;
                let (k, v) = (joined.part(width, kv_width)?, joined.part(width + kv_width, kv_width)?);
                ([joined.part(0, width)?, k, v], Linear::load_transposed(width, hidden, &vb.pp("c_proj"))?)
            }
        };
        let norm = |name| Norm::load(config.norm, head_dim, config.eps, &vb.pp(name));
        let sinks = config.sinks.then(|| vb.get_with_hints(heads, "sinks", Init::Const(0.0))).transpose()?;
        let scale = match config.scale_by_layer {
            true => Some(config.scale.unwrap_or((head_dim as f32).sqrt().recip()) / (layer + 1) as f32),
            false => config.scale,
        };
        Ok(Attention {
            projections,
            out,
            qk_norms: if config.qk_norm { Some([norm("q_norm")?, norm("k_norm")?]) } else { None },
            heads,
            kv_heads,
            options: Options { scale, softcap: config.softcap, sinks, ..Options::default() },
        })
    }

    /// Packs the weights of the linear layers ([`Linear::pack`]).
    pub(crate) fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.projections.iter_mut().chain([&mut self.out]).try_for_each(|linear| linear.pack(dtype))
    }

    /// Returns a packed weight, or `None` if the weights are not packed.
    pub(crate) fn packed_weight(&self) -> Option<&Weight> {
        self.out.packed_weight()
    }

    pub(crate) fn forward(
        &self,
        x: &Tensor,
        at: (Stack, usize),
        rotary: Option<&Rotary>,
        dropout: f32,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let [mut q, mut k, v] = project(x, &self.projections, [self.heads, self.kv_heads])?;
        if let Some([q_norm, k_norm]) = &self.qk_norms {
            (q, k) = (q_norm.forward(&q)?, k_norm.forward(&k)?);
        }
        if let Some(rotary) = rotary {
            (q, k) = (rotary.turn(&q)?, rotary.turn(&k)?);
        }
        self.out.forward(&join_heads(&pass.attend(at, [&q, &k, &v], self.options.clone(), dropout)?)?)
    }
}

/// The feed-forward part of a transformer layer.
#[derive(Clone, Debug)]
pub(crate) enum FeedForward {
    /// A feed-forward part without a gate: `down(activation(up(x)))`.
    Plain { up: Linear, down: Linear, activation: Activation },
    /// A feed-forward part with a gate: `down(activation(gate(x)) * up(x))`.
    Gated { gate: Linear, up: Linear, down: Linear, activation: Activation },
    /// A mixture of experts. For each token, a router chooses some of the experts.
    Mixture(Mixture),
}

impl FeedForward {
    fn new_plain(config: &DecoderConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        let DecoderConfig { hidden, intermediate, activation, .. } = *config;
        let (up, down) = match config.names {
            Names::Gpt2 => (
                Linear::load_transposed(hidden, intermediate, &vb.pp("c_fc"))?,
                Linear::load_transposed(intermediate, hidden, &vb.pp("c_proj"))?,
            ),
            Names::Llama => (
                Linear::load(hidden, intermediate, false, &vb.pp("up_proj"))?,
                Linear::load(intermediate, hidden, false, &vb.pp("down_proj"))?,
            ),
        };
        Ok(FeedForward::Plain { up, down, activation })
    }

    pub(crate) fn new(config: &DecoderConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        let DecoderConfig { hidden, intermediate, activation, .. } = *config;
        if let Some(experts) = config.experts {
            return Ok(FeedForward::Mixture(Mixture::new(hidden, intermediate, experts, vb)?));
        }
        if !config.gated {
            return Self::new_plain(config, vb);
        }
        let load = |inputs, outputs, name| Linear::load(inputs, outputs, config.mlp_bias, &vb.pp(name));
        Ok(FeedForward::Gated {
            gate: load(hidden, intermediate, "gate_proj")?,
            up: load(hidden, intermediate, "up_proj")?,
            down: load(intermediate, hidden, "down_proj")?,
            activation,
        })
    }

    /// Packs the weights of the linear layers ([`Linear::pack`]).
    pub(crate) fn pack(&mut self, dtype: Dtype) -> Result<()> {
        match self {
            FeedForward::Plain { up, down, .. } => [up, down].into_iter().try_for_each(|linear| linear.pack(dtype)),
            FeedForward::Gated { gate, up, down, .. } => {
                [gate, up, down].into_iter().try_for_each(|linear| linear.pack(dtype))
            }
            FeedForward::Mixture(mixture) => mixture.pack(dtype),
        }
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            FeedForward::Plain { up, down, activation } => down.forward(&up.forward_then(x, *activation)?),
            FeedForward::Gated { gate, up, down, activation } => {
                let [gate, up] = Linear::forward_all(x, [(gate, Some(*activation)), (up, None)])?;
                down.forward(&(gate * up)?)
            }
            FeedForward::Mixture(mixture) => mixture.forward(x),
        }
    }
}

/// A mixture of experts as in gpt-oss. Each token passes through the experts with the largest routing logits. Their
/// outputs are added, weighted by a softmax over these logits.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    router: Linear,
    /// Two linear layers for each expert, in this order: the first computes `gate` and `up` together, in alternating
    /// columns of its output; the second computes `down`.
    experts: Vec<[Linear; 2]>,
    settings: Experts,
}

impl Mixture {
    fn new(hidden: usize, intermediate: usize, settings: Experts, vb: &VarBuilder<'_>) -> Result<Self> {
        let count = settings.count;
        let vb_experts = vb.pp("experts");
        let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
        let stacked = |name: &str, inputs, outputs| -> Result<(Tensor, Tensor)> {
            let weight = vb_experts.get_with_hints((count, inputs, outputs), name, normal)?;
            let bias = vb_experts.get_with_hints((count, outputs), &format!("{name}_bias"), Init::Const(0.0))?;
            Ok((weight, bias))
        };
        let (gate_up, down) =
            (stacked("gate_up_proj", hidden, 2 * intermediate)?, stacked("down_proj", intermediate, hidden)?);
        let one = |(weight, bias): &(Tensor, Tensor), i: usize| -> Result<Linear> {
            Ok(Linear::new(weight.get(i)?.t()?, Some(bias.get(i)?)))
        };
        let experts = (0..count).map(|i| Ok([one(&gate_up, i)?, one(&down, i)?])).collect::<Result<_>>()?;
        Ok(Mixture { router: Linear::load(hidden, count, true, &vb.pp("router"))?, experts, settings })
    }

    /// Packs the weights of the experts as numbers of type `dtype`, and those of the router as `f32`, because rounding
    /// could change which experts are chosen.
    fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.router.pack(Dtype::F32)?;
        self.experts.iter_mut().flatten().try_for_each(|linear| linear.pack(dtype))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let shape = x.shape().clone();
        let x = x.reshape(((), x.dim(D::Minus1)?))?;
        let logits = self.router.forward(&x)?;
        let chosen = self.choose(&logits)?;
        let weights = self.weights(&logits, &chosen)?;
        let mut sum = x.zeros_like()?;
        // Experts are added in the order of their indices, so that a token's sum does not depend on other tokens.
        for (i, [gate_up, down]) in self.experts.iter().enumerate() {
            let rows: Vec<u32> =
                (0..).zip(&chosen).filter(|(_, of)| of.contains(&(i as u32))).map(|(row, _)| row).collect();
            if rows.is_empty() {
                continue;
            }
            let rows = Tensor::new(rows, x.device())?;
            let weight = weights.index_select(&rows, 0)?.narrow(1, i, 1)?;
            let out = down.forward(&self.gate(&gate_up.forward(&x.index_select(&rows, 0)?)?)?)?;
            sum = sum.index_add(&rows, &out.broadcast_mul(&weight)?, 0)?;
        }
        Ok(sum.reshape(shape)?)
    }

    /// Returns the chosen experts of each token: the indices of the largest numbers in its row of `logits`, in
    /// ascending order.
    fn choose(&self, logits: &Tensor) -> Result<Vec<Vec<u32>>> {
        let rows = logits.detach().to_dtype(DType::F32)?.to_vec2::<f32>()?;
        let best = |row: Vec<f32>| {
            let mut order: Vec<u32> = (0..row.len() as u32).collect();
            order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
            order.truncate(self.settings.chosen);
            order.sort_unstable();
            order
        };
        Ok(rows.into_iter().map(best).collect())
    }

    /// Returns the weights of all experts for each token, `[tokens, experts]`. The weights of the chosen experts are
    /// the softmax over their logits; the other weights are 0.
    fn weights(&self, logits: &Tensor, chosen: &[Vec<u32>]) -> Result<Tensor> {
        let count = self.settings.count;
        let hidden = chosen
            .iter()
            .flat_map(|of| (0..count as u32).map(|i| if of.contains(&i) { 0f32 } else { f32::NEG_INFINITY }));
        let hidden = Tensor::from_iter(hidden, logits.device())?.reshape(logits.shape())?.to_dtype(logits.dtype())?;
        Ok(candle_nn::ops::softmax(&(logits + hidden)?, D::Minus1)?)
    }

    /// Returns `(up + 1) * gate * sigmoid(alpha * gate)`. The columns of `gate_up` belong alternately to `gate` and
    /// `up`, in this order. The values of both are first limited as [`Experts::limit`] defines.
    fn gate(&self, gate_up: &Tensor) -> Result<Tensor> {
        let Experts { alpha, limit, .. } = self.settings;
        let (rows, width) = gate_up.dims2()?;
        let pairs = gate_up.reshape((rows, width / 2, 2))?;
        let part = |i| pairs.narrow(2, i, 1)?.squeeze(2);
        let gate = part(0)?.minimum(limit)?;
        let up = part(1)?.clamp(-limit, limit)?;
        let turned = (&gate * candle_nn::ops::sigmoid(&(&gate * alpha)?)?)?;
        Ok(((up + 1.0)? * turned)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Config;
    use candle_core::Device;
    use std::path::Path;

    #[test]
    fn the_router_of_packed_experts_is_not_rounded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/conformance/models/gpt_oss");
        let Config::Decoder(config) = Config::load(&folder).unwrap() else { panic!("gpt_oss is a decoder") };
        let vb = VarBuilder::zeros(DType::F32, &Device::Cpu);
        let mut part = FeedForward::new(&config, &vb).unwrap();
        part.pack(Dtype::Bf16).unwrap();
        let FeedForward::Mixture(mixture) = &part else { panic!("gpt_oss has experts") };
        let dtype = |linear: &Linear| linear.packed_weight().map(Weight::dtype);
        assert_eq!(dtype(&mixture.router), Some(Dtype::F32));
        assert!(mixture.experts.iter().flatten().all(|linear| dtype(linear) == Some(Dtype::Bf16)));
        let x = Tensor::zeros((1, 3, config.hidden), DType::F32, &Device::Cpu).unwrap();
        assert_eq!(part.forward(&x).unwrap().dims(), x.dims());
    }
}
