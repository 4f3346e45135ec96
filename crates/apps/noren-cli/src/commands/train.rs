//! `noren train`: trains a model on a text.

use crate::args::read_text;
use crate::failure::{Failure, Result};
use crate::output::{DIM, STRONG, Screen, paint};
use crate::progress::Progress;
use crate::verdict::Verdict;
use clap::Args;
use noren_models::train::{Progress as Step, TrainConfig, Trained, Trainer};
use noren_text::data::Objective;
use noren_text::{ByteTokenizer, HfTokenizer, Tokenizer};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrainArgs {
    /// Text file to learn from, UTF-8; documents are separated by a blank line, or by `separator` of the configuration
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Prediction to learn: clm (the next token, with a causal mask), mlm (masked tokens, without a causal mask), or
    /// both (two batches of clm, then one batch of mlm)
    #[arg(long, value_name = "clm|mlm|both")]
    objective: String,
    /// JSON file: {"model": {config.json of Hugging Face}, "steps": 1000, "learning_rate": 0.001, ...}
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Folder for the model, its checkpoint and its loss curve; a run that was stopped, for example with Ctrl-C, continues from its checkpoint
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// A tokenizer.json of Hugging Face [default: one token for each byte]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Keys of the configuration, with their defaults:
  model           model_type, hidden_size, ...: a config.json; required (vocab_size comes from the tokenizer)
  steps 1000, rows 16, row_len 256, accumulate 1: updates, rows per batch, tokens per row, batches per update
  learning_rate 0.001, warmup 50, floor 0.1: the rate rises over 50 steps, then falls along a cosine to 0.1 of its maximum
  weight_decay 0.1, betas [0.9, 0.98], clip 1.0, seed 0
  separator \"\\n\\n\" between documents, held_out 20: every 20th row is for validation
  validate_every 100 steps, validate_rows 64

Examples:
  noren train --data book.txt --objective clm --config config.json -o model
  noren run 'It is a truth' --model model";

pub(crate) fn run(args: &TrainArgs, screen: &mut Screen) -> Result<Verdict> {
    let objective: Objective = args.objective.parse()?;
    let config = TrainConfig::from_file(&args.config)?;
    let tokenizer: Box<dyn Tokenizer> = match &args.tokenizer {
        Some(path) => Box::new(HfTokenizer::from_file(path)?),
        None => Box::new(ByteTokenizer),
    };
    let text = read_text(&args.data)?;
    let trainer = Trainer::new(&config, tokenizer.as_ref(), &text, objective).map_err(|error| match error {
        error @ noren_models::Error::Config { .. } => {
            let message = error.to_string();
            Failure::new(message.trim_start_matches("config.json: ")).of(args.config.display())
        }
        error => error.into(),
    })?;
    let [train, held] = trainer.rows();
    let rows = format!("{train} rows for training and {held} rows for validation, of {} tokens each", config.row_len);
    let documents = trainer.documents();
    let rows = format!("{documents} document{}, {rows}", if documents == 1 { "" } else { "s" });
    screen.line(format!("{:<10} {}: {rows}", "text", args.data.display()))?;
    screen.line(format!("{:<10} {} parameters", "model", trainer.parameters()))?;

    let folder = args.output.display();
    screen.line(format!(
        "{:<10} {folder}, at least every 10 s; after Ctrl-C, the same command continues",
        "checkpoint"
    ))?;

    let mut progress = Progress::new(Some(config.steps));
    let mut reported = None;
    let trained = trainer.run(&args.output, |now| {
        progress.message(message(now));
        progress.set(now.steps[0]);
        // Without a progress line, each validation prints one line.
        if !progress.is_shown() && now.validation != reported {
            reported = now.validation;
            eprintln!("step {} of {}: {}", now.steps[0], now.steps[1], message(now));
        }
    });
    progress.clear();
    report(&trained?, screen)?;
    Ok(Verdict::Yes)
}

fn message(now: &Step) -> String {
    let held = now.validation.map(|loss| format!(", validation loss {loss:.3}")).unwrap_or_default();
    format!("loss {:.3}{held}, {:.0} tokens/s", now.loss, now.tokens_per_second)
}

fn report(trained: &Trained, screen: &mut Screen) -> Result<()> {
    if trained.resumed_at > 0 {
        screen.line(format!("{:<10} the training continued from step {}", "resumed", trained.resumed_at))?;
    }
    let history = &trained.history;
    for objective in [Objective::Clm, Objective::Mlm] {
        if let Some(loss) = history.last_validation(objective) {
            let bits = loss / std::f64::consts::LN_2;
            let line = format!(
                "{} {loss:.3} nats per token, {bits:.2} bits; a unigram model, which knows only token frequencies, has \
                 {:.3} nats per token",
                paint(STRONG, objective),
                history.unigram
            );
            screen.line(format!("{:<10} {line}", "validation"))?;
        }
    }
    let files = "model.safetensors, config.json, tokenizer.json, loss.svg";
    screen.line(format!("{:<10} {} {}", "written", trained.folder.display(), paint(DIM, format!("({files})"))))
}
