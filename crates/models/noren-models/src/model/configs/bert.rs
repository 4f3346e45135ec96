//! [`BertConfig`]: the configuration of BERT, RoBERTa and DistilBERT.

use super::classes::Head;
use super::raw::Raw;
use crate::error::{Error, Result};
use crate::nn::Activation;
use noren::{Spec, atoms};

/// The family of an encoder with learned positions. Families differ in the names of parameters, in positions, in
/// segments, and in the output heads (`Head`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BertFamily {
    /// BERT.
    Bert,
    /// RoBERTa, XLM-RoBERTa and CamemBERT, which have the same layers. The first token of a text has the position
    /// `padding + 1`.
    Roberta,
    /// DistilBERT, which has no segments and no pooler.
    DistilBert,
}

/// The configuration of a BERT, RoBERTa or DistilBERT.
#[derive(Clone, PartialEq, Debug)]
pub struct BertConfig {
    /// The family of the model: BERT, RoBERTa or DistilBERT.
    pub family: BertFamily,
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
    /// Number of rows of the position table. [`BertConfig::most_tokens`] is the maximum number of tokens of a text.
    pub positions: usize,
    /// Number of different segments (`token_type_ids`); 0 for a DistilBERT.
    pub types: usize,
    /// The id of the padding token. In a RoBERTa, the first token of a text has the position `padding + 1`.
    pub padding: u32,
    /// The number that norms add to the variance to prevent a division by 0.
    pub eps: f64,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// Probabilities of dropout in training, as (probability for embeddings and for the results of attention and
    /// feed-forward parts, probability for attention weights).
    pub dropout: (f32, f32),
    /// The output head: the layers after the last transformer layer, which predict tokens or classes.
    pub head: Head,
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
            family: BertFamily::Bert,
            vocab,
            hidden,
            layers,
            heads,
            intermediate: 4 * hidden,
            positions,
            types: 2,
            padding: 0,
            eps: 1e-12,
            activation: Activation::Gelu,
            dropout: (0.0, 0.0),
            head: Head::LanguageModel,
        }
    }

    /// Returns the maximum number of tokens of a text. For a RoBERTa, this is the number of rows of the position table
    /// minus `padding + 1`.
    pub fn most_tokens(&self) -> usize {
        self.positions.saturating_sub(self.first_position() as usize)
    }

    /// Returns the position of the first token of a text in the position table.
    pub(crate) fn first_position(&self) -> u32 {
        if self.family == BertFamily::Roberta { self.padding.saturating_add(1) } else { 0 }
    }

    /// Reads the configuration of a model whose `model_type` is `kind`.
    pub(crate) fn read(raw: &Raw<'_>, kind: &str, architecture: Option<&str>) -> Result<Self> {
        if raw.text_or("position_embedding_type", "absolute")? != "absolute" {
            let given = raw.text("position_embedding_type")?;
            return Err(Error::config("position_embedding_type", given, "only the value `absolute` is supported"));
        }
        for key in ["is_decoder", "add_cross_attention"] {
            if raw.flag_or(key, false)? {
                return Err(Error::config(key, true, "this model_type is supported only as an encoder"));
            }
        }
        let config = if kind == "distilbert" {
            Self::read_distilbert(raw, architecture)?
        } else {
            Self::read_bert(raw, kind, architecture)?
        };
        if config.layers > 4096 || !config.hidden.is_multiple_of(config.heads) {
            let given = format!("{} layers of {} heads with a width of {}", config.layers, config.heads, config.hidden);
            return Err(Error::config(
                "the size",
                given,
                "give at most 4096 layers and a width that is a multiple of the number of heads",
            ));
        }
        if config.most_tokens() == 0 {
            let given = config.positions;
            let expected = format!("give a number above {}, the position of the first token", config.first_position());
            return Err(Error::config("max_position_embeddings", given, expected));
        }
        Ok(config)
    }

    fn read_bert(raw: &Raw<'_>, kind: &str, architecture: Option<&str>) -> Result<Self> {
        let (family, name) = match kind {
            "roberta" => (BertFamily::Roberta, "Roberta"),
            "xlm-roberta" => (BertFamily::Roberta, "XLMRoberta"),
            "camembert" => (BertFamily::Roberta, "Camembert"),
            _ => (BertFamily::Bert, "Bert"),
        };
        let plain = Self::new(
            raw.count("vocab_size")?,
            raw.count("hidden_size")?,
            raw.count("num_hidden_layers")?,
            raw.count("num_attention_heads")?,
            raw.count("max_position_embeddings")?,
        );
        Ok(BertConfig {
            family,
            intermediate: raw.count("intermediate_size")?,
            types: raw.count_or("type_vocab_size", 2)?,
            padding: padding(raw, if family == BertFamily::Roberta { 1 } else { 0 })?,
            eps: raw.real_or("layer_norm_eps", 1e-12)?,
            activation: raw.text_or("hidden_act", "gelu")?.parse()?,
            dropout: (
                raw.real_or("hidden_dropout_prob", 0.1)? as f32,
                raw.real_or("attention_probs_dropout_prob", 0.1)? as f32,
            ),
            head: Head::read(raw, name, architecture)?,
            ..plain
        })
    }

    fn read_distilbert(raw: &Raw<'_>, architecture: Option<&str>) -> Result<Self> {
        let plain = Self::new(
            raw.count("vocab_size")?,
            raw.count("dim")?,
            raw.count("n_layers")?,
            raw.count("n_heads")?,
            raw.count_or("max_position_embeddings", 512)?,
        );
        Ok(BertConfig {
            family: BertFamily::DistilBert,
            intermediate: raw.count("hidden_dim")?,
            types: 0,
            padding: padding(raw, 0)?,
            activation: raw.text_or("activation", "gelu")?.parse()?,
            dropout: (raw.real_or("dropout", 0.1)? as f32, raw.real_or("attention_dropout", 0.1)? as f32),
            head: Head::read(raw, "DistilBert", architecture)?,
            ..plain
        })
    }
}

/// Returns the id of the padding token [default: `default`].
fn padding(raw: &Raw<'_>, default: u32) -> Result<u32> {
    let Some(value) = raw.get("pad_token_id") else { return Ok(default) };
    match value.as_u64().and_then(|id| u32::try_from(id).ok()) {
        Some(id) => Ok(id),
        None => Err(Error::config("pad_token_id", value, "a token id, a whole number from 0, is needed")),
    }
}
