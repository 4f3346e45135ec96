//! `noren generate`: continues prompts with a model.

use super::{ends, hub, load_packed, weight_type};
use crate::failure::{Failure, Result};
use crate::output::{DIM, Screen, paint, with_note};
use crate::verdict::Verdict;
use clap::Args;
use noren::Dtype;
use noren_models::embed::load_tokenizer;
use noren_models::generate::{GenerateOptions, Sampling, generate};
use noren_models::model::Model;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// Folder of a model, or its name on the Hugging Face hub: config.json, model.safetensors and tokenizer.json
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Texts to continue, computed together
    #[arg(required = true, value_name = "PROMPT")]
    prompts: Vec<String>,
    /// Maximum number of new tokens for each prompt
    #[arg(long, short = 'n', value_name = "N", default_value_t = 64)]
    tokens: usize,
    /// Divisor of the logits; 0 selects the most probable token
    #[arg(long, short, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f64,
    /// Number of most probable tokens from which each new token is sampled
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sum of probabilities: each new token is sampled from the most probable tokens that together reach this sum
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Text before which the output ends; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Type of the weights of linear layers: bf16 is faster, and rounds weights to 8 significant bits
    #[arg(long, value_parser = weight_type(), default_value = "f32")]
    dtype: Dtype,
    /// Print a line of JSON for each prompt
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A text also ends at the end token of the model. One text is printed word by word; several texts are printed one after another.

Examples:
  noren generate --model path/to/gpt2 'The cat sat on'
  noren generate --model path/to/llama 'Once upon a time' 'A mask is' --tokens 100 --temperature 0.8 --top-p 0.95 --seed 7
  noren generate --model path/to/llama 'Question: why? Answer:' --stop 'Question:' --stop $'\\n'";

pub(crate) fn run(args: &GenerateArgs, screen: &mut Screen) -> Result<Verdict> {
    if args.stop.iter().any(String::is_empty) {
        return Err(Failure::new("--stop is empty: give a text before which the output ends"));
    }
    let folder = hub::folder(&args.model, &["tokenizer.json"])?;
    let known = load_tokenizer(&folder)?;
    let tokenizer = known.inner();
    let model = with_note("loading the model ...", || load_packed(&folder, args.dtype))?;
    let stop = ends(&model, &known);
    let ids = |prompt: &String| match tokenizer.encode_fast(prompt.as_str(), true) {
        Ok(encoded) if !encoded.get_ids().is_empty() => Ok(encoded.get_ids().to_vec()),
        Ok(_) => Err(Failure::new(format!("the prompt {prompt:?} has no tokens: give at least one"))),
        Err(error) => Err(Failure::new(format!("the prompt {prompt:?} has no tokens: {error}"))),
    };
    let prompts = args.prompts.iter().map(ids).collect::<Result<Vec<_>>>()?;
    let sampling = Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p, seed: args.seed };
    let options = GenerateOptions { new_tokens: args.tokens, stop, sampling, ..GenerateOptions::default() };
    let streams = prompts.len() == 1 && !args.json;
    let mut written = Ok(());
    // An encoder-decoder does not continue the prompt: its output is a new text, on a new line.
    let between = if matches!(model, Model::T5(_)) { "\n" } else { "" };
    if streams {
        written = screen.text(format_args!("{}{between}", paint(DIM, &args.prompts[0])));
    }
    let mut texts = vec![Text::default(); prompts.len()];
    let mut decoders: Vec<_> = prompts.iter().map(|_| tokenizer.decode_stream(true)).collect();
    if between.is_empty() {
        // Many tokenizers drop the space before the first token, so the prompt's tokens are decoded first.
        for (decoder, prompt) in decoders.iter_mut().zip(&prompts) {
            prompt.iter().for_each(|id| drop(decoder.step(*id)));
        }
    }
    let made = generate(&model, &prompts, &options, &mut |step| {
        let text = &mut texts[step.row];
        let goes_on = match decoders[step.row].step(step.token) {
            Ok(Some(piece)) => text.push(&piece, &args.stop),
            // The bytes are an incomplete character.
            _ => true,
        };
        if streams && written.is_ok() {
            written = screen.text(text.ready(&args.stop));
        }
        goes_on && written.is_ok()
    })?;
    written?;
    if streams {
        screen.line(texts[0].rest())?;
        return Ok(Verdict::Yes);
    }
    for ((prompt, text), tokens) in args.prompts.iter().zip(&mut texts).zip(&made.tokens) {
        match args.json {
            true => screen.line(serde_json::json!({ "prompt": prompt, "text": text.rest(), "tokens": tokens }))?,
            false => screen.line(format_args!("{}{between}{}", paint(DIM, prompt), text.rest()))?,
        }
    }
    Ok(Verdict::Yes)
}

/// The text that was generated for one prompt, and the number of bytes of the text that were shown.
#[derive(Clone, Default)]
struct Text {
    made: String,
    shown: usize,
}

impl Text {
    /// Appends `piece` to the text. If the text then contains a stop text, cuts the text off before the stop text and
    /// returns `false`; otherwise returns `true`.
    fn push(&mut self, piece: &str, stops: &[String]) -> bool {
        self.made.push_str(piece);
        let end = stops.iter().filter_map(|stop| self.made.find(stop.as_str())).min();
        self.made.truncate(end.unwrap_or(self.made.len()));
        end.is_none()
    }

    /// Returns the part of the text that was not shown yet and can be shown now. If the text ends with a possible
    /// beginning of a stop text, such as `EN` of `END`, this end is not returned yet.
    fn ready(&mut self, stops: &[String]) -> &str {
        let begins = |at: &usize| stops.iter().any(|stop| stop.starts_with(&self.made[*at..]));
        let places = self.made.char_indices().map(|(at, _)| at);
        let end = places.skip_while(|at| *at < self.shown).find(begins).unwrap_or(self.made.len());
        let from = std::mem::replace(&mut self.shown, end);
        &self.made[from..end]
    }

    /// Returns the part of the text that was not shown yet.
    fn rest(&mut self) -> &str {
        self.ready(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_before_a_stop_that_comes_in_pieces() {
        let stops = ["\n\n".to_owned(), "END".to_owned()];
        let mut text = Text::default();
        let mut shown = String::new();
        for (piece, goes_on) in [("one\n", true), ("two E", true), ("N", true), ("d. \n", true), ("\nmore", false)] {
            assert_eq!(text.push(piece, &stops), goes_on, "{piece:?}");
            if goes_on {
                shown.push_str(text.ready(&stops));
                assert!(!shown.contains('N') || shown.contains("ENd"), "{shown:?}");
            }
        }
        shown.push_str(text.rest());
        assert_eq!(shown, "one\ntwo ENd. ");
    }
}
