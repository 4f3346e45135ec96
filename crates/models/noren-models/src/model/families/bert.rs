//! [`Bert`]: an encoder with learned positions: BERT, RoBERTa and DistilBERT.

use super::bert_head::BertHead;
use super::decoder::rows_at;
use super::parts::{Packing, embed, project, without_head};
use crate::error::Result;
use crate::layers::join_heads;
use crate::model::batch::{Batch, rows_tensor};
use crate::model::configs::bert::{BertConfig, BertFamily};
use crate::model::pass::Pass;
use crate::nn::{Linear, Mode, Norm, NormKind};
use crate::stack::Stack;
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use noren::linear::Weight;
use noren::{Dtype, Spec};
use noren_candle::Options;

/// A BERT, RoBERTa or DistilBERT.
#[derive(Clone, Debug)]
pub struct Bert {
    config: BertConfig,
    pub(crate) declared: Spec,
    embeddings: Embeddings,
    norm: Norm,
    blocks: Vec<Block>,
    pooler: Option<Linear>,
    head: BertHead,
}

/// The tables of vectors whose sum is the input of the first layer.
#[derive(Clone, Debug)]
struct Embeddings {
    words: Tensor,
    positions: Tensor,
    /// The table of segments (`token_type_ids`); `None` for a DistilBERT.
    types: Option<Tensor>,
}

#[derive(Clone, Debug)]
struct Block {
    projections: [Linear; 3],
    out: Linear,
    up: Linear,
    down: Linear,
    norms: [Norm; 2],
}

/// The names of an encoder's parts in a checkpoint.
struct Outer {
    root: &'static str,
    layers: &'static str,
    /// The names of the projections to queries, keys and values, and of the projection after attention, in this order.
    attention: [&'static str; 4],
    /// The names of the two linear layers of the feed-forward part.
    feed_forward: [&'static str; 2],
    /// The names of the norms after attention and after the feed-forward part.
    norms: [&'static str; 2],
}

impl BertFamily {
    fn outer(self) -> Outer {
        match self {
            BertFamily::Bert | BertFamily::Roberta => Outer {
                root: if self == BertFamily::Bert { "bert" } else { "roberta" },
                layers: "encoder.layer",
                attention: [
                    "attention.self.query",
                    "attention.self.key",
                    "attention.self.value",
                    "attention.output.dense",
                ],
                feed_forward: ["intermediate.dense", "output.dense"],
                norms: ["attention.output.LayerNorm", "output.LayerNorm"],
            },
            BertFamily::DistilBert => Outer {
                root: "distilbert",
                layers: "transformer.layer",
                attention: ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"],
                feed_forward: ["ffn.lin1", "ffn.lin2"],
                norms: ["sa_layer_norm", "output_layer_norm"],
            },
        }
    }
}

impl Block {
    /// Packs the weights of the linear layers ([`Linear::pack`]).
    fn pack(&mut self, dtype: Dtype) -> Result<()> {
        let Block { projections: [q, k, v], out, up, down, .. } = self;
        [q, k, v, out, up, down].into_iter().try_for_each(|linear| linear.pack(dtype))
    }
}

impl Bert {
    /// Makes the model with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape.
    pub fn new(config: &BertConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        Self::build(config, vb, None)
    }

    /// Makes the model as [`new`](Self::new) does, and packs weights as `packing` defines; `None`: packs nothing.
    pub(crate) fn build(config: &BertConfig, vb: &VarBuilder<'_>, packing: Option<Packing>) -> Result<Self> {
        let BertConfig { hidden, intermediate, eps, .. } = *config;
        let names = config.family.outer();
        let inner = without_head(vb, names.root, "embeddings.word_embeddings.weight");
        let linear = |inputs, outputs, vb: VarBuilder<'_>| Linear::load(inputs, outputs, true, &vb);
        let norm = |vb: VarBuilder<'_>| Norm::load(NormKind::Layer, hidden, eps, &vb);
        let table = |rows, name: &str| {
            let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
            inner.pp("embeddings").pp(name).get_with_hints((rows, hidden), "weight", normal)
        };
        let block = |i: usize| -> Result<Block> {
            let vb = inner.pp(names.layers).pp(i);
            let [query, key, value, out] = names.attention.map(|name| linear(hidden, hidden, vb.pp(name)));
            let [up, down] = names.feed_forward;
            let [first, second] = names.norms.map(|name| norm(vb.pp(name)));
            let mut block = Block {
                projections: [query?, key?, value?],
                out: out?,
                up: linear(hidden, intermediate, vb.pp(up))?,
                down: linear(intermediate, hidden, vb.pp(down))?,
                norms: [first?, second?],
            };
            if let Some(Packing { dtype, .. }) = packing {
                block.pack(dtype)?;
            }
            Ok(block)
        };
        let embeddings = Embeddings {
            words: table(config.vocab, "word_embeddings")?,
            positions: table(config.positions, "position_embeddings")?,
            types: (config.types > 0).then(|| table(config.types, "token_type_embeddings")).transpose()?,
        };
        let mut head = BertHead::new(config, &embeddings.words, vb)?;
        let has_pooler = inner.contains_tensor("pooler.dense.weight");
        let mut pooler = (has_pooler || head.reads_pooled())
            .then(|| linear(hidden, hidden, inner.pp("pooler.dense")))
            .transpose()?;
        if let Some(Packing { dtype, all: true }) = packing {
            head.pack(dtype)?;
            pooler.iter_mut().try_for_each(|pooler| pooler.pack(dtype))?;
        }
        Ok(Bert {
            declared: BertConfig::mask(),
            head,
            embeddings,
            norm: norm(inner.pp("embeddings.LayerNorm"))?,
            blocks: (0..config.layers).map(block).collect::<Result<_>>()?,
            pooler,
            config: config.clone(),
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// Packs the weights of the linear layers ([`Linear::pack`]), including the pooler and the head.
    pub(crate) fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.blocks.iter_mut().try_for_each(|block| block.pack(dtype))?;
        self.pooler.iter_mut().try_for_each(|pooler| pooler.pack(dtype))?;
        self.head.pack(dtype)
    }

    /// Returns a packed weight of the first layer, or `None` if the weights are not packed.
    pub(crate) fn packed_weight(&self) -> Option<&Weight> {
        self.blocks.first()?.out.packed_weight()
    }

    /// Returns the sum of the embeddings of tokens, segments and positions, `[batch, length, hidden]`.
    fn embed(&self, batch: &Batch) -> Result<Tensor> {
        let Embeddings { words, positions, types } = &self.embeddings;
        let device = words.device();
        let mut sum = embed(words, &batch.ids_tensor(device)?)?;
        if let Some(types) = types {
            let zeros = vec![vec![0; batch.len()]; batch.rows()];
            sum = (sum + embed(types, &rows_tensor(batch.types().unwrap_or(&zeros), device)?)?)?;
        }
        let first = self.config.first_position();
        let position_ids: Vec<Vec<u32>> =
            batch.positions().iter().map(|row| row.iter().map(|position| position + first).collect()).collect();
        Ok((sum + embed(positions, &rows_tensor(&position_ids, device)?)?)?)
    }

    /// Returns the hidden states after the last layer, `[batch, length, hidden]`.
    pub(crate) fn hidden(&self, batch: &Batch, pass: &mut Pass<'_>) -> Result<Tensor> {
        let x = self.norm.forward(&self.embed(batch)?)?;
        let (dropout, attention_dropout) = self.config.dropout;
        let mode = pass.mode;
        let mut x = mode.at(0).dropout(&x, dropout)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let mode = mode.at(1 + layer as u64);
            let [q, k, v] = project(&x, &block.projections, [self.config.heads; 2])?;
            let read = pass.attend((Stack::Encoder, layer), [&q, &k, &v], Options::default(), attention_dropout)?;
            let read = join_heads(&read)?;
            let Block { out, up, down, norms: [first, second], .. } = block;
            x = match mode {
                Mode::Inference => {
                    let x = out.forward_add_norm(&read, &x, first)?;
                    Linear::feed_forward(&x, [up, down], self.config.activation, second)?
                }
                Mode::Training { .. } => {
                    let drop = |layer: Tensor, site| mode.at(site).dropout(&layer, dropout);
                    let x = first.forward(&(&x + drop(out.forward(&read)?, 0)?)?)?;
                    let inner = up.forward_then(&x, self.config.activation)?;
                    second.forward(&(&x + drop(down.forward(&inner)?, 1)?)?)?
                }
            };
        }
        Ok(x)
    }

    /// Returns the pooled state of each text, `[texts, hidden]`; `None` if the model has no pooler. The pooler reads
    /// the state of the first token of the text.
    pub(crate) fn pooled(&self, hidden: &Tensor, batch: &Batch) -> Result<Option<Tensor>> {
        let Some(pooler) = &self.pooler else { return Ok(None) };
        Ok(Some(pooler.forward(&rows_at(hidden, &batch.first_tokens())?)?.tanh()?))
    }

    /// Returns the logits of the head, which reads the hidden states `hidden` or the pooled states `pooled`; `None` if
    /// the model has no head.
    pub(crate) fn logits(&self, hidden: &Tensor, pooled: Option<&Tensor>, batch: &Batch) -> Result<Option<Tensor>> {
        self.head.logits(hidden, pooled, batch)
    }
}
