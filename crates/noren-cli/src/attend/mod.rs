//! `noren attend`: masked attention over tensors in a file, or over the example that comes with the program.

mod example;
pub(crate) mod heat;
mod inputs;
mod job;
mod minimap;
pub(crate) mod report;
mod verify;

use crate::Verdict;
use crate::args::{FactArgs, SideArg};
use crate::failure::Result;
use crate::output::Screen;
use crate::target::Target;
use clap::Args;
use inputs::Inputs;
use job::Job;
use noren_input::tensors::{self, TensorFile};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AttendArgs {
    /// Safetensors file with q, k, v and what the mask's scores name; without it an example runs
    input: Option<PathBuf>,
    /// Mask and scores, for example 'causal & padding + softcap(5)' [default: full; padding in the example]
    #[arg(long, short, value_name = "SPEC")]
    mask: Option<String>,
    /// JSON: {"lengths": [5, 3], "documents": [[2, 3], [3]], "levels": [0, 2], "labels": {"pii": [3, 4]}}
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Real tokens by batch row: 5,3
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    lengths: Vec<usize>,
    /// Where padding stands [default: right]
    #[arg(long, value_enum, requires = "lengths", hide_possible_values = true, value_name = "left|right")]
    side: Option<SideArg>,
    /// The layer that layers(...) is asked about
    #[arg(long, value_name = "L")]
    layer: Option<u64>,
    /// Position of the first query, one number or one per batch row; needed when q and k differ in length
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    query_offset: Vec<i64>,
    /// Multiplies q . k [default: 1 / sqrt(head_dim)]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    scale: Option<f32>,
    /// Write out [batch, heads, q_len, v_dim] and lse [batch, heads, q_len] to this safetensors file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare with the 64-bit reference, which is slow; exit code 1 when they disagree
    #[arg(long)]
    verify: bool,
    /// Threads that compute [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// In the example: whose attention to show
    #[arg(long, value_name = "H", default_value_t = 1, conflicts_with = "input", help_heading = "Example")]
    head: usize,
    /// In the example: the sentence to show
    #[arg(long, value_name = "B", default_value_t = 0, conflicts_with = "input", help_heading = "Example")]
    batch_row: usize,
}

const EXAMPLES: &str = "\
Tensors are 32-bit floats:
  q         [batch, heads, q_len, head_dim]
  k, v      [batch, kv_heads, kv_len, head_dim], the last of v may differ
  bias      broadcasts to [batch, heads, q_len, kv_len]; so does soft
  sinks     [heads]
  relative  [heads, 2 * reach + 1]
A score reads the tensor that it names: '+ bias' reads bias, '+ bias(b0)' reads b0.
NOREN_ISA=portable, avx2, avx512 or avx512bf16 forces a processor path.

Examples:
  noren attend
  noren attend --batch-row 5 --head 2 --mask 'padding & sliding(6)'
  noren attend qkv.safetensors --mask causal -o out.safetensors
  noren attend qkv.safetensors --mask 'causal & padding + softcap(5)' --facts facts.json --verify
  noren attend step.safetensors --mask causal --query-offset 100 --json";

impl AttendArgs {
    fn facts(&self) -> FactArgs {
        FactArgs { lengths: self.lengths.clone(), side: self.side, facts: self.facts.clone(), layer: self.layer }
    }
}

pub(crate) fn run(args: &AttendArgs, screen: &mut Screen) -> Result<Verdict> {
    // What cannot be written is better known before the work than after it.
    let target = args.output.as_deref().map(Target::new).transpose()?;
    let Some(path) = &args.input else { return example::run(args, target.as_ref(), screen) };
    let spec = crate::args::parse(args.mask.as_deref().unwrap_or("full"), args.layer)?;
    let (facts, _) = args.facts().read(&[])?;
    let inputs = Inputs::read(&mut TensorFile::open(path)?, &spec)?;
    let job = Job::new(&inputs, &spec, &facts, args)?;
    let done = job.run()?;
    let check = if args.verify { Some(verify::against_reference(&job, &done)?) } else { None };
    save(target.as_ref(), &done)?;
    let report = report::Report::new(&job, &done, check.clone(), args);
    if args.json {
        screen.json(&report)?;
    } else {
        screen.line(format!("{:<9} {}", "input", path.display()))?;
        report.print(screen)?;
    }
    Ok(match check {
        Some(check) if !check.holds => Verdict::No,
        _ => Verdict::Yes,
    })
}

/// Writes `out` and `lse` where they are wanted.
fn save(target: Option<&Target>, done: &job::Done) -> Result<()> {
    let Some(target) = target else { return Ok(()) };
    let shape = done.output.shape;
    target
        .write(|out| tensors::write(out, &[("out", &shape, &done.output.out), ("lse", &shape[..3], &done.output.lse)]))
}
