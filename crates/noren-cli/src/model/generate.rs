//! `noren generate`: a model continues prompts.

use super::load;
use crate::Verdict;
use crate::failure::{Failure, Result};
use crate::output::{DIM, Screen, paint, with_note};
use clap::Args;
use noren_candle::embed::load_tokenizer;
use noren_candle::generate::{GenerateOptions, Sampling, generate};
use noren_candle::model::Config;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// Folder of a model: config.json, model.safetensors and tokenizer.json
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Texts to continue, all at once
    #[arg(required = true, value_name = "PROMPT")]
    prompts: Vec<String>,
    /// New tokens for each prompt, at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 64)]
    tokens: usize,
    /// Logits are divided by it; 0 takes the most probable token
    #[arg(long, short, value_name = "T", default_value_t = 0.0)]
    temperature: f64,
    /// Only so many of the most probable tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Only the most probable tokens whose probabilities reach this sum
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// What random choices depend on
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  noren generate --model gpt2 'The cat sat on'
  noren generate --model llama 'Once upon a time' 'A mask is' --tokens 100 --temperature 0.8 --top-p 0.95 --seed 7";

pub(crate) fn run(args: &GenerateArgs, screen: &mut Screen) -> Result<Verdict> {
    let tokenizer = load_tokenizer(&args.model)?;
    let model = with_note("loading the model ...", || load(&args.model))?;
    let stop = match model.config() {
        Config::Decoder(config) => config.stop,
        Config::T5(config) => config.stop,
        Config::Bert(_) => Vec::new(),
    };
    let ids = |prompt: &String| match tokenizer.encode_fast(prompt.as_str(), true) {
        Ok(encoded) if !encoded.get_ids().is_empty() => Ok(encoded.get_ids().to_vec()),
        Ok(_) => Err(Failure::new(format!("the prompt {prompt:?} has no tokens: give at least one"))),
        Err(error) => Err(Failure::new(format!("the prompt {prompt:?} has no tokens: {error}"))),
    };
    let prompts = args.prompts.iter().map(ids).collect::<Result<Vec<_>>>()?;
    let options = GenerateOptions {
        new_tokens: args.tokens,
        stop,
        sampling: Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p, seed: args.seed },
        ..GenerateOptions::default()
    };
    let one = prompts.len() == 1;
    if one {
        screen.text(paint(DIM, &args.prompts[0]))?;
    }
    // Words appear as they are chosen, where there is one text to write.
    let mut stream = tokenizer.decode_stream(true);
    let mut written = Ok(());
    let made = generate(&model, &prompts, &options, &mut |step| {
        if one && let Ok(Some(piece)) = stream.step(step.token) {
            written = screen.text(piece);
        }
        written.is_ok()
    })?;
    written?;
    if one {
        screen.line("")?;
        return Ok(Verdict::Yes);
    }
    for (prompt, tokens) in args.prompts.iter().zip(&made.tokens) {
        let text = tokenizer.decode(tokens, true).map_err(|e| Failure::new(format!("tokens have no text: {e}")))?;
        screen.line(format_args!("{}{text}", paint(DIM, prompt)))?;
    }
    Ok(Verdict::Yes)
}
