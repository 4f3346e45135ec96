//! `noren run --input`: runs a model over tokens in a file.
//!
//! The module [`text`] contains `noren run TEXT`, which runs a model over a text.

use crate::commands::model::{load_packed, tokens::Tokens};
use crate::commands::text::check_finite;
use crate::commands::text::{self, TextArgs};
use crate::failure::{Failure, Result};
use crate::output::{Screen, with_note};
use crate::target::Target;
use crate::verdict::Verdict;
use clap::Args;
use noren_models::candle_core::{DType, Device, Tensor};
use noren_models::generate::{GenerateOptions, generate};
use noren_models::model::{Batch, Call, Model, Output};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = examples())]
pub(crate) struct RunArgs {
    #[command(flatten)]
    text: TextArgs,
    /// Folder of a model, or its name on the Hugging Face hub [default: for a text, the small model in this program]
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<PathBuf>,
    /// Safetensors file with input_ids [batch, length], and optionally attention_mask and decoder_input_ids
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["texts", "lines", "mask", "hide", "word", "detector_model", "layer", "head", "json"])]
    input: Option<PathBuf>,
    /// Number of tokens to generate [default: for a text, 60]; with --input, each generated token is the most probable
    /// token
    #[arg(long, short, value_name = "N")]
    generate: Option<usize>,
    /// File to write: an SVG picture of a text, or safetensors with --input
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

const TENSORS: &str = "\
With --input, reads whole numbers:
  input_ids          [batch, length]
  attention_mask     [batch, length], 1 for non-padding tokens, 0 for padding at any place; also floats or truth values
  decoder_input_ids  [batch, length], for models with an encoder and a decoder [default: the start token]
  decoder_attention_mask  like attention_mask
  token_type_ids     [batch, length], for BERT
Writes these outputs as 32-bit floats, if the architecture has them:
  logits             [batch, length, vocab], or [batch, classes]
  last_hidden_state  [batch, length, hidden]
  pooler_output      [batch, hidden]
and, with --generate, 64-bit whole numbers:
  generated          [batch, N]

Examples:
  noren run --model path/to/llama --input tokens.safetensors -o out.safetensors
  noren run --model path/to/gpt2 --input tokens.safetensors --generate 12 -o out.safetensors";

fn examples() -> String {
    format!("{}\n\n{TENSORS}", text::EXAMPLES)
}

pub(crate) fn run(args: &RunArgs, screen: &mut Screen) -> Result<Verdict> {
    if args.input.is_none() {
        return text::run(&args.text, args.model.as_deref(), args.generate, args.output.as_deref(), screen);
    }
    let (Some(folder), Some(input), Some(output)) = (&args.model, &args.input, &args.output) else {
        let missing = [(args.model.is_none(), "--model"), (args.output.is_none(), "-o")];
        let missing = missing.iter().filter(|(missing, _)| *missing).map(|(_, name)| *name).collect::<Vec<_>>();
        let hint = "noren run --model DIR --input tokens.safetensors -o out.safetensors";
        return Err(Failure::new(format!("{} is missing", missing.join(" and "))).hint(hint));
    };
    let target = Target::new(output)?;
    let tokens = Tokens::read(input)?;
    let model = with_note("loading the model ...", || load_packed(folder, noren::Dtype::F32))?;
    let mut tensors = with_note("computing ...", || forward(&model, &tokens))?;
    if let Some(new_tokens) = args.generate {
        let made = with_note("generating ...", || continued(&model, &tokens, new_tokens))?;
        tensors.push(("generated", made));
    }
    write(&target, &tensors)?;
    for (name, tensor) in &tensors {
        screen.line(format_args!("{name:<18} {:?}", tensor.dims()))?;
    }
    Ok(Verdict::Yes)
}

/// Runs the model and returns all outputs as 32-bit floats, as (name, tensor).
fn forward(model: &Model, Tokens { batch, decoder }: &Tokens) -> Result<Vec<(&'static str, Tensor)>> {
    let Output { last_hidden_state, logits, pooler_output } =
        model.forward_with(batch, decoder.as_ref(), Call::default())?;
    let all = [("logits", logits), ("last_hidden_state", Some(last_hidden_state)), ("pooler_output", pooler_output)];
    let mut given = Vec::new();
    for (name, tensor) in all {
        if let Some(tensor) = tensor {
            let tensor = tensor.to_dtype(DType::F32).map_err(noren_models::Error::from)?;
            let values = tensor.flatten_all().and_then(|values| values.to_vec1::<f32>());
            check_finite(name, &values.map_err(noren_models::Error::from)?)?;
            given.push((name, tensor));
        }
    }
    Ok(given)
}

/// Generates exactly `new_tokens` tokens for each batch row; an end token does not stop a row. Returns only the new
/// tokens, `[batch, new_tokens]`.
fn continued(model: &Model, Tokens { batch, decoder }: &Tokens, new_tokens: usize) -> Result<Tensor> {
    if new_tokens == 0 {
        return Err(Failure::new("--generate is 0: give at least 1, or leave --generate out"));
    }
    let prompts = batch.real_ids();
    if let Some(row) = prompts.iter().position(Vec::is_empty) {
        let problem = format!(
            "row {row} of `attention_mask` (counted from 0) has no non-padding token: there is nothing to continue"
        );
        return Err(Failure::new(problem));
    }
    let begins = decoder.as_ref().map(Batch::real_ids);
    let options = GenerateOptions { new_tokens, begins, ..GenerateOptions::default() };
    let rows = generate(model, &prompts, &options, &mut |_| true)?.tokens;
    let ids: Vec<i64> = rows.iter().flatten().map(|id| i64::from(*id)).collect();
    Ok(Tensor::from_vec(ids, (rows.len(), new_tokens), &Device::Cpu).map_err(noren_models::Error::from)?)
}

/// Writes tensors, given as (name, tensor), to the output file.
fn write(target: &Target, tensors: &[(&'static str, Tensor)]) -> Result<()> {
    let pairs = tensors.iter().map(|(name, tensor)| (*name, tensor));
    let bytes = safetensors::serialize(pairs, None)
        .map_err(|e| Failure::new(format!("the tensors cannot be written as safetensors: {e}")))?;
    target.write(|out| out.write_all(&bytes))
}
