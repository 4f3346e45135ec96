//! The command line of `noren bench`.

use super::op::Op;
use crate::failure::{Failure, Result};
use clap::Args;
use noren::Dtype;
use noren::machine::{self, Memory};
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Masks, with commas between them [default: full, causal, sliding(256), causal & documents, padding; for decode:
    /// causal, sliding(256)]
    #[arg(long, value_name = "LIST")]
    pub(super) masks: Option<String>,
    /// Sequence lengths; for decode, numbers of keys in the cache [default: 1024,4096]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = crate::args::count)]
    pub(super) lens: Vec<usize>,
    /// Values of head_dim [default: 64,128]
    #[arg(long, value_name = "D,D,...", value_delimiter = ',')]
    pub(super) dims: Vec<usize>,
    /// Number formats: f32, bf16, f16 [default: f32,bf16]
    #[arg(long, value_name = "T,T,...", value_delimiter = ',')]
    pub(super) dtypes: Vec<Dtype>,
    /// Operations: forward, backward, decode [default: all]
    #[arg(long, value_name = "OP,OP,...", value_delimiter = ',', hide_possible_values = true)]
    pub(super) ops: Vec<Op>,
    /// Number of query heads [default: 16, and 32 for decode]
    #[arg(long, value_name = "H")]
    pub(super) heads: Option<usize>,
    /// Number of key-value heads [default: the value of --heads; without --heads 16, and 8 for decode]
    #[arg(long, value_name = "H")]
    pub(super) kv_heads: Option<usize>,
    /// Numbers of threads [default: one per processor]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub(super) threads: Vec<usize>,
    /// Time for each row of the table, in seconds; at least three runs are timed [default: 1, or 0.05 with --quick]
    #[arg(long, value_name = "SECONDS")]
    pub(super) budget: Option<f64>,
    /// Measure for a few seconds only: full, causal and sliding(256), 1024 tokens, head_dim 64, and the limits of the
    /// machine in short measurements
    #[arg(long)]
    pub(super) quick: bool,
    /// Print one JSON document after all measurements
    #[arg(long)]
    pub(super) json: bool,
}

const EXAMPLES: &str = "\
First measures the limits, for one thread and for all: multiply-add, exp2, softmax, and reading
memory of several sizes. Then prints a row for each case:
  GFLOP/s    operations of allowed pairs: 4 * head_dim per pair, backward 10 * head_dim
  computed   pairs computed / pairs allowed
  GB/s       decode: bytes that must be read and written, each once; a step appends a token
             to a cache, plans, and computes
  of limit   shortest possible time / measured time; the shortest possible time is the longer
             of computing (products at the multiply-add peak, or for bf16 the dot product peak
             if faster, and the softmax of each pair) and reading as many bytes as all arrays
             have, at the rate measured for that number of bytes
Masks may use 'documents' (eight: 1 2 1 3 4 2 2 1 sixteenths of the length) and 'padding' (half).
Other programs that run at the same time slow down all cases: compare only figures of one run.

Examples:
  noren bench --quick
  noren bench --masks 'full,causal,sliding(256) | keys(0..4)' --lens 4096,16384 --dims 128
  noren bench --ops decode --lens 32768 --dims 128 --dtypes f32,bf16
  noren bench --threads 1,2 --budget 3 --json > bench.json";

impl BenchArgs {
    /// Returns the memory sizes for the measurements of the read bandwidth. With `--quick`, a measurement uses at most
    /// 1 GiB, because it writes all of its memory before it reads the memory.
    pub(super) fn memory(&self) -> Memory {
        let memory = machine::memory();
        Memory { available: memory.available.min(if self.quick { 1 << 30 } else { usize::MAX }), ..memory }
    }

    /// Returns two time budgets: for the measurement of one limit of the machine, and for the measurement of one case.
    pub(super) fn times(&self) -> Result<(Duration, Duration)> {
        let (probe, row) = if self.quick { (0.01, 0.05) } else { (0.15, 1.0) };
        let row = self.budget.unwrap_or(row);
        if !(0.0..=86_400.0).contains(&row) {
            return Err(Failure::new(format!("--budget is {row}: give seconds, from 0 to 86400")));
        }
        Ok((Duration::from_secs_f64(probe), Duration::from_secs_f64(row)))
    }
}
