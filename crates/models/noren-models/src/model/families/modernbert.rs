//! [`ModernBert`]: an encoder with rotary positions, windows in most layers, norms before attention and feed-forward
//! parts, and gated feed-forward parts (Warner et al. 2024).

use super::decoder::{mean_at, rows_at};
use super::parts::{Packing, embed, project, without_head};
use crate::error::Result;
use crate::layers::join_heads;
use crate::model::batch::Batch;
use crate::model::configs::classes::{Classes, Head};
use crate::model::configs::modernbert::{ClassifierPooling, ModernBertConfig};
use crate::model::configs::rope::Rotary;
use crate::model::pass::Pass;
use crate::nn::{Activation, Linear, Mode, Norm, NormKind};
use crate::stack::Stack;
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use noren::linear::Weight;
use noren::{Dtype, Spec};
use noren_candle::Options;

/// A ModernBERT model.
#[derive(Clone, Debug)]
pub struct ModernBert {
    config: ModernBertConfig,
    pub(crate) declared: Spec,
    embeddings: Tensor,
    norm: Norm,
    blocks: Vec<Block>,
    final_norm: Norm,
    head: Option<ModernHead>,
}

/// A layer: attention and a gated feed-forward part, with a norm before each of them.
#[derive(Clone, Debug)]
struct Block {
    /// The norm before attention; `None` in the first layer, whose input is already normalised.
    attention_norm: Option<Norm>,
    projections: [Linear; 3],
    out: Linear,
    mlp_norm: Norm,
    /// The linear layers of the feed-forward part: the layer whose result passes through the activation, the gate that
    /// multiplies this result, and the output layer, in this order.
    mlp: [Linear; 3],
}

/// A head: a hidden layer with an activation and a norm, and an output layer.
#[derive(Clone, Debug)]
struct ModernHead {
    dense: Linear,
    activation: Activation,
    norm: Norm,
    out: Linear,
}

impl ModernBert {
    /// Makes the model with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape.
    pub fn new(config: &ModernBertConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        Self::build(config, vb, None)
    }

    /// Makes the model as [`new`](Self::new) does, and packs weights as `packing` defines; `None`: packs nothing.
    pub(crate) fn build(config: &ModernBertConfig, vb: &VarBuilder<'_>, packing: Option<Packing>) -> Result<Self> {
        let (hidden, vocab) = (config.hidden, config.vocab);
        let inner = without_head(vb, "model", "embeddings.tok_embeddings.weight");
        let block = |layer: usize| -> Result<Block> {
            let mut block = Block::new(config, layer, &inner.pp("layers").pp(layer))?;
            if let Some(Packing { dtype, .. }) = packing {
                block.pack(dtype)?;
            }
            Ok(block)
        };
        let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
        let embeddings = inner.pp("embeddings.tok_embeddings").get_with_hints((vocab, hidden), "weight", normal)?;
        let mut head = ModernHead::new(config, &embeddings, vb)?;
        if let (Some(head), Some(Packing { dtype, all: true })) = (&mut head, packing) {
            head.pack(dtype)?;
        }
        Ok(ModernBert {
            declared: config.mask(),
            norm: config.norm(&inner.pp("embeddings.norm"))?,
            blocks: (0..config.windows.len()).map(block).collect::<Result<_>>()?,
            final_norm: config.norm(&inner.pp("final_norm"))?,
            head,
            embeddings,
            config: config.clone(),
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ModernBertConfig {
        &self.config
    }

    /// Packs the weights of the linear layers ([`Linear::pack`]), including the head.
    pub(crate) fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.blocks.iter_mut().try_for_each(|block| block.pack(dtype))?;
        self.head.iter_mut().try_for_each(|head| head.pack(dtype))
    }

    /// Returns a packed weight of the first layer, or `None` if the weights are not packed.
    pub(crate) fn packed_weight(&self) -> Option<&Weight> {
        self.blocks.first()?.out.packed_weight()
    }

    /// Returns the hidden states after the last norm, `[batch, length, hidden]`.
    pub(crate) fn hidden(&self, batch: &Batch, pass: &mut Pass<'_>) -> Result<Tensor> {
        let config = &self.config;
        let x = self.norm.forward(&embed(&self.embeddings, &batch.ids_tensor(self.embeddings.device())?)?)?;
        let head_dim = config.hidden / config.heads;
        let [everywhere, windowed] =
            config.ropes.each_ref().map(|rope| rope.rotary(batch.positions(), head_dim, x.dtype(), x.device()));
        let (everywhere, windowed) = (everywhere?, windowed?);
        let mode = pass.mode;
        let mut x = mode.at(0).dropout(&x, config.dropout[0])?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let rotary = if config.windows[layer].is_some() { &windowed } else { &everywhere };
            x = block.forward(&x, layer, config, rotary, pass)?;
        }
        self.final_norm.forward(&x)
    }

    /// Returns the logits of the head for the hidden states `hidden` `[batch, length, hidden]`; `None` if the model has
    /// no head.
    pub(crate) fn logits(&self, hidden: &Tensor, batch: &Batch) -> Result<Option<Tensor>> {
        let Some(head) = &self.head else { return Ok(None) };
        Ok(Some(match (&self.config.head, self.config.pooling) {
            (Head::TextClassifier(_), ClassifierPooling::First) => {
                head.forward(&rows_at(hidden, &batch.first_tokens())?)?
            }
            (Head::TextClassifier(_), ClassifierPooling::Mean) => {
                head.forward(&mean_at(hidden, &batch.pooled_tokens())?)?
            }
            _ => head.forward(hidden)?,
        }))
    }
}

impl ModernBertConfig {
    /// Makes a norm with parameters from `vb`, with a bias if the configuration has biases of norms.
    fn norm(&self, vb: &VarBuilder<'_>) -> Result<Norm> {
        match self.biases.norm {
            true => Norm::load(NormKind::Layer, self.hidden, self.eps, vb),
            false => Norm::load_without_bias(self.hidden, self.eps, vb),
        }
    }
}

impl Block {
    /// Packs the weights of the linear layers ([`Linear::pack`]).
    fn pack(&mut self, dtype: Dtype) -> Result<()> {
        let Block { projections: [q, k, v], out, mlp: [up, gate, down], .. } = self;
        [q, k, v, out, up, gate, down].into_iter().try_for_each(|linear| linear.pack(dtype))
    }

    fn new(config: &ModernBertConfig, layer: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let ModernBertConfig { hidden, intermediate, biases, .. } = *config;
        let joined = Linear::load(hidden, 3 * hidden, biases.attention, &vb.pp("attn.Wqkv"))?;
        let wide = Linear::load(hidden, 2 * intermediate, biases.mlp, &vb.pp("mlp.Wi"))?;
        let down = Linear::load(intermediate, hidden, biases.mlp, &vb.pp("mlp.Wo"))?;
        Ok(Block {
            attention_norm: (layer > 0).then(|| config.norm(&vb.pp("attn_norm"))).transpose()?,
            projections: [joined.part(0, hidden)?, joined.part(hidden, hidden)?, joined.part(2 * hidden, hidden)?],
            out: Linear::load(hidden, hidden, biases.attention, &vb.pp("attn.Wo"))?,
            mlp_norm: config.norm(&vb.pp("mlp_norm"))?,
            mlp: [wide.part(0, intermediate)?, wide.part(intermediate, intermediate)?, down],
        })
    }

    fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        config: &ModernBertConfig,
        rotary: &Rotary,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let [_, attention_dropout, mlp_dropout] = config.dropout;
        let mode = pass.mode.at(1 + layer as u64);
        let inner = self.attention_norm.as_ref().map(|norm| norm.forward(x)).transpose()?;
        let inner = inner.as_ref().unwrap_or(x);
        let [q, k, v] = project(inner, &self.projections, [config.heads; 2])?;
        let (q, k) = (rotary.turn(&q)?, rotary.turn(&k)?);
        let read = pass.attend((Stack::Encoder, layer), [&q, &k, &v], Options::default(), attention_dropout)?;
        let x = add(&self.out, &join_heads(&read)?, x, (mode.at(0), attention_dropout))?;
        let inner = self.mlp_norm.forward(&x)?;
        let [up, gate, down] = &self.mlp;
        let [up, gate] = Linear::forward_all(&inner, [(up, Some(config.activation)), (gate, None)])?;
        let inner = (up * gate)?;
        down.forward_add(&mode.at(1).dropout(&inner, mlp_dropout)?, &x)
    }
}

/// Returns `x + dropout(linear(read))`. `drop` is the mode and the probability of dropout.
fn add(linear: &Linear, read: &Tensor, x: &Tensor, drop: (Mode, f32)) -> Result<Tensor> {
    match drop {
        (Mode::Inference, _) => linear.forward_add(read, x),
        (mode, probability) => Ok((x + mode.dropout(&linear.forward(read)?, probability)?)?),
    }
}

impl ModernHead {
    /// Returns the head that the configuration names, with parameters from `vb`; `None` for an encoder without a head.
    /// `words` is the embedding table of tokens. The masked-LM head uses `words` as its weight, unless the checkpoint
    /// has a separate weight.
    fn new(config: &ModernBertConfig, words: &Tensor, vb: &VarBuilder<'_>) -> Result<Option<Self>> {
        let ModernBertConfig { hidden, vocab, biases, .. } = *config;
        let classes = |classes: &Classes| {
            let vb = vb.pp("classifier");
            classes.check(&vb, hidden)?;
            Linear::load(hidden, classes.count(), true, &vb)
        };
        let out = match &config.head {
            Head::None => return Ok(None),
            Head::TextClassifier(of) | Head::TokenClassifier(of) => classes(of)?,
            Head::LanguageModel => {
                let vb = vb.pp("decoder");
                let weight = match vb.contains_tensor("weight") {
                    true => vb.get((vocab, hidden), "weight")?,
                    false => words.clone(),
                };
                let bias = biases.decoder.then(|| vb.get_with_hints(vocab, "bias", Init::Const(0.0))).transpose()?;
                Linear::new(weight, bias)
            }
        };
        let vb = vb.pp("head");
        Ok(Some(ModernHead {
            dense: Linear::load(hidden, hidden, biases.head, &vb.pp("dense"))?,
            activation: config.head_activation,
            norm: config.norm(&vb.pp("norm"))?,
            out,
        }))
    }

    /// Packs the weights of the head ([`Linear::pack`]).
    fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.dense.pack(dtype)?;
        self.out.pack(dtype)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.norm.forward(&self.dense.forward_then(x, self.activation)?)?)
    }
}
