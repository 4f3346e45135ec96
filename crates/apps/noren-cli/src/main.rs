//! The command `noren`: show, plan, explain, compare, diagnose and prove attention masks, and compute masked attention.

mod args;
mod commands;
mod errors;
mod failure;
mod output;
mod progress;
mod target;
mod verdict;

use commands::*;

use crate::failure::{Failure, Result};
use crate::output::{BAD, DIM, Screen, paint};
use crate::verdict::Verdict;
use anstream::ColorChoice;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Attention masking: define and draw any mask, plan it, compute attention with it, and prove what it hides.
#[derive(Parser, Debug)]
#[command(name = "noren", version, arg_required_else_help = true, max_term_width = 110)]
#[command(after_help = EXAMPLES)]
struct Cli {
    /// When to use colour
    #[arg(
        long,
        global = true,
        value_parser = args::choice([("auto", ColorChoice::Auto), ("always", ColorChoice::Always), ("never", ColorChoice::Never)]),
        default_value = "auto",
        hide_possible_values = true,
        value_name = "auto|always|never"
    )]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  noren show causal
  noren show 'causal & documents([5, 3])' -o mask.svg
  noren plan 'sliding(4096) | causal & keys(0..4)' --len 1048576
  noren partition 'causal & documents([90000, 41072])' --len 131072 --ranks 8 -o split.svg
  noren explain 'causal & padding' --lengths 9,5 --at 1,0,8,7
  noren code 'causal & documents([5, 3])' --len 8 --to flex
  noren diff 'causal & window(left=3)' 'sliding(4)'
  noren check mask.npy -d kind=causal
  noren flow 'sliding(1024)' causal --layers 32 --len 131072 --token 131071
  noren run
  noren run 'Mail ann@x.example or call 030 1234567' --hide email,phone -o picture.svg
  noren attend
  noren attend qkv.safetensors --mask 'causal & padding' --lengths 5,3 -o out.safetensors
  noren run --model path/to/llama --input tokens.safetensors --generate 12 -o out.safetensors
  noren run --model path/to/classifier 'Not bad at all' 'It was too long'
  noren embed --model path/to/all-MiniLM-L6-v2 lines.txt -o vectors.npy
  noren inspect --model path/to/gemma2
  noren train --data book.txt --objective clm --config config.json -o model
  noren serve --open
  noren bench --quick

Put masks in quotes, because the shell has its own meaning for & | ! and parentheses.
Atoms: full none causal window sliding chunk stride distances prefix keys queries global padding
documents spans tree clearance neighborhood random random_blocks dense heads batch layers;
operators: & (both) | (either) ! (not) - (but not);
scores: + bias relative alibi softcap soft sinks.";

#[derive(Subcommand, Debug)]
enum Command {
    /// Draw a mask in the terminal, as SVG, PNG, text or web page
    Show(show::ShowArgs),
    /// Count the cells, tiles and bytes of a mask, and compare with dense masking
    Plan(plan::PlanArgs),
    /// Split a mask over many processes (ranks): the tokens, cells and traffic of each rank, compared with methods of
    /// other projects
    Partition(partition::PartitionArgs),
    /// Explain why a query may or may not read a key
    Explain(explain::ExplainArgs),
    /// Write a mask as code: PyTorch, FlexAttention, transformers, JAX, Keras, NumPy, ONNX, or noren in Rust and Python
    Code(code::CodeArgs),
    /// Compare two masks; exit code 0 when the allowed cells and the scores are equal, 1 when not
    Diff(diff::DiffArgs),
    /// Diagnose and repair a mask in a file; exit code 0 when correct, 1 when faulty, 3 when undecided
    Check(check::CheckArgs),
    /// Show which tokens can influence which outputs over several layers, and check a policy; exit code 0 when the
    /// policy holds
    Flow(flow::FlowArgs),
    /// Check a certificate of `noren flow` with a second implementation; exit code 0 when the policy in the certificate
    /// holds, 2 when the certificate is not valid
    Verify(verify::VerifyArgs),
    /// Compute masked attention over tensors in a file, or over an example in this program
    Attend(attend::AttendArgs),
    #[cfg(feature = "models")]
    /// Run a model over a text and show tokens, mask, attention, predictions and hidden text; or run a model over
    /// tokens in a file
    Run(run::RunArgs),
    #[cfg(feature = "models")]
    /// Compute one vector for each line of a text
    Embed(model::embed::EmbedArgs),
    #[cfg(feature = "models")]
    /// Continue prompts with a model
    Generate(model::generate::GenerateArgs),
    #[cfg(feature = "models")]
    /// Show what each layer of a model may read
    Inspect(model::inspect::InspectArgs),
    #[cfg(feature = "models")]
    /// Train a model on a text to predict the next token, masked tokens, or both
    Train(train::TrainArgs),
    #[cfg(feature = "serve")]
    /// Serve the explorer: a page on this machine that shows masks, costs, flows, texts and diagnoses
    Serve(serve::ServeArgs),
    /// Measure the speed limits of this machine, and the fraction of these limits that attention reaches
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  noren completions bash > ~/.local/share/bash-completion/completions/noren")]
    Completions {
        /// The shell for which the script is printed
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    // A negative number is an invalid value, not an unknown option.
    let command = Cli::command().mut_subcommands(|command| command.allow_negative_numbers(true));
    let cli = match command.try_get_matches().and_then(|found| Cli::from_arg_matches(&found)) {
        Ok(cli) => cli,
        Err(error) => {
            return match error.print() {
                // A closed pipe is not an error, also for help texts.
                Err(output) if output.kind() != std::io::ErrorKind::BrokenPipe => unwritten(&output),
                _ => ExitCode::from(error.exit_code() as u8),
            };
        }
    };
    cli.color.write_global();
    match run(&cli) {
        Ok(Verdict::Yes) => ExitCode::SUCCESS,
        Ok(Verdict::No) => ExitCode::from(1),
        Ok(Verdict::Open) => ExitCode::from(3),
        Err(Failure::Output(error)) => unwritten(&error),
        Err(Failure::Input(error)) => report(&error.message, error.hint.as_deref()),
    }
}

fn unwritten(error: &std::io::Error) -> ExitCode {
    report(&format!("the output cannot be written: {error}"), None)
}

fn run(cli: &Cli) -> Result<Verdict> {
    let mut screen = Screen::new(cli.color);
    match &cli.command {
        Command::Show(args) => commands::show::run(args, &mut screen),
        Command::Plan(args) => commands::plan::run(args, &mut screen),
        Command::Partition(args) => commands::partition::run(args, &mut screen),
        Command::Explain(args) => commands::explain::run(args, &mut screen),
        Command::Code(args) => commands::code::run(args, &mut screen),
        Command::Diff(args) => commands::diff::run(args, &mut screen),
        Command::Check(args) => commands::check::run(args, &mut screen),
        Command::Flow(args) => commands::flow::run(args, &mut screen),
        Command::Verify(args) => commands::verify::run(args, &mut screen),
        Command::Attend(args) => commands::attend::run(args, &mut screen),
        #[cfg(feature = "models")]
        Command::Run(args) => commands::run::run(args, &mut screen),
        #[cfg(feature = "models")]
        Command::Embed(args) => model::embed::run(args, &mut screen),
        #[cfg(feature = "models")]
        Command::Generate(args) => model::generate::run(args, &mut screen),
        #[cfg(feature = "models")]
        Command::Inspect(args) => model::inspect::run(args, &mut screen),
        #[cfg(feature = "models")]
        Command::Train(args) => commands::train::run(args, &mut screen),
        #[cfg(feature = "serve")]
        Command::Serve(args) => commands::serve::run(args, &mut screen),
        Command::Bench(args) => commands::bench::run(args, &mut screen),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "noren", &mut script);
            screen.text(String::from_utf8_lossy(&script))?;
            Ok(Verdict::Yes)
        }
    }
}

/// Prints an error and its hint to standard error, and returns exit code 2.
fn report(message: &str, hint: Option<&str>) -> ExitCode {
    anstream::eprintln!("{} {message}", paint(BAD, "error:"));
    if let Some(hint) = hint {
        anstream::eprintln!("{} {hint}", paint(DIM, "hint:"));
    }
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
