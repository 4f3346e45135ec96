//! Models that load checkpoints of Hugging Face: the encoders [`Bert`] (also RoBERTa and DistilBERT) and
//! [`ModernBert`], the causal [`Decoder`], and [`T5`].
//!
//! A model *declares* its masks as expressions. These expressions can be printed, drawn, compared and changed.
//!
//! ```
//! use candle_core::{DType, Device};
//! use candle_nn::{VarBuilder, VarMap};
//! use noren_models::model::{Batch, Config, DecoderConfig, Model};
//! use noren::Side;
//!
//! let mut config = DecoderConfig::llama(100, 32, 4, 4, 64);
//! config.windows = vec![Some(8), None, Some(8), None];
//! let vars = VarMap::new();
//! let model = Model::new(&Config::Decoder(config), &VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
//! assert_eq!(model.masks()[0].spec.to_string(), "layers(every 2: sliding(8), else: causal)");
//!
//! let batch = Batch::padded(&[vec![5, 6, 7], vec![8]], 0, Side::Left)?;
//! let output = model.forward(&batch)?;
//! assert_eq!(output.logits.unwrap().dims(), [2, 3, 100]);
//! # Ok::<(), noren_models::Error>(())
//! ```

mod batch;
pub(crate) mod cache;
pub(crate) mod configs;
mod families;
mod files;
mod load;
mod pass;

pub use crate::stack::Stack;
pub use batch::Batch;
pub use configs::bert::{BertConfig, BertFamily};
pub use configs::classes::{Classes, Head, Problem, softmax};
pub use configs::decoder::{DecoderConfig, Experts, Names};
pub use configs::modernbert::{ClassifierPooling, ModernBertBiases, ModernBertConfig};
pub use configs::rope::{Rope, RopeScaling};
pub use families::bert::Bert;
pub use families::decoder::Decoder;
pub use families::modernbert::ModernBert;
pub use families::t5::{T5, T5Config};
pub use pass::{Call, Record, Trace};

pub(crate) use families::decoder::rows_at;
pub(crate) use families::parts::Packing;
pub(crate) use pass::{Pass, Planner, on_pool};

use crate::error::{Error, Result};
use candle_core::Tensor;
use noren::linear::Weight;
use noren::noren_mask::Spec;
use noren::{Dtype, Mask, Shape};

/// The configuration of a model.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant)] // a program has only one
pub enum Config {
    /// The configuration of a decoder, usually a causal language model.
    Decoder(DecoderConfig),
    /// The configuration of a BERT, RoBERTa or DistilBERT, which are encoders.
    Bert(BertConfig),
    /// The configuration of a ModernBERT, which is an encoder.
    ModernBert(ModernBertConfig),
    /// The configuration of a T5, which has an encoder and a decoder.
    T5(T5Config),
}

impl Config {
    /// Returns the masks that a model of this configuration declares, without making the model.
    pub fn masks(&self) -> Vec<Declared> {
        let declared = |stack, layers, heads, spec| Declared { stack, layers, heads, spec };
        match self {
            Config::Decoder(config) => {
                let DecoderConfig { layers, heads, kv_heads, .. } = *config;
                vec![declared(Stack::Decoder, layers, [heads, kv_heads], config.mask())]
            }
            Config::Bert(BertConfig { layers, heads, .. }) => {
                vec![declared(Stack::Encoder, *layers, [*heads; 2], BertConfig::mask())]
            }
            Config::ModernBert(config) => {
                vec![declared(Stack::Encoder, config.windows.len(), [config.heads; 2], config.mask())]
            }
            Config::T5(T5Config { layers: [encoder, decoder], heads, .. }) => {
                let [of_encoder, of_decoder, cross] = T5Config::masks();
                vec![
                    declared(Stack::Encoder, *encoder, [*heads; 2], of_encoder),
                    declared(Stack::Decoder, *decoder, [*heads; 2], of_decoder),
                    declared(Stack::Cross, *decoder, [*heads; 2], cross),
                ]
            }
        }
    }

    /// Returns the tokens that end a text, as the configuration defines them; an empty list for an encoder.
    pub fn stop(&self) -> &[u32] {
        match self {
            Config::Decoder(config) => &config.stop,
            Config::T5(config) => &config.stop,
            Config::Bert(_) | Config::ModernBert(_) => &[],
        }
    }

    /// Returns the head of the model. The head of a T5 predicts tokens.
    pub fn head(&self) -> &Head {
        match self {
            Config::Decoder(config) => &config.head,
            Config::Bert(config) => &config.head,
            Config::ModernBert(config) => &config.head,
            Config::T5(_) => &Head::LanguageModel,
        }
    }
}

/// A model of any supported family.
#[derive(Clone, Debug)]
pub enum Model {
    /// A decoder, usually a causal language model.
    Decoder(Decoder),
    /// A BERT, RoBERTa or DistilBERT, which are encoders.
    Bert(Bert),
    /// A ModernBERT, which is an encoder.
    ModernBert(ModernBert),
    /// A T5, which has an encoder and a decoder.
    T5(T5),
}

/// The mask that a model declares for one stack, such as the decoder's self-attention in all layers.
#[derive(Clone, PartialEq, Debug)]
pub struct Declared {
    /// The stack that uses the mask: encoder, decoder, or a decoder's attention over an encoder.
    pub stack: Stack,
    /// Number of layers of the stack.
    pub layers: usize,
    /// Numbers of query heads and of key-value heads, in this order.
    pub heads: [usize; 2],
    /// The mask and the score modifiers, which may differ by layer. A call also hides padding, which this mask does not
    /// contain.
    pub spec: Spec,
}

/// The result of a call of a model.
#[derive(Clone, Debug)]
pub struct Output {
    /// The hidden states after the last layer and its norm, `[batch, length, hidden]`; for T5, those of the decoder.
    pub last_hidden_state: Tensor,
    /// The logits of each token, `[batch, length, vocab]` or `[batch, length, classes]`, or of each text,
    /// `[texts, classes]`; `None` if the model has no head.
    pub logits: Option<Tensor>,
    /// The pooled states of BERT and RoBERTa, one for each text, `[texts, hidden]`; `None` if the model has no pooler.
    pub pooler_output: Option<Tensor>,
}

impl Model {
    /// Returns a copy of the configuration.
    pub fn config(&self) -> Config {
        match self {
            Model::Decoder(model) => Config::Decoder(model.config().clone()),
            Model::Bert(model) => Config::Bert(model.config().clone()),
            Model::ModernBert(model) => Config::ModernBert(model.config().clone()),
            Model::T5(model) => Config::T5(model.config().clone()),
        }
    }

    /// Returns the number of tokens of the vocabulary.
    pub fn vocab(&self) -> usize {
        match self {
            Model::Decoder(model) => model.config().vocab,
            Model::Bert(model) => model.config().vocab,
            Model::ModernBert(model) => model.config().vocab,
            Model::T5(model) => model.config().vocab,
        }
    }

    /// Returns the maximum number of tokens of a text; `None` for no maximum.
    pub fn positions(&self) -> Option<usize> {
        match self {
            Model::Decoder(model) => Some(model.config().positions),
            Model::Bert(model) => Some(model.config().most_tokens()),
            Model::ModernBert(model) => Some(model.config().positions),
            Model::T5(_) => None,
        }
    }

    /// Replaces the weights of the linear layers by packed weights of type `dtype`: `f32` or `bf16`
    /// ([`Linear::pack`](crate::nn::Linear::pack)). The model is then faster, above all for few tokens, and has no
    /// gradients. The router of a mixture of experts is always packed as `f32`, because rounding could change which experts
    /// it chooses. A head that shares its weight with the embeddings gets a packed copy, which takes `vocab * hidden`
    /// numbers.
    ///
    /// # Errors
    /// Returns the errors of [`Linear::pack`](crate::nn::Linear::pack), such as for a model that was not loaded in `f32`,
    /// or whose parameters are variables. Some weights may be packed then.
    pub fn pack(&mut self, dtype: Dtype) -> Result<()> {
        match self {
            Model::Decoder(model) => model.pack(dtype),
            Model::Bert(model) => model.pack(dtype),
            Model::ModernBert(model) => model.pack(dtype),
            Model::T5(model) => model.pack(dtype),
        }
    }

    /// Returns a packed weight of the first layer, or `None` if the weights are not packed ([`pack`](Self::pack)). All packed
    /// weights of a model are stored for its processor path and have its type, except those of routers of experts.
    pub fn packed_weight(&self) -> Option<&Weight> {
        match self {
            Model::Decoder(model) => model.packed_weight(),
            Model::Bert(model) => model.packed_weight(),
            Model::ModernBert(model) => model.packed_weight(),
            Model::T5(model) => model.packed_weight(),
        }
    }

    /// Returns the masks that the model declares.
    pub fn masks(&self) -> Vec<Declared> {
        let specs = match self {
            Model::Decoder(model) => std::slice::from_ref(&model.declared),
            Model::Bert(model) => std::slice::from_ref(&model.declared),
            Model::ModernBert(model) => std::slice::from_ref(&model.declared),
            Model::T5(model) => &model.declared,
        };
        let declared = self.config().masks().into_iter().zip(specs);
        declared.map(|(declared, spec)| Declared { spec: spec.clone(), ..declared }).collect()
    }

    /// Returns the tokens from whose states the classes of each text are computed, as (row, index in the row): the first
    /// token, the last one, or all tokens over which the mean is taken. Returns `None` if the model does not classify
    /// texts. A program that hides tokens must not publish the classes of a text if this list has a hidden token.
    pub fn class_tokens(&self, batch: &Batch) -> Option<Vec<Vec<(usize, usize)>>> {
        if !matches!(self.config().head(), Head::TextClassifier(_)) {
            return None;
        }
        let one = |tokens: Vec<(usize, usize)>| tokens.into_iter().map(|token| vec![token]).collect();
        Some(match self {
            Model::Decoder(model) => one(batch.last_tokens(model.config().padding)),
            Model::ModernBert(model) if model.config().pooling == ClassifierPooling::Mean => batch.pooled_tokens(),
            _ => one(batch.first_tokens()),
        })
    }

    /// Replaces the mask of `stack` (encoder, decoder, or a decoder's attention over an encoder). The score modifiers
    /// of the stack do not change.
    ///
    /// # Errors
    /// Returns an error if the model has no such stack.
    pub fn set_mask(&mut self, stack: Stack, mask: Mask) -> Result<()> {
        let spec = match (self, stack) {
            (Model::Decoder(model), Stack::Decoder) => &mut model.declared,
            (Model::Bert(model), Stack::Encoder) => &mut model.declared,
            (Model::ModernBert(model), Stack::Encoder) => &mut model.declared,
            (Model::T5(model), stack) => &mut model.declared[stack as usize],
            _ => {
                return Err(Error::input(
                    "the given stack",
                    stack.name(),
                    "the model has no stack with this name: give a stack that `masks` lists",
                ));
            }
        };
        spec.mask = mask;
        Ok(())
    }

    /// Returns the model's output for a batch. The decoder of a T5 reads only its start token.
    ///
    /// # Errors
    /// Returns an error for tokens outside the vocabulary, texts longer than the maximum number of positions, and masks
    /// or facts that do not fit the batch.
    pub fn forward(&self, batch: &Batch) -> Result<Output> {
        self.forward_with(batch, None, Call::default())
    }

    /// Returns the model's output as [`forward`](Self::forward) does. `decoder` holds the tokens that a T5's decoder
    /// reads [default: the start token], and `call` the options of the call.
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward), and an error if `decoder` is given for a model other than a
    /// T5.
    pub fn forward_with(&self, batch: &Batch, decoder: Option<&Batch>, call: Call<'_>) -> Result<Output> {
        call.on_pool(|call| self.forward_on_this_thread(batch, decoder, call))
    }

    /// The computation of [`forward_with`](Self::forward_with), on the current thread.
    fn forward_on_this_thread(&self, batch: &Batch, decoder: Option<&Batch>, call: Call<'_>) -> Result<Output> {
        let (last_hidden_state, pooler_output, logits) = match self {
            Model::T5(model) => {
                self.check(batch)?;
                let start = || Batch::new(vec![vec![model.config().start]; batch.rows()]);
                let own = if decoder.is_none() { Some(start()?) } else { None };
                // One of the two exists.
                let decoder = decoder.or(own.as_ref()).unwrap_or(batch);
                self.check(decoder)?;
                let (hidden, logits) = run_t5(model, batch, decoder, call)?;
                (hidden, None, Some(logits))
            }
            _ if decoder.is_some() => {
                let expected = "the model has no decoder that reads an encoder: omit decoder_input_ids";
                return Err(Error::input("decoder_input_ids", "given", expected));
            }
            Model::Decoder(model) => {
                let hidden = self.encode_on_this_thread(batch, call)?;
                let logits = model.head_logits(&hidden, batch)?;
                (hidden, None, logits)
            }
            Model::Bert(model) => {
                let hidden = self.encode_on_this_thread(batch, call)?;
                let pooled = model.pooled(&hidden, batch)?;
                let logits = model.logits(&hidden, pooled.as_ref(), batch)?;
                (hidden, pooled, logits)
            }
            Model::ModernBert(model) => {
                let hidden = self.encode_on_this_thread(batch, call)?;
                let logits = model.logits(&hidden, batch)?;
                (hidden, None, logits)
            }
        };
        Ok(Output { last_hidden_state, logits, pooler_output })
    }

    /// Returns the hidden states after the last layer, `[batch, length, hidden]`, without computing the head and the
    /// pooler. For a T5, these are the states of the encoder.
    ///
    /// # Errors
    /// Returns the errors of [`forward`](Self::forward).
    pub fn encode(&self, batch: &Batch, call: Call<'_>) -> Result<Tensor> {
        call.on_pool(|call| self.encode_on_this_thread(batch, call))
    }

    /// The computation of [`encode`](Self::encode), on the current thread.
    fn encode_on_this_thread(&self, batch: &Batch, call: Call<'_>) -> Result<Tensor> {
        self.check(batch)?;
        let (stack, declared, heads, kv_heads) = match self {
            Model::Decoder(model) => (Stack::Decoder, &model.declared, model.config().heads, model.config().kv_heads),
            Model::Bert(model) => (Stack::Encoder, &model.declared, model.config().heads, model.config().heads),
            Model::ModernBert(model) => (Stack::Encoder, &model.declared, model.config().heads, model.config().heads),
            Model::T5(model) => (Stack::Encoder, &model.declared[0], model.config().heads, model.config().heads),
        };
        let (mut pass, generator) = Pass::new(call);
        let shape = Shape::square(batch.len()).batch(batch.rows()).heads(heads).kv_heads(kv_heads);
        pass.planned(stack, Planner::new(stack, &declared.mask, batch, shape, generator)?);
        match self {
            Model::Decoder(model) => model.hidden(&batch.ids_tensor(model.device())?, batch.positions(), &mut pass),
            Model::Bert(model) => model.hidden(batch, &mut pass),
            Model::ModernBert(model) => model.hidden(batch, &mut pass),
            Model::T5(model) => model.encode(batch, &mut pass),
        }
    }

    /// Returns an error for a token outside the vocabulary, a text longer than the maximum number of positions, or a
    /// segment (BERT's `token_type_ids`) that the model does not have.
    pub(crate) fn check(&self, batch: &Batch) -> Result<()> {
        self.check_ids(batch.ids())?;
        let longest = batch.positions().iter().flatten().max().map_or(0, |most| *most as usize + 1);
        self.check_len(longest)?;
        let types = if let Model::Bert(model) = self { model.config().types } else { 0 };
        match batch.types().into_iter().flatten().flatten().find(|given| **given as usize >= types.max(1)) {
            Some(given) if types == 0 => {
                Err(Error::input("a token type", given, "the model has no token types: omit token_type_ids, or give 0"))
            }
            Some(given) => Err(Error::input("a token type", given, format!("give a token type below {types}"))),
            None => Ok(()),
        }
    }

    /// Returns an error for a token outside the vocabulary.
    pub(crate) fn check_ids(&self, rows: &[Vec<u32>]) -> Result<()> {
        let vocab = self.vocab();
        match rows.iter().flatten().find(|id| **id as usize >= vocab) {
            Some(id) => Err(Error::input(
                "a token id",
                id,
                format!("the vocabulary has {vocab} tokens, counted from 0: use the tokenizer of this model"),
            )),
            None => Ok(()),
        }
    }

    /// Returns an error if `len` tokens are more than the maximum number of positions.
    pub(crate) fn check_len(&self, len: usize) -> Result<()> {
        match self.positions().filter(|most| len > *most) {
            Some(most) => Err(Error::input(
                "the text",
                format!("{len} tokens long"),
                format!("the model has {most} positions: cut the text"),
            )),
            None => Ok(()),
        }
    }
}

/// Returns the decoder's hidden states and the logits.
fn run_t5(model: &T5, batch: &Batch, decoder: &Batch, call: Call<'_>) -> Result<(Tensor, Tensor)> {
    if decoder.rows() != batch.rows() {
        let given = format!("{} rows", decoder.rows());
        return Err(Error::input("decoder_input_ids", given, format!("input_ids have {}", batch.rows())));
    }
    let (mut pass, generator) = Pass::new(call);
    let heads = model.config().heads;
    let [of_encoder, of_decoder, cross] = &model.declared;
    let rows = |shape: Shape| shape.batch(batch.rows()).heads(heads);
    let square = rows(Shape::square(batch.len()));
    pass.planned(Stack::Encoder, Planner::new(Stack::Encoder, &of_encoder.mask, batch, square, generator)?);
    let square = rows(Shape::square(decoder.len()));
    pass.planned(Stack::Decoder, Planner::new(Stack::Decoder, &of_decoder.mask, decoder, square, generator)?);
    let across = rows(Shape::cross(decoder.len(), batch.len()));
    pass.planned(Stack::Cross, Planner::new(Stack::Cross, &cross.mask, batch, across, None)?);
    let encoded = model.encode(batch, &mut pass)?;
    let keys = model.cross_keys(&encoded)?;
    let ids = decoder.ids_tensor(encoded.device())?;
    let hidden = model.decode(&ids, &keys, &mut pass)?;
    let logits = model.logits(&hidden)?;
    Ok((hidden, logits))
}
