//! `noren code`: prints a mask as code for another library, or for noren in Rust or Python.

use crate::args::{FactArgs, ShapeArgs, bind};
use crate::failure::{Failure, Result};
use crate::output::{DIM, GOOD, STRONG, Screen, paint};
use crate::verdict::Verdict;
use clap::Args;
use noren_code::{Error, Target};
use noren_input::Sizes;
use noren_mask::{BoundMask, Spec};
use serde::Serialize;

#[derive(Args, Debug)]
#[command(arg_required_else_help = true, after_help = targets() + EXAMPLES)]
pub(crate) struct CodeArgs {
    /// The mask, for example 'causal & documents([5, 3])'
    mask: String,
    /// The library for which the code is written: python, rust, sdpa, mha, encoder, flex, hf, jax, keras, numpy or onnx.
    /// Without --to, all are listed, with the reason where the mask has no code
    #[arg(long, value_name = "TARGET")]
    to: Option<Target>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
}

const EXAMPLES: &str = "\
Examples:
  noren code 'causal & documents([5, 3])' --to flex --len 8
  noren code 'causal & padding' --to encoder --lengths 9,5 --side left
  noren code 'sliding(4096) + alibi' --to numpy --len 8192 --heads 8
  noren code 'heads(0..4: sliding(4), else: causal)' --heads 8";

/// Returns the list of all targets for the help.
fn targets() -> String {
    let line = |target: Target| format!("  {:7}  {}\n", target.name(), target.title());
    format!("Targets:\n{}\n", Target::ALL.map(line).concat())
}

/// The code of a mask for one target, or the reason why the mask has no code for this target, as JSON.
#[derive(Serialize)]
struct Entry {
    target: &'static str,
    title: &'static str,
    language: &'static str,
    /// The code, or `None` if there is none.
    code: Option<String>,
    /// Names of the variables that the code reads and that the user supplies.
    inputs: Vec<String>,
    /// The reason for which there is no code.
    reason: Option<String>,
}

impl Entry {
    fn new(spec: &Spec, bound: &BoundMask, target: Target) -> Entry {
        let (code, inputs, reason) = match noren_code::code(spec, bound.shape(), bound.facts(), target) {
            Ok(code) => (Some(code.text), code.inputs, None),
            Err(error) => (None, Vec::new(), Some(error.to_string())),
        };
        Entry { target: target.name(), title: target.title(), language: target.language(), code, inputs, reason }
    }
}

pub(crate) fn run(args: &CodeArgs, screen: &mut Screen) -> Result<Verdict> {
    let bound = bind(std::slice::from_ref(&args.mask), &args.shape, &args.facts, &Sizes::default())?;
    let (spec, mask) = (&bound.specs[0], &bound.masks[0]);
    match args.to {
        Some(target) => {
            let code = noren_code::code(spec, mask.shape(), mask.facts(), target).map_err(failure)?;
            match args.json {
                true => screen.json(&Entry::new(spec, mask, target))?,
                false => screen.text(&code.text)?,
            }
        }
        None => {
            let entries: Vec<Entry> = Target::ALL.iter().map(|target| Entry::new(spec, mask, *target)).collect();
            match args.json {
                true => screen.json(&entries)?,
                false => list(&entries, screen)?,
            }
        }
    }
    if let Some(remark) = bound.remark() {
        // standard output has only code
        anstream::eprintln!("{}", paint(DIM, remark));
    }
    Ok(Verdict::Yes)
}

/// Prints the targets with their titles. For a target for which the mask has no code, prints the reason.
fn list(entries: &[Entry], screen: &mut Screen) -> Result<()> {
    let width = entries.iter().map(|entry| entry.target.len()).max().unwrap_or(0);
    for entry in entries {
        let name = paint(if entry.reason.is_some() { DIM } else { GOOD }, format!("{:width$}", entry.target));
        screen.line(format!("{name}  {}", entry.title))?;
        if let Some(reason) = &entry.reason {
            screen.line(format!("{:width$}  {}", "", paint(DIM, format!("no code: {reason}"))))?;
        }
    }
    screen.line(format!("{} --to TARGET prints the code", paint(STRONG, "noren code MASK")))
}

/// Converts an error for a mask that has no code to a [`Failure`]. The advice of the error becomes the hint.
fn failure(error: Error) -> Failure {
    match error {
        Error::Mask(error) => error.into(),
        Error::Inexpressible { ref advice, .. } | Error::Unreadable { ref advice, .. } => {
            let message = error.to_string();
            let message = message.strip_suffix(advice.as_str()).unwrap_or(&message).trim_end_matches([':', ' ']);
            Failure::new(message).hint(advice.clone())
        }
        error => Failure::new(error.to_string()),
    }
}
