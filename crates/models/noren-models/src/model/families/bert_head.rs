//! [`BertHead`]: the heads of BERT, RoBERTa and DistilBERT with their parameters.

use super::decoder::rows_at;
use crate::error::Result;
use crate::model::batch::Batch;
use crate::model::configs::bert::{BertConfig, BertFamily};
use crate::model::configs::classes::Head;
use crate::nn::{Activation, Linear, Norm, NormKind};
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use noren::Dtype;

/// A head with its parameters.
#[derive(Clone, Debug)]
pub(crate) enum BertHead {
    None,
    /// Predicts the token at each position.
    MaskedLm {
        transform: Linear,
        activation: Activation,
        norm: Norm,
        decoder: Linear,
    },
    /// Predicts the classes of a text from its pooled state (BERT).
    OfPooled(Linear),
    /// Predicts the classes of a text from the state of its first token, with a hidden layer (RoBERTa, DistilBERT).
    OfFirst {
        dense: Linear,
        activation: Activation,
        out: Linear,
    },
    /// Predicts a class for each token.
    OfTokens(Linear),
}

impl BertHead {
    /// Makes the head that the configuration names, with parameters from `vb`. `words` is the embedding table of
    /// tokens.
    pub(crate) fn new(config: &BertConfig, words: &Tensor, vb: &VarBuilder<'_>) -> Result<Self> {
        let hidden = config.hidden;
        let dense = |name: &str| Linear::load(hidden, hidden, true, &vb.pp(name));
        match &config.head {
            Head::None => Ok(BertHead::None),
            Head::LanguageModel => Self::masked_lm(config, words, vb),
            Head::TokenClassifier(classes) => {
                let vb = vb.pp("classifier");
                classes.check(&vb, hidden)?;
                Ok(BertHead::OfTokens(Linear::load(hidden, classes.count(), true, &vb)?))
            }
            Head::TextClassifier(classes) => {
                let roberta = config.family == BertFamily::Roberta;
                let last = vb.pp(if roberta { "classifier.out_proj" } else { "classifier" });
                classes.check(&last, hidden)?;
                let out = Linear::load(hidden, classes.count(), true, &last)?;
                Ok(match config.family {
                    BertFamily::Bert => BertHead::OfPooled(out),
                    BertFamily::Roberta => {
                        BertHead::OfFirst { dense: dense("classifier.dense")?, activation: Activation::Tanh, out }
                    }
                    BertFamily::DistilBert => {
                        BertHead::OfFirst { dense: dense("pre_classifier")?, activation: Activation::Relu, out }
                    }
                })
            }
        }
    }

    fn masked_lm(config: &BertConfig, words: &Tensor, vb: &VarBuilder<'_>) -> Result<Self> {
        let BertConfig { hidden, vocab, eps, activation, .. } = *config;
        // The names of the head, of its hidden layer, norm and output layer, and the activation.
        let (vb, dense, norm, decoder, activation) = match config.family {
            BertFamily::Bert => {
                (vb.pp("cls.predictions"), "transform.dense", "transform.LayerNorm", "decoder", activation)
            }
            BertFamily::Roberta => (vb.pp("lm_head"), "dense", "layer_norm", "decoder", Activation::Gelu),
            BertFamily::DistilBert => {
                (vb.clone(), "vocab_transform", "vocab_layer_norm", "vocab_projector", activation)
            }
        };
        // The weight of the output layer is the embedding table, unless the checkpoint has a separate weight.
        let own = vb.pp(decoder);
        let bias = if own.contains_tensor("bias") || config.family == BertFamily::DistilBert { &own } else { &vb };
        let bias = bias.get_with_hints(vocab, "bias", Init::Const(0.0))?;
        let weight = match own.contains_tensor("weight") {
            true => own.get((vocab, hidden), "weight")?,
            false => words.clone(),
        };
        Ok(BertHead::MaskedLm {
            transform: Linear::load(hidden, hidden, true, &vb.pp(dense))?,
            activation,
            norm: Norm::load(NormKind::Layer, hidden, eps, &vb.pp(norm))?,
            decoder: Linear::new(weight, Some(bias)),
        })
    }

    /// Packs the weights of the head ([`Linear::pack`]).
    pub(crate) fn pack(&mut self, dtype: Dtype) -> Result<()> {
        match self {
            BertHead::None => Ok(()),
            BertHead::OfPooled(linear) | BertHead::OfTokens(linear) => linear.pack(dtype),
            BertHead::OfFirst { dense: first, out: second, .. }
            | BertHead::MaskedLm { transform: first, decoder: second, .. } => {
                first.pack(dtype)?;
                second.pack(dtype)
            }
        }
    }

    /// Returns whether the head reads the pooled state of a text.
    pub(crate) fn reads_pooled(&self) -> bool {
        matches!(self, BertHead::OfPooled(_))
    }

    /// Returns the logits, which are computed from the hidden states `hidden` `[batch, length, hidden]` or from the
    /// pooled states `pooled` `[texts, hidden]`; `None` if there is no head.
    pub(crate) fn logits(&self, hidden: &Tensor, pooled: Option<&Tensor>, batch: &Batch) -> Result<Option<Tensor>> {
        match self {
            BertHead::None => Ok(None),
            BertHead::OfPooled(linear) => pooled.map(|pooled| linear.forward(pooled)).transpose(),
            BertHead::OfTokens(linear) => Ok(Some(linear.forward(hidden)?)),
            BertHead::OfFirst { dense, activation, out } => {
                let first = rows_at(hidden, &batch.first_tokens())?;
                Ok(Some(out.forward(&dense.forward_then(&first, *activation)?)?))
            }
            BertHead::MaskedLm { transform, activation, norm, decoder } => {
                let inner = norm.forward(&transform.forward_then(hidden, *activation)?)?;
                Ok(Some(decoder.forward(&inner)?))
            }
        }
    }
}
