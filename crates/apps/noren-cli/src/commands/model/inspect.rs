//! `noren inspect`: draws the masks of a model, layer by layer.

use crate::failure::Result;
use crate::output::{DIM, STRONG, Screen, paint};
use crate::verdict::Verdict;
use clap::Args;
use noren_mask::{Facts, Mask, Shape};
use noren_models::model::{Config, Declared};
use noren_picture::Draw;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// Folder of a model, or its name on the Hugging Face hub; only config.json is read
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Number of tokens in the pictures
    #[arg(long, short = 'n', value_name = "N", value_parser = crate::args::count, default_value_t = 16)]
    len: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  noren inspect --model path/to/gemma2
  noren inspect --model path/to/mistral --len 32";

pub(crate) fn run(args: &InspectArgs, screen: &mut Screen) -> Result<Verdict> {
    let hint = "--model takes a folder with config.json, as save_pretrained writes it";
    let config =
        Config::load(&super::hub::folder(&args.model, &[])?).map_err(|error| super::failure_with_hint(error, hint))?;
    let masks = config.masks();
    if args.json {
        let one = |declared: &Declared| {
            serde_json::json!({
                "attention": declared.stack.name(),
                "layers": declared.layers,
                "heads": declared.heads[0],
                "kv_heads": declared.heads[1],
                "mask": declared.spec.to_string(),
            })
        };
        screen.json(&masks.iter().map(one).collect::<Vec<_>>())?;
        return Ok(Verdict::Yes);
    }
    for declared in &masks {
        draw(declared, args.len, screen)?;
    }
    screen.line(paint(
        DIM,
        "these pictures show texts without padding; in a padded batch, the padding keys are hidden too",
    ))?;
    Ok(Verdict::Yes)
}

/// Draws the masks of all layers for one kind of attention of a model, such as the self-attention of the encoder.
/// Layers with equal masks share one picture.
fn draw(declared: &Declared, len: usize, screen: &mut Screen) -> Result<()> {
    let Declared { stack, layers, heads: [heads, kv_heads], spec } = declared;
    let about = format!("{} attention, {layers} layers, {heads} query heads, {kv_heads} key-value heads", stack.name());
    screen.line(paint(STRONG, about))?;
    screen.line(spec)?;
    let mut kinds: Vec<(Mask, Vec<usize>)> = Vec::new();
    for layer in 0..*layers {
        let mask = spec.mask.at_layer(layer).simplify();
        match kinds.iter_mut().find(|(known, _)| *known == mask) {
            Some((_, of)) => of.push(layer),
            None => kinds.push((mask, vec![layer])),
        }
    }
    for (mask, of) in kinds {
        let bound = mask.bind(&Shape::square(len), &Facts::new())?;
        let list: Vec<String> = of.iter().map(usize::to_string).collect();
        screen.line("")?;
        screen.line(paint(DIM, format_args!("layers {}", list.join(", "))))?;
        screen.text(bound.picture().to_terminal(&screen.terminal())?)?;
    }
    screen.line("")
}
