//! Models that load Hugging Face checkpoints: [`Bert`], [`T5`], and every [`Decoder`] from one set of parts.
//!
//! A model *declares* its masks, as expressions: they can be printed, drawn, compared and changed.
//!
//! ```
//! use candle_core::{DType, Device};
//! use candle_nn::{VarBuilder, VarMap};
//! use noren_candle::model::{Batch, Config, DecoderConfig, Model};
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
//! # Ok::<(), noren_candle::Error>(())
//! ```

mod batch;
mod bert;
pub(crate) mod cache;
mod decoder;
mod decoder_config;
mod load;
mod parts;
mod pass;
pub(crate) mod raw;
mod rope;
mod t5;

pub use crate::stack::Stack;
pub use batch::Batch;
pub use bert::{Bert, BertConfig, BertHead};
pub use decoder::Decoder;
pub use decoder_config::{DecoderConfig, Experts, Names};
pub use pass::{Call, Record, Trace};
pub use rope::{Rope, RopeScaling};
pub use t5::{T5, T5Config};

pub(crate) use decoder::rows_at;
pub(crate) use pass::{Pass, Planner};

use crate::error::{Error, Result};
use candle_core::Tensor;
use noren::noren_mask::Spec;
use noren::{Mask, Shape};

/// What a model is made of.
#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant)] // a program has one
pub enum Config {
    /// A causal language model.
    Decoder(DecoderConfig),
    /// An encoder.
    Bert(BertConfig),
    /// An encoder and a decoder.
    T5(T5Config),
}

impl Config {
    /// Returns the masks that a model of this configuration declares; none is made for it.
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

    /// Tokens that end a text, as the configuration has them.
    pub fn stop(&self) -> &[u32] {
        match self {
            Config::Decoder(config) => &config.stop,
            Config::T5(config) => &config.stop,
            Config::Bert(_) => &[],
        }
    }
}

/// A model that can be called, whatever its family.
#[derive(Clone, Debug)]
pub enum Model {
    /// A causal language model.
    Decoder(Decoder),
    /// An encoder.
    Bert(Bert),
    /// An encoder and a decoder.
    T5(T5),
}

/// A mask that a model declares.
#[derive(Clone, PartialEq, Debug)]
pub struct Declared {
    /// Of which attention.
    pub stack: Stack,
    /// How many layers it speaks of.
    pub layers: usize,
    /// Query heads and key-value heads.
    pub heads: [usize; 2],
    /// The mask, which may differ by layer, and what is done to scores. Padding is hidden besides, wherever there is any.
    pub spec: Spec,
}

/// What a call gives.
#[derive(Clone, Debug)]
pub struct Output {
    /// The states after the last layer and its norm, `[batch, length, hidden]`; of T5 the decoder's.
    pub last_hidden_state: Tensor,
    /// Where the model has a head: of each token `[batch, length, vocab]`, or of each text `[texts, classes]`.
    pub logits: Option<Tensor>,
    /// Where the model has a pooler, `[texts, hidden]`.
    pub pooler_output: Option<Tensor>,
}

impl Model {
    /// What it is made of.
    pub fn config(&self) -> Config {
        match self {
            Model::Decoder(model) => Config::Decoder(model.config().clone()),
            Model::Bert(model) => Config::Bert(model.config().clone()),
            Model::T5(model) => Config::T5(model.config().clone()),
        }
    }

    /// Tokens that it knows.
    pub fn vocab(&self) -> usize {
        match self {
            Model::Decoder(model) => model.config().vocab,
            Model::Bert(model) => model.config().vocab,
            Model::T5(model) => model.config().vocab,
        }
    }

    /// Tokens that a text may have, if there is a limit.
    pub fn positions(&self) -> Option<usize> {
        match self {
            Model::Decoder(model) => Some(model.config().positions),
            Model::Bert(model) => Some(model.config().positions),
            Model::T5(_) => None,
        }
    }

    /// Returns the masks that it declares.
    pub fn masks(&self) -> Vec<Declared> {
        let specs = match self {
            Model::Decoder(model) => std::slice::from_ref(&model.declared),
            Model::Bert(model) => std::slice::from_ref(&model.declared),
            Model::T5(model) => &model.declared,
        };
        let declared = self.config().masks().into_iter().zip(specs);
        declared.map(|(declared, spec)| Declared { spec: spec.clone(), ..declared }).collect()
    }

    /// Changes the mask of an attention; what is done to scores stays.
    ///
    /// # Errors
    /// An attention that the model does not have.
    pub fn set_mask(&mut self, stack: Stack, mask: Mask) -> Result<()> {
        let spec = match (self, stack) {
            (Model::Decoder(model), Stack::Decoder) => &mut model.declared,
            (Model::Bert(model), Stack::Encoder) => &mut model.declared,
            (Model::T5(model), stack) => &mut model.declared[stack as usize],
            _ => return Err(Error::input("the mask's place", stack.name(), "the model has no such attention")),
        };
        spec.mask = mask;
        Ok(())
    }

    /// Returns the model's output for a batch; a T5's decoder begins with its start token.
    ///
    /// # Errors
    /// Tokens outside of the vocabulary, texts longer than the positions, masks and facts that do not fit.
    pub fn forward(&self, batch: &Batch) -> Result<Output> {
        self.forward_with(batch, None, Call::default())
    }

    /// [`forward`](Self::forward) with the tokens of a decoder that reads an encoder, and with a [`Call`].
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and tokens for a decoder that the model does not have.
    pub fn forward_with(&self, batch: &Batch, decoder: Option<&Batch>, call: Call<'_>) -> Result<Output> {
        self.check(batch)?;
        match self {
            Model::T5(model) => {
                let start = || Batch::new(vec![vec![model.config().start]; batch.rows()]);
                let own = if decoder.is_none() { Some(start()?) } else { None };
                // One of the two is there.
                let decoder = decoder.or(own.as_ref()).unwrap_or(batch);
                self.check(decoder)?;
                run_t5(model, batch, decoder, call)
            }
            _ if decoder.is_some() => {
                let expected = "the model has no decoder that reads an encoder: leave them out";
                Err(Error::input("decoder_input_ids", "given", expected))
            }
            Model::Decoder(model) => {
                let hidden = run_decoder(model, batch, call)?;
                let logits = model.config().lm_head.then(|| model.logits(&hidden)).transpose()?;
                Ok(Output { last_hidden_state: hidden, logits, pooler_output: None })
            }
            Model::Bert(model) => {
                let hidden = run_bert(model, batch, call)?;
                let pooler_output = model.pooled(&hidden, batch)?;
                let logits = model.logits(&hidden, pooler_output.as_ref())?;
                Ok(Output { last_hidden_state: hidden, logits, pooler_output })
            }
        }
    }

    /// Returns the states after the last layer alone, without head and pooler; of T5 the encoder's.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn encode(&self, batch: &Batch, call: Call<'_>) -> Result<Tensor> {
        self.check(batch)?;
        match self {
            Model::Decoder(model) => run_decoder(model, batch, call),
            Model::Bert(model) => run_bert(model, batch, call),
            Model::T5(model) => {
                let (mut pass, generator) = Pass::new(call);
                let [declared, ..] = &model.declared;
                let heads = model.config().heads;
                let shape = Shape::square(batch.len()).batch(batch.rows()).heads(heads);
                pass.planned(Stack::Encoder, Planner::new(Stack::Encoder, &declared.mask, batch, shape, generator)?);
                model.encode(batch, &mut pass)
            }
        }
    }

    /// Refuses tokens outside of the vocabulary and texts longer than the positions.
    pub(crate) fn check(&self, batch: &Batch) -> Result<()> {
        self.check_ids(batch.ids())?;
        let longest = batch.positions().iter().flatten().max().map_or(0, |most| *most as usize + 1);
        self.check_len(longest)?;
        let types = if let Model::Bert(model) = self { model.config().types } else { 0 };
        match batch.types().into_iter().flatten().flatten().find(|given| **given as usize >= types) {
            Some(given) => Err(Error::input("a token type", given, format!("the model knows {types}, counted from 0"))),
            None => Ok(()),
        }
    }

    /// Refuses tokens outside of the vocabulary.
    pub(crate) fn check_ids(&self, rows: &[Vec<u32>]) -> Result<()> {
        let vocab = self.vocab();
        match rows.iter().flatten().find(|id| **id as usize >= vocab) {
            Some(id) => Err(Error::input(
                "a token id",
                id,
                format!("the vocabulary has {vocab}, counted from 0: was the text made into tokens for another model?"),
            )),
            None => Ok(()),
        }
    }

    /// Refuses texts longer than the positions.
    pub(crate) fn check_len(&self, len: usize) -> Result<()> {
        match self.positions().filter(|most| len > *most) {
            Some(most) => Err(Error::input(
                "the length of a text",
                format!("{len} tokens"),
                format!("the model knows {most} positions: cut the text"),
            )),
            None => Ok(()),
        }
    }
}

fn run_decoder(model: &Decoder, batch: &Batch, call: Call<'_>) -> Result<Tensor> {
    let (mut pass, generator) = Pass::new(call);
    let DecoderConfig { heads, kv_heads, .. } = *model.config();
    let shape = Shape::square(batch.len()).batch(batch.rows()).heads(heads).kv_heads(kv_heads);
    pass.planned(Stack::Decoder, Planner::new(Stack::Decoder, &model.declared.mask, batch, shape, generator)?);
    model.hidden(&batch.ids_tensor(model.device())?, batch.positions(), &mut pass)
}

fn run_bert(model: &Bert, batch: &Batch, call: Call<'_>) -> Result<Tensor> {
    let (mut pass, generator) = Pass::new(call);
    let shape = Shape::square(batch.len()).batch(batch.rows()).heads(model.config().heads);
    pass.planned(Stack::Encoder, Planner::new(Stack::Encoder, &model.declared.mask, batch, shape, generator)?);
    model.hidden(batch, &mut pass)
}

fn run_t5(model: &T5, batch: &Batch, decoder: &Batch, call: Call<'_>) -> Result<Output> {
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
    pass.planned(Stack::Cross, Planner::cross(&cross.mask, batch, across)?);
    let encoded = model.encode(batch, &mut pass)?;
    let keys = model.cross_keys(&encoded)?;
    let ids = decoder.ids_tensor(encoded.device())?;
    let hidden = model.decode(&ids, &keys, &mut pass)?;
    let logits = Some(model.logits(&hidden)?);
    Ok(Output { last_hidden_state: hidden, logits, pooler_output: None })
}
