//! [`Decoder`]: one type for GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 2 and 3, and gpt-oss.

use super::parts::{Attention, FeedForward, Packing, embed, without_head};
use crate::error::{Error, Result};
use crate::model::batch::Batch;
use crate::model::configs::classes::{Classes, Head};
use crate::model::configs::decoder::{DecoderConfig, Names};
use crate::model::configs::rope::{Rope, Rotary};
use crate::model::pass::Pass;
use crate::nn::{Linear, Mode, Norm};
use crate::stack::Stack;
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use noren::linear::Weight;
use noren::{Dtype, Spec};

/// A decoder: a causal language model, or a classifier whose tokens read only earlier tokens.
#[derive(Clone, Debug)]
pub struct Decoder {
    config: DecoderConfig,
    pub(crate) declared: Spec,
    embeddings: Tensor,
    learned_positions: Option<Tensor>,
    blocks: Vec<Block>,
    norm: Norm,
    head: Option<Linear>,
}

/// One layer of a decoder: attention and a feed-forward part, with a norm before each. In some families of models, each
/// also has a norm after it.
#[derive(Clone, Debug)]
struct Block {
    norms: [Norm; 2],
    post_norms: Option<[Norm; 2]>,
    attention: Attention,
    feedforward: FeedForward,
}

/// The names of a decoder's parameters in a checkpoint, except the parameters inside attention and inside the
/// feed-forward part.
struct Outer {
    root: &'static str,
    embeddings: &'static str,
    layers: &'static str,
    attention: &'static str,
    norm: &'static str,
    /// The names of four norms, in this order: before attention, after attention, before the feed-forward part, after
    /// the feed-forward part.
    norms: [&'static str; 4],
}

impl Names {
    fn outer(self, post_norms: bool) -> Outer {
        match self {
            Names::Gpt2 => Outer {
                root: "transformer",
                embeddings: "wte",
                layers: "h",
                attention: "attn",
                norm: "ln_f",
                norms: ["ln_1", "ln_1_post", "ln_2", "ln_2_post"],
            },
            Names::Llama => Outer {
                root: "model",
                embeddings: "embed_tokens",
                layers: "layers",
                attention: "self_attn",
                norm: "norm",
                norms: match post_norms {
                    true => [
                        "input_layernorm",
                        "post_attention_layernorm",
                        "pre_feedforward_layernorm",
                        "post_feedforward_layernorm",
                    ],
                    // Llama uses this name for the norm before the feed-forward part.
                    false => ["input_layernorm", "", "post_attention_layernorm", ""],
                },
            },
        }
    }
}

impl Block {
    /// Packs the weights of the linear layers ([`Linear::pack`]).
    fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.attention.pack(dtype)?;
        self.feedforward.pack(dtype)
    }
}

impl Decoder {
    /// Makes the model with parameters from `vb`. If `vb` belongs to a `VarMap`, missing parameters are created.
    ///
    /// # Errors
    /// Returns an error for an inconsistent configuration, and if a tensor in `vb` is missing or has another shape.
    pub fn new(config: &DecoderConfig, vb: &VarBuilder<'_>) -> Result<Self> {
        Self::build(config, vb, None)
    }

    /// Makes the model as [`new`](Self::new) does, and packs weights as `packing` defines; `None`: packs nothing.
    pub(crate) fn build(config: &DecoderConfig, vb: &VarBuilder<'_>, packing: Option<Packing>) -> Result<Self> {
        config.check()?;
        let names = config.names.outer(config.post_norms);
        let inner = without_head(vb, names.root, &format!("{}.weight", names.embeddings));
        let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
        let table = |rows, name: &str| inner.pp(name).get_with_hints((rows, config.hidden), "weight", normal);
        let norm = |vb: VarBuilder<'_>| Norm::load(config.norm, config.hidden, config.eps, &vb);
        let block = |layer: usize| -> Result<Block> {
            let vb = inner.pp(names.layers).pp(layer);
            let [before, after, before_mlp, after_mlp] = names.norms.map(|name| vb.pp(name));
            let post_norms = if config.post_norms { Some([norm(after)?, norm(after_mlp)?]) } else { None };
            let mut block = Block {
                norms: [norm(before)?, norm(before_mlp)?],
                post_norms,
                attention: Attention::new(config, layer, &vb.pp(names.attention))?,
                feedforward: FeedForward::new(config, &vb.pp("mlp"))?,
            };
            if let Some(Packing { dtype, .. }) = packing {
                block.pack(dtype)?;
            }
            Ok(block)
        };
        let embeddings = table(config.vocab, names.embeddings)?;
        let learned = config.rope.is_none().then(|| table(config.positions, "wpe")).transpose()?;
        let classes = |of: &Classes, bias: bool| {
            let vb = vb.pp("score");
            of.check(&vb, config.hidden)?;
            Linear::load(config.hidden, of.count(), bias, &vb)
        };
        let head = match &config.head {
            Head::None => None,
            Head::LanguageModel if config.tied => Some(Linear::new(embeddings.clone(), None)),
            Head::LanguageModel => Some(Linear::load(config.hidden, config.vocab, false, &vb.pp("lm_head"))?),
            Head::TextClassifier(of) => Some(classes(of, false)?),
            Head::TokenClassifier(of) => Some(classes(of, config.classifier_bias)?),
        };
        let mut decoder = Decoder {
            declared: config.mask(),
            embeddings,
            learned_positions: learned,
            blocks: Vec::with_capacity(config.layers),
            norm: norm(inner.pp(names.norm))?,
            head,
            config: config.clone(),
        };
        if let Some(Packing { dtype, all: true }) = packing {
            decoder.pack_head(dtype)?;
        }
        for layer in 0..config.layers {
            decoder.blocks.push(block(layer)?);
        }
        Ok(decoder)
    }

    /// Packs the weights of the linear layers ([`Linear::pack`]), including the head.
    pub(crate) fn pack(&mut self, dtype: Dtype) -> Result<()> {
        self.blocks.iter_mut().try_for_each(|block| block.pack(dtype))?;
        self.pack_head(dtype)
    }

    /// Packs the weight of the head.
    fn pack_head(&mut self, dtype: Dtype) -> Result<()> {
        self.head.iter_mut().try_for_each(|head| head.pack(dtype))
    }

    /// Returns a packed weight of the first layer, or `None` if the weights are not packed.
    pub(crate) fn packed_weight(&self) -> Option<&Weight> {
        self.blocks.first()?.attention.packed_weight()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Returns the device on which the parameters are stored.
    pub(crate) fn device(&self) -> &candle_core::Device {
        self.embeddings.device()
    }

    /// Returns the number type of the parameters.
    pub(crate) fn dtype(&self) -> candle_core::DType {
        self.embeddings.dtype()
    }

    /// Returns the hidden states after the last norm, `[batch, length, hidden]`. `ids` is `[batch, length]`.
    /// `positions` holds the position of each token, with one list for each batch row.
    pub(crate) fn hidden(&self, ids: &Tensor, positions: &[Vec<u32>], pass: &mut Pass<'_>) -> Result<Tensor> {
        let config = &self.config;
        let mut x = embed(&self.embeddings, ids)?;
        if let Some(scale) = config.embedding_scale {
            x = (x * scale)?;
        }
        let rotary = |rope: &Rope| rope.rotary(positions, config.head_dim, x.dtype(), x.device());
        let everywhere = config.rope.as_ref().map(rotary).transpose()?;
        let windowed = config.window_rope.as_ref().map(rotary).transpose()?;
        if let Some(table) = &self.learned_positions {
            x = (x + embed(table, &crate::model::batch::rows_tensor(positions, ids.device())?)?)?;
        }
        let mode = pass.mode;
        x = mode.at(0).dropout(&x, config.dropout.0)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let rotary = windowed.as_ref().filter(|_| config.windows[layer].is_some()).or(everywhere.as_ref());
            x = block.forward(&x, layer, rotary, config.dropout, mode.at(1 + layer as u64), pass)?;
        }
        self.norm.forward(&x)
    }

    /// Returns the logits of the next token, `[..., vocab]`, for the hidden states `hidden` `[..., hidden]`.
    ///
    /// # Errors
    /// Returns an error for a model without an output layer, and for states with another number of values.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let head = self.language_model_head()?;
        let logits = head.forward(hidden)?;
        Ok(match self.config.logit_softcap {
            Some(cap) => ((logits / cap)?.tanh()? * cap)?,
            None => logits,
        })
    }
}

impl Decoder {
    /// Returns the output layer of a language model, or an error for a model without one.
    pub(crate) fn language_model_head(&self) -> Result<&Linear> {
        self.head.as_ref().filter(|_| self.config.head == Head::LanguageModel).ok_or_else(|| {
            let expected =
                "a causal language model is needed: a model whose architectures end in ForCausalLM or LMHeadModel";
            Error::input("the model", "no language model", expected)
        })
    }

    /// Returns the logits that the head computes from the hidden states `hidden` `[batch, length, hidden]`; `None` if
    /// the model has no head. A language model has logits of the next token at each position, and a token classifier
    /// has logits of the classes of each token. A text classifier has logits of the classes of each text, computed from
    /// the state of its last token.
    pub(crate) fn head_logits(&self, hidden: &Tensor, batch: &Batch) -> Result<Option<Tensor>> {
        let Some(head) = &self.head else { return Ok(None) };
        Ok(Some(match self.config.head {
            Head::TextClassifier(_) => head.forward(&rows_at(hidden, &batch.last_tokens(self.config.padding))?)?,
            Head::TokenClassifier(_) => head.forward(hidden)?,
            Head::LanguageModel | Head::None => self.logits(hidden)?,
        }))
    }
}

impl Block {
    fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        rotary: Option<&Rotary>,
        (dropout, attention_dropout): (f32, f32),
        mode: Mode,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let post = |i: usize, inner: Tensor| match &self.post_norms {
            Some(norms) => norms[i].forward(&inner),
            None => Ok(inner),
        };
        let at = (Stack::Decoder, layer);
        let inner = self.attention.forward(&self.norms[0].forward(x)?, at, rotary, attention_dropout, pass)?;
        let x = (x + mode.at(0).dropout(&post(0, inner)?, dropout)?)?;
        let inner = self.feedforward.forward(&self.norms[1].forward(&x)?)?;
        Ok((&x + mode.at(1).dropout(&post(1, inner)?, dropout)?)?)
    }
}

/// Returns the hidden states of the tokens `at`, each given as (batch row, index of the token). `hidden` is
/// `[batch, length, hidden]`, and the result `[tokens, hidden]`.
pub(crate) fn rows_at(hidden: &Tensor, at: &[(usize, usize)]) -> Result<Tensor> {
    let (_, len, width) = hidden.dims3()?;
    let index: Vec<u32> = at.iter().map(|(row, i)| (row * len + i) as u32).collect();
    let index = Tensor::new(index, hidden.device())?;
    Ok(hidden.reshape(((), width))?.index_select(&index, 0)?)
}

/// Returns the mean of the hidden states of the tokens of each text, `[texts, hidden]`. `hidden` is
/// `[batch, length, hidden]`. `texts` holds the tokens of each text as (batch row, index of the token). The mean over no
/// token is 0. A text has the same bits in every batch, because its states are added in the order of its tokens.
pub(crate) fn mean_at(hidden: &Tensor, texts: &[Vec<(usize, usize)>]) -> Result<Tensor> {
    let width = hidden.dim(2)?;
    let mean = |text: &Vec<(usize, usize)>| match text.len() {
        0 => Ok(Tensor::zeros(width, hidden.dtype(), hidden.device())?),
        count => Ok((rows_at(hidden, text)?.sum(0)? / count as f64)?),
    };
    Ok(Tensor::stack(&texts.iter().map(mean).collect::<Result<Vec<_>>>()?, 0)?)
}
