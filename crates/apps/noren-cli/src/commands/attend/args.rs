//! The command line of `noren attend`.

use crate::args::FactArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AttendArgs {
    /// Safetensors file with q, k, v and the tensors that scores name [default: an example in this program]
    pub(super) input: Option<PathBuf>,
    /// Mask and score modifiers, for example 'causal & padding + softcap(5)' [default: full, or padding for the
    /// example]
    #[arg(long, short, value_name = "SPEC")]
    pub(super) mask: Option<String>,
    /// Position of the first query: one number, or one number per batch row; required if q and k differ in length
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    pub(super) query_offset: Vec<i64>,
    /// Factor by which each product q . k is multiplied [default: 1 / sqrt(head_dim)]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(super) scale: Option<f32>,
    /// Write out [batch, heads, q_len, v_dim] and lse [batch, heads, q_len] to this safetensors file
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Compare the output with the slow 64-bit reference; exit code 1 if they differ by more than rounding
    #[arg(long)]
    pub(super) verify: bool,
    /// Number of threads [default: one per processor]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// In the example: index of the head whose attention is shown
    #[arg(long, value_name = "H", default_value_t = 1, conflicts_with = "input", help_heading = "Example")]
    pub(super) head: usize,
    /// In the example: index of the sentence whose attention is shown
    #[arg(long, value_name = "B", default_value_t = 0, conflicts_with = "input", help_heading = "Example")]
    pub(super) batch_row: usize,
    #[command(flatten)]
    pub(super) facts: FactArgs,
}

const EXAMPLES: &str = "\
Tensors are 32-bit floats:
  q         [batch, heads, q_len, head_dim]
  k, v      [batch, kv_heads, kv_len, head_dim]; the last dimension of v may differ
  bias      broadcasts to [batch, heads, q_len, kv_len]; so does soft
  sinks     [heads]
  relative  [heads, 2 * reach + 1]
A score reads the tensor that it names: '+ bias' reads bias, '+ bias(b0)' reads b0. NOREN_ISA=portable, neon, avx2, avx512, avx512bf16 or amx forces a processor path.

Examples:
  noren attend
  noren attend --batch-row 5 --head 2 --mask 'padding & sliding(6)'
  noren attend qkv.safetensors --mask causal -o out.safetensors
  noren attend qkv.safetensors --mask 'causal & padding + softcap(5)' --facts facts.json --verify
  noren attend step.safetensors --mask causal --query-offset 100 --json";
