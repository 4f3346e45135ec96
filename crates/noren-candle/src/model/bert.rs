//! [`Bert`]: an encoder with learned positions, and the heads that its checkpoints may have.

use super::batch::Batch;
use super::decoder::rows_at;
use super::parts::embed;
use super::pass::Pass;
use super::raw::Raw;
use crate::attention::Options;
use crate::error::{Error, Result};
use crate::layers::{join_heads, split_heads};
use crate::nn::{Activation, Linear, Mode, Norm, NormKind};
use crate::stack::Stack;
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use noren::{Spec, atoms};

/// The configuration of a BERT.
#[derive(Clone, PartialEq, Debug)]
pub struct BertConfig {
    /// Number of tokens of the vocabulary.
    pub vocab: usize,
    /// Number of values in the hidden state of a token.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Number of values in the hidden layer of the feed-forward part.
    pub intermediate: usize,
    /// Maximum number of positions.
    pub positions: usize,
    /// Number of different segments (`token_type_ids`).
    pub types: usize,
    /// The number that norms add to the variance to prevent a division by 0.
    pub eps: f64,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// Probabilities of dropout in training, as (probability for embeddings and for the results of attention and
    /// feed-forward parts, probability for attention weights).
    pub dropout: (f32, f32),
    /// The head of the model.
    pub head: BertHead,
    /// The names of the classes, in order (`id2label`). The list is empty if the head has no classes or the
    /// configuration has no `id2label`.
    pub labels: Vec<String>,
}

/// The head of a BERT, after its last layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BertHead {
    /// No head. The model has only the pooler, if the checkpoint has one.
    None,
    /// A head that predicts a token at each position.
    MaskedLm,
    /// A head that predicts a class for each text, from the pooled state.
    Classifier {
        /// Number of classes.
        classes: usize,
    },
    /// A head that predicts a class for each token, from the state of this token.
    TokenClassifier {
        /// Number of classes.
        classes: usize,
    },
}

impl BertConfig {
    /// Returns the mask of all layers, in which every token reads every token.
    pub(crate) fn mask() -> Spec {
        atoms::full().into()
    }

    /// Returns the configuration of a BERT of the given sizes, with the masked-LM head, `4 * hidden` values in the
    /// hidden layer of the feed-forward part, and no dropout.
    pub fn new(vocab: usize, hidden: usize, layers: usize, heads: usize, positions: usize) -> Self {
        BertConfig {
            vocab,
            hidden,
            layers,
            heads,
            intermediate: 4 * hidden,
            positions,
            types: 2,
            eps: 1e-12,
            activation: Activation::Gelu,
            dropout: (0.0, 0.0),
            head: BertHead::MaskedLm,
            labels: Vec::new(),
        }
    }

    pub(crate) fn read(raw: &Raw<'_>, architecture: Option<&str>) -> Result<Self> {
        if raw.text_or("position_embedding_type", "absolute")? != "absolute" {
            let given = raw.text("position_embedding_type")?;
            return Err(Error::config("position_embedding_type", given, "only the value `absolute` is supported"));
        }
        if raw.flag_or("is_decoder", false)? {
            return Err(Error::config("is_decoder", true, "a BERT is supported only as an encoder"));
        }
        let head = match architecture {
            None | Some("BertModel") => BertHead::None,
            Some("BertForMaskedLM" | "BertForPreTraining") => BertHead::MaskedLm,
            Some("BertForSequenceClassification") => BertHead::Classifier { classes: classes(raw)? },
            Some("BertForTokenClassification") => BertHead::TokenClassifier { classes: classes(raw)? },
            Some(other) => {
                let expected = "give BertModel, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification or \
                                BertForTokenClassification";
                return Err(Error::config("architectures", format!("{other:?}"), expected));
            }
        };
        let drop = |key| Ok::<_, Error>(raw.real_or(key, 0.1)? as f32);
        let config = BertConfig {
            vocab: raw.count("vocab_size")?,
            hidden: raw.count("hidden_size")?,
            layers: raw.count("num_hidden_layers")?,
            heads: raw.count("num_attention_heads")?,
            intermediate: raw.count("intermediate_size")?,
            positions: raw.count("max_position_embeddings")?,
            types: raw.count_or("type_vocab_size", 2)?,
            eps: raw.real_or("layer_norm_eps", 1e-12)?,
            activation: raw.text_or("hidden_act", "gelu")?.parse()?,
            dropout: (drop("hidden_dropout_prob")?, drop("attention_probs_dropout_prob")?),
            labels: match head {
                BertHead::Classifier { classes } | BertHead::TokenClassifier { classes } => labels(raw, classes)?,
                _ => Vec::new(),
            },
            head,
        };
        if config.layers > 4096 || !config.hidden.is_multiple_of(config.heads) {
            let given = format!("{} layers of {} heads with a width of {}", config.layers, config.heads, config.hidden);
            return Err(Error::config("the size", given, "the width must be a multiple of the number of heads"));
        }
        Ok(config)
    }
}

/// Returns the number of classes from `num_labels`, or else the number of names in `id2label` [default: 2].
fn classes(raw: &Raw<'_>) -> Result<usize> {
    let labels = raw.object("id2label")?.map_or(2, |labels| labels.0.len());
    raw.count_or("num_labels", labels)
}

/// Returns the name of each class from `id2label`; an empty list if there is no `id2label`. Returns an error if a class
/// has no name.
fn labels(raw: &Raw<'_>, classes: usize) -> Result<Vec<String>> {
    let Some(named) = raw.object("id2label")? else { return Ok(Vec::new()) };
    let name = |class: usize| named.get(&class.to_string())?.as_str().map(str::to_owned);
    match (0..classes.min(named.0.len() + 1)).map(name).collect() {
        Some(names) => Ok(names),
        None => {
            let given = format!("{} names", named.0.len());
            Err(Error::config(
                "id2label",
                given,
                format!("a name for each of the classes 0 to {} is needed", classes - 1),
            ))
        }
    }
}

/// A BERT model.
#[derive(Clone, Debug)]
pub struct Bert {
    config: BertConfig,
    pub(crate) declared: Spec,
    /// The embedding tables of tokens, positions and segments, in this order.
    embeddings: [Tensor; 3],
    norm: Norm,
    blocks: Vec<Block>,
    pooler: Option<Linear>,
    head: Head,
}

#[derive(Clone, Debug)]
struct Block {
    projections: [Linear; 3],
    out: Linear,
    up: Linear,
    down: Linear,
    norms: [Norm; 2],
}

#[derive(Clone, Debug)]
enum Head {
    None,
    MaskedLm { transform: Linear, norm: Norm, decoder: Linear },
    Classifier(Linear),
    TokenClassifier(Linear),
}

impl Bert {
    /// Makes the model with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error if a tensor in `vb` is missing or has another shape.
    pub fn new(config: &BertConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        let BertConfig { hidden, intermediate, eps, .. } = *config;
        let bare = vb.contains_tensor("embeddings.word_embeddings.weight");
        let inner = if bare { vb.clone() } else { vb.pp("bert") };
        let linear = |inputs, outputs, vb: VarBuilder<'_>| Linear::load(inputs, outputs, true, &vb);
        let norm = |vb: VarBuilder<'_>| Norm::load(NormKind::Layer, hidden, eps, &vb);
        let table = |rows, name: &str| {
            let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
            inner.pp("embeddings").pp(name).get_with_hints((rows, hidden), "weight", normal)
        };
        let block = |i: usize| -> Result<Block> {
            let vb = inner.pp("encoder.layer").pp(i);
            let attention = vb.pp("attention");
            let part = |name| linear(hidden, hidden, attention.pp("self").pp(name));
            Ok(Block {
                projections: [part("query")?, part("key")?, part("value")?],
                out: linear(hidden, hidden, attention.pp("output.dense"))?,
                up: linear(hidden, intermediate, vb.pp("intermediate.dense"))?,
                down: linear(intermediate, hidden, vb.pp("output.dense"))?,
                norms: [norm(attention.pp("output.LayerNorm"))?, norm(vb.pp("output.LayerNorm"))?],
            })
        };
        let words = table(config.vocab, "word_embeddings")?;
        let has_pooler = inner.contains_tensor("pooler.dense.weight");
        let classifies = matches!(config.head, BertHead::Classifier { .. });
        let pooler =
            (has_pooler || classifies).then(|| linear(hidden, hidden, inner.pp("pooler.dense"))).transpose()?;
        Ok(Bert {
            declared: BertConfig::mask(),
            head: Head::new(config, &words, vb)?,
            embeddings: [
                words,
                table(config.positions, "position_embeddings")?,
                table(config.types, "token_type_embeddings")?,
            ],
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

    /// Stores packed copies of the weights of all layers, so that inputs of many tokens are computed faster
    /// ([`Linear::pack`]).
    pub(crate) fn pack(&mut self) -> Result<()> {
        for Block { projections: [q, k, v], out, up, down, .. } in &mut self.blocks {
            [q, k, v, out, up, down].into_iter().try_for_each(Linear::pack)?;
        }
        Ok(())
    }

    /// Returns the hidden states after the last layer, `[batch, length, hidden]`.
    pub(crate) fn hidden(&self, batch: &Batch, pass: &mut Pass<'_>) -> Result<Tensor> {
        let [words, positions, types] = &self.embeddings;
        let device = words.device();
        let zeros = vec![vec![0; batch.len()]; batch.rows()];
        let type_ids = super::batch::rows_tensor(batch.types().unwrap_or(&zeros), device)?;
        let position_ids = super::batch::rows_tensor(batch.positions(), device)?;
        let places = (embed(words, &batch.ids_tensor(device)?)? + embed(types, &type_ids)?)?;
        let x = self.norm.forward(&(places + embed(positions, &position_ids)?)?)?;
        let (dropout, attention_dropout) = self.config.dropout;
        let mode = pass.mode;
        let mut x = mode.at(0).dropout(&x, dropout)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let mode = mode.at(1 + layer as u64);
            let part = |linear: &Linear| split_heads(&linear.forward(&x)?, self.config.heads);
            let [q, k, v] = &block.projections;
            let (q, k, v) = (part(q)?, part(k)?, part(v)?);
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

    /// Returns the pooled state of each text, `[texts, hidden]`, which is computed from the state of its first token;
    /// `None` if the model has no pooler.
    pub(crate) fn pooled(&self, hidden: &Tensor, batch: &Batch) -> Result<Option<Tensor>> {
        let Some(pooler) = &self.pooler else { return Ok(None) };
        Ok(Some(pooler.forward(&rows_at(hidden, &batch.first_tokens())?)?.tanh()?))
    }

    /// Returns the logits of the head, which reads the hidden states `hidden` or the pooled states `pooled`; `None` if
    /// the model has no head.
    pub(crate) fn logits(&self, hidden: &Tensor, pooled: Option<&Tensor>) -> Result<Option<Tensor>> {
        match &self.head {
            Head::None => Ok(None),
            Head::Classifier(linear) => pooled.map(|pooled| linear.forward(pooled)).transpose(),
            Head::TokenClassifier(linear) => Ok(Some(linear.forward(hidden)?)),
            Head::MaskedLm { transform, norm, decoder } => {
                let inner = norm.forward(&transform.forward_then(hidden, self.config.activation)?)?;
                Ok(Some(decoder.forward(&inner)?))
            }
        }
    }
}

impl Head {
    fn new(config: &BertConfig, words: &Tensor, vb: &VarBuilder<'_>) -> Result<Self> {
        let BertConfig { hidden, vocab, eps, .. } = *config;
        Ok(match config.head {
            BertHead::None => Head::None,
            BertHead::Classifier { classes } => {
                Head::Classifier(Linear::load(hidden, classes, true, &vb.pp("classifier"))?)
            }
            BertHead::TokenClassifier { classes } => {
                Head::TokenClassifier(Linear::load(hidden, classes, true, &vb.pp("classifier"))?)
            }
            BertHead::MaskedLm => {
                let vb = vb.pp("cls.predictions");
                // The output layer is the embedding, unless the checkpoint has a separate one.
                let own = vb.pp("decoder");
                let bias = if own.contains_tensor("bias") { &own } else { &vb };
                let bias = bias.get_with_hints(vocab, "bias", Init::Const(0.0))?;
                let weight = match own.contains_tensor("weight") {
                    true => own.get((vocab, hidden), "weight")?,
                    false => words.clone(),
                };
                Head::MaskedLm {
                    transform: Linear::load(hidden, hidden, true, &vb.pp("transform.dense"))?,
                    norm: Norm::load(NormKind::Layer, hidden, eps, &vb.pp("transform.LayerNorm"))?,
                    decoder: Linear::new(weight, Some(bias)),
                }
            }
        })
    }
}
