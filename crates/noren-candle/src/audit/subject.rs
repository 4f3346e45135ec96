//! [`Subject`]: the tested model.

use crate::error::{Error, Result};
use crate::generate::{GenerateOptions, generate};
use crate::model::{Batch, Call, Declared, Head, Model, Output, Trace};
use candle_core::{DType, Tensor};
use noren::{Dtype, Isa};

/// A function that runs the tested model. Arguments: the tokens of the encoder, or of the only stack of a model; the
/// tokens of the decoder, if the model has both; and a [`Trace`] in which the model records each attention. Returns
/// outputs `[rows, length, features]`.
pub(super) type Run<'a> = Box<dyn Fn(&Batch, Option<&Batch>, Option<&mut Trace>) -> Result<Tensor> + 'a>;

/// A function that generates text with the tested model. Arguments: the prompt, the number of new tokens, and the
/// maximum number of prompt tokens that one pass reads. Returns the new tokens, and the logits from which each new
/// token was chosen.
pub(super) type Steps<'a> = Box<dyn Fn(&[u32], usize, usize) -> Result<(Vec<u32>, Vec<Vec<f32>>)> + 'a>;

/// The tested model or function, with the masks that it should follow (declared masks).
pub struct Subject<'a> {
    pub(super) masks: Vec<Declared>,
    pub(super) vocab: usize,
    pub(super) positions: Option<usize>,
    /// The type of the packed weights, and whether products with them round their inputs to this type. `None` if the
    /// weights are not packed or not known.
    pub(super) weights: Option<(Dtype, bool)>,
    pub(super) run: Run<'a>,
    pub(super) steps: Option<Steps<'a>>,
}

impl<'a> Subject<'a> {
    /// Returns a subject for a model, with the masks that the model declares.
    pub fn of(model: &'a Model) -> Self {
        let steps = |prompt: &[u32], new_tokens: usize, prefill_chunk: usize| {
            let mut logits = Vec::new();
            let options = GenerateOptions { new_tokens, prefill_chunk, ..Default::default() };
            let made = generate(model, &[prompt.to_vec()], &options, &mut |step| {
                logits.push(step.logits.to_vec());
                true
            })?;
            Ok((made.tokens.concat(), logits))
        };
        let generates = matches!(model, Model::Decoder(decoder) if decoder.config().head == Head::LanguageModel);
        Subject {
            masks: model.masks(),
            vocab: model.vocab(),
            positions: model.positions(),
            weights: model.packed_weight().map(|weight| (weight.dtype(), weight.isa() == Isa::Avx512Bf16)),
            run: Box::new(|batch, decoder, trace| {
                let Output { logits, last_hidden_state, .. } =
                    model.forward_with(batch, decoder, Call { trace, ..Call::default() })?;
                // No mask makes attention of this crate NaN or infinite, so the weights are the cause.
                if let Some(logits) = &logits {
                    check_finite(if logits.rank() == 3 { "a logit" } else { "a class score" }, logits)?;
                }
                check_finite("a hidden state", &last_hidden_state)?;
                Ok(logits.filter(|logits| logits.rank() == 3).unwrap_or(last_hidden_state))
            }),
            steps: if generates { Some(Box::new(steps)) } else { None },
        }
    }

    /// Returns a subject for the function `run`, which should follow `masks`. `run` gets the tokens, the tokens of a
    /// decoder (`None` unless one of `masks` is for attention over an encoder), and a [`Trace`] in which it may record
    /// each attention. It returns outputs `[rows, length, features]`. `vocab` is the number of tokens of the
    /// vocabulary.
    pub fn new(
        masks: Vec<Declared>,
        vocab: usize,
        run: impl Fn(&Batch, Option<&Batch>, Option<&mut Trace>) -> Result<Tensor> + 'a,
    ) -> Self {
        Subject { masks, vocab, positions: None, weights: None, run: Box::new(run), steps: None }
    }

    /// Returns this subject (the tested model) with `masks` as its declared masks.
    #[must_use]
    pub fn declared(self, masks: Vec<Declared>) -> Self {
        Subject { masks, ..self }
    }

    /// Returns this subject (the tested model) with `most` as the maximum number of tokens of a text that the model
    /// accepts.
    #[must_use]
    pub fn positions(self, most: usize) -> Self {
        Subject { positions: Some(most), ..self }
    }
}

/// Returns an error if a number of `values`, the outputs of a model with the name `name`, is NaN or infinite.
fn check_finite(name: &str, values: &Tensor) -> Result<()> {
    let expected =
        "a finite number is needed: the weights are damaged, or too large for the number type of the computation";
    let values = values.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    values.iter().find(|x| !x.is_finite()).map_or(Ok(()), |x| Err(Error::input(name, x, expected)))
}
