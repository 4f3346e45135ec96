//! `noren audit`: runs a model and tests whether hidden tokens change its outputs.

use super::WeightType;
use crate::failure::Result;
use crate::output::{BAD, DIM, GOOD, STRONG, Screen, paint, with_note};
use crate::verdict::Verdict;
use clap::Args;
use noren_candle::audit::{Check, Subject, Verdict as Found, audit};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AuditArgs {
    /// Folder of a model, or its name on the Hugging Face hub: config.json and model.safetensors
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Length of the texts, in tokens [default: 72, 136 or 264: the smallest at which the masks of all layers hide the
    /// first tokens from the last output; otherwise 72. A model with fewer positions gets shorter texts]
    #[arg(long, short = 'n', value_name = "N")]
    len: Option<usize>,
    /// Type of the weights of linear layers, as for `noren generate` and `noren embed`
    #[arg(long, value_enum, default_value = "f32")]
    dtype: WeightType,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Inputs that must not influence an output are changed (later tokens, padding, masked tokens, other texts
of the batch, other documents), the model runs again, and all bits of the outputs are compared.

Examples:
  noren audit --model gemma2
  noren audit --model llama --dtype bf16
  noren audit --model mistral --len 512 --json";

pub(crate) fn run(args: &AuditArgs, screen: &mut Screen) -> Result<Verdict> {
    let model = with_note("loading the model ...", || super::load_packed(&args.model, args.dtype))?;
    let report = with_note("running the tests ...", || audit(&Subject::of(&model), args.len))?;
    let verdict = if report.ok() { Verdict::Yes } else { Verdict::No };
    if args.json {
        screen.json(&report)?;
        return Ok(verdict);
    }
    let masks: Vec<String> =
        model.masks().iter().map(|declared| format!("{}: {}", declared.stack.name(), declared.spec)).collect();
    screen.line(paint(STRONG, masks.join("; ")))?;
    screen.line(paint(DIM, report.conditions()))?;
    for Check { title, verdict, says, place, .. } in &report.checks {
        let (style, mark) = match verdict {
            Found::Fail => (BAD, "FAIL"),
            Found::Inconclusive => (BAD, "?"),
            Found::Pass => (GOOD, "pass"),
            Found::NotApplicable => (DIM, "-"),
        };
        let place = place.as_ref().map(|place| format!("; first after {place}")).unwrap_or_default();
        screen.line(format_args!("  {}  {title:32}  {says}{place}", paint(style, format!("{mark:4}"))))?;
    }
    screen.line(paint(DIM, format!("not tested: {}", report.not_tested.join("; "))))?;
    Ok(verdict)
}
