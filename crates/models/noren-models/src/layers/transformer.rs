//! Encoder and decoder layers, and stacks of these layers. Norms are applied after each sublayer (PyTorch's default) or
//! before it. A sublayer is an attention or a feed-forward part.

use super::{LayerPlans, MhaConfig, MultiHeadAttention};
use crate::error::Result;
use crate::nn::{Activation, Linear, Mode, Norm, NormKind};
use candle_core::Tensor;
use candle_nn::VarBuilder;
use noren::Plan;
use std::sync::Arc;

/// The sizes and options of a transformer layer.
#[derive(Clone, Debug)]
pub struct LayerConfig {
    /// The sizes and the dropout of the attention.
    pub attention: MhaConfig,
    /// Number of values in the hidden layer of the feed-forward part.
    pub feedforward: usize,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// True if a norm is applied before each sublayer (attention or feed-forward part), false if the norm is applied
    /// after each sublayer.
    pub norm_first: bool,
    /// The number that norms add to the variance to prevent a division by 0.
    pub eps: f64,
    /// The probability with which a value is set to 0 in training, outside of attention weights. `attention` has the
    /// probability for attention weights.
    pub dropout: f32,
}

impl LayerConfig {
    /// Returns a configuration with `4 * embed_dim` values in the hidden layer of the feed-forward part, ReLU, norms
    /// after each sublayer (attention or feed-forward part) and no dropout.
    pub fn new(embed_dim: usize, heads: usize) -> Self {
        LayerConfig {
            attention: MhaConfig::new(embed_dim, heads),
            feedforward: 4 * embed_dim,
            activation: Activation::Relu,
            norm_first: false,
            eps: 1e-5,
            dropout: 0.0,
        }
    }

    fn norm(&self, name: &str, vb: &VarBuilder<'_>) -> Result<Norm> {
        Norm::load(NormKind::Layer, self.attention.embed_dim, self.eps, &vb.pp(name))
    }
}

/// The settings of the operations around each sublayer (attention or feed-forward part): dropout of its result,
/// addition of the result to its input, and a norm.
#[derive(Clone, Copy, Debug)]
struct Around {
    norm_first: bool,
    dropout: f32,
}

impl Around {
    /// Returns the sum of `x` and the result of the sublayer `part`, after dropout of this result. If `norm_first` is
    /// true, `norm` is applied to the input of `part`; otherwise, `norm` is applied to the sum.
    fn part(
        self,
        x: &Tensor,
        norm: &Norm,
        mode: Mode,
        part: impl FnOnce(&Tensor, Mode) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let inner = if self.norm_first { part(&norm.forward(x)?, mode.at(0))? } else { part(x, mode.at(0))? };
        let sum = (x + mode.at(1).dropout(&inner, self.dropout)?)?;
        if self.norm_first { Ok(sum) } else { norm.forward(&sum) }
    }
}

/// The feed-forward part of a layer: `linear2(activation(linear1(x)))`.
#[derive(Clone, Debug)]
struct FeedForward {
    linear1: Linear,
    linear2: Linear,
    activation: Activation,
    dropout: f32,
}

impl FeedForward {
    fn new(config: &LayerConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        let (width, inner) = (config.attention.embed_dim, config.feedforward);
        Ok(FeedForward {
            linear1: Linear::load(width, inner, true, &vb.pp("linear1"))?,
            linear2: Linear::load(inner, width, true, &vb.pp("linear2"))?,
            activation: config.activation,
            dropout: config.dropout,
        })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let inner = self.linear1.forward_then(x, self.activation)?;
        self.linear2.forward(&mode.dropout(&inner, self.dropout)?)
    }
}

/// Self-attention and a feed-forward part. The parameters have the names of `nn.TransformerEncoderLayer`.
#[derive(Clone, Debug)]
pub struct TransformerEncoderLayer {
    self_attn: MultiHeadAttention,
    feedforward: FeedForward,
    norm1: Norm,
    norm2: Norm,
    around: Around,
}

impl TransformerEncoderLayer {
    /// Makes the layer with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error if the width is not a multiple of the number of heads, or if a tensor in `vb` is missing or has
    /// another shape.
    pub fn new(config: &LayerConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        Ok(TransformerEncoderLayer {
            self_attn: MultiHeadAttention::new(&config.attention, &vb.pp("self_attn"))?,
            feedforward: FeedForward::new(config, vb)?,
            norm1: config.norm("norm1", vb)?,
            norm2: config.norm("norm2", vb)?,
            around: Around { norm_first: config.norm_first, dropout: config.dropout },
        })
    }

    /// Applies this layer to `x` `[batch, length, embed_dim]`. `plan` defines the keys that each query of the
    /// self-attention reads.
    ///
    /// # Errors
    /// Returns an error for shapes that do not fit the plan.
    pub fn forward(&self, x: &Tensor, plan: &Arc<Plan>, mode: Mode) -> Result<Tensor> {
        let attend = |x: &Tensor, mode| self.self_attn.forward(x, x, plan, mode);
        let x = self.around.part(x, &self.norm1, mode.at(0), attend)?;
        self.around.part(&x, &self.norm2, mode.at(1), |x, mode| self.feedforward.forward(x, mode))
    }
}

/// A stack of encoder layers. The parameters have the names of `nn.TransformerEncoder`: `layers.0`, `layers.1`, ...
#[derive(Clone, Debug)]
pub struct TransformerEncoder {
    layers: Vec<TransformerEncoderLayer>,
}

impl TransformerEncoder {
    /// Makes `layers` layers with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns the errors of [`TransformerEncoderLayer::new`].
    pub fn new(config: &LayerConfig, layers: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let layer = |i| TransformerEncoderLayer::new(config, &vb.pp("layers").pp(i));
        Ok(TransformerEncoder { layers: (0..layers).map(layer).collect::<Result<_>>()? })
    }

    /// Applies all layers to `x` `[batch, length, embed_dim]`. `plans` holds one plan for each layer.
    ///
    /// # Errors
    /// Returns an error for shapes that do not fit the plans, and if the number of plans is not the number of layers.
    pub fn forward(&self, x: &Tensor, plans: &LayerPlans, mode: Mode) -> Result<Tensor> {
        let plans = plans.of(self.layers.len())?;
        let layers = self.layers.iter().zip(plans).enumerate();
        layers.into_iter().try_fold(x.clone(), |x, (i, (layer, plan))| layer.forward(&x, plan, mode.at(i as u64)))
    }
}

/// Self-attention, cross-attention and a feed-forward part. The parameters have the names of
/// `nn.TransformerDecoderLayer`.
#[derive(Clone, Debug)]
pub struct TransformerDecoderLayer {
    self_attn: MultiHeadAttention,
    multihead_attn: MultiHeadAttention,
    feedforward: FeedForward,
    norm1: Norm,
    norm2: Norm,
    norm3: Norm,
    around: Around,
}

impl TransformerDecoderLayer {
    /// Makes the layer with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error if the width is not a multiple of the number of heads, or if a tensor in `vb` is missing or has
    /// another shape.
    pub fn new(config: &LayerConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        Ok(TransformerDecoderLayer {
            self_attn: MultiHeadAttention::new(&config.attention, &vb.pp("self_attn"))?,
            multihead_attn: MultiHeadAttention::new(&config.attention, &vb.pp("multihead_attn"))?,
            feedforward: FeedForward::new(config, vb)?,
            norm1: config.norm("norm1", vb)?,
            norm2: config.norm("norm2", vb)?,
            norm3: config.norm("norm3", vb)?,
            around: Around { norm_first: config.norm_first, dropout: config.dropout },
        })
    }

    /// Applies this layer to `x` `[batch, length, embed_dim]`. `plan` is the plan of the self-attention, and `cross` is
    /// the plan of the attention over `memory` `[batch, memory_length, embed_dim]`.
    ///
    /// # Errors
    /// Returns an error for shapes that do not fit the plans.
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        plan: &Arc<Plan>,
        cross: &Arc<Plan>,
        mode: Mode,
    ) -> Result<Tensor> {
        let attend = |x: &Tensor, mode| self.self_attn.forward(x, x, plan, mode);
        let x = self.around.part(x, &self.norm1, mode.at(0), attend)?;
        let attend = |x: &Tensor, mode| self.multihead_attn.forward(x, memory, cross, mode);
        let x = self.around.part(&x, &self.norm2, mode.at(1), attend)?;
        self.around.part(&x, &self.norm3, mode.at(2), |x, mode| self.feedforward.forward(x, mode))
    }
}

/// A stack of decoder layers. The parameters have the names of `nn.TransformerDecoder`: `layers.0`, `layers.1`, ...
#[derive(Clone, Debug)]
pub struct TransformerDecoder {
    layers: Vec<TransformerDecoderLayer>,
}

impl TransformerDecoder {
    /// Makes `layers` layers with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns the errors of [`TransformerDecoderLayer::new`].
    pub fn new(config: &LayerConfig, layers: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let layer = |i| TransformerDecoderLayer::new(config, &vb.pp("layers").pp(i));
        Ok(TransformerDecoder { layers: (0..layers).map(layer).collect::<Result<_>>()? })
    }

    /// Applies all layers to `x` `[batch, length, embed_dim]`. `plans` holds the plan of the self-attention for each
    /// layer. `cross` holds the plan of the attention over `memory` `[batch, memory_length, embed_dim]` for each layer.
    ///
    /// # Errors
    /// Returns an error for shapes that do not fit the plans, and if a number of plans is not the number of layers.
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        plans: &LayerPlans,
        cross: &LayerPlans,
        mode: Mode,
    ) -> Result<Tensor> {
        let (plans, cross) = (plans.of(self.layers.len())?, cross.of(self.layers.len())?);
        let mut x = x.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x, memory, &plans[i], &cross[i], mode.at(i as u64))?;
        }
        Ok(x)
    }
}
