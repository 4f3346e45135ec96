//! `noren bench`: what this machine can do at best, and how much of that attention reaches.

mod cases;
mod limits;
mod ops;
mod report;

use crate::Verdict;
use crate::failure::{Failure, Result};
use crate::output::Screen;
use crate::progress::Progress;
use cases::Case;
use clap::Args;
use limits::Limits;
use noren::machine::{self, Memory};
use noren::{Dtype, Isa};
use ops::Op;
use report::{Report, Row};
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Masks, with commas between them [default: full, causal, sliding(256), causal & documents, padding]
    #[arg(long, value_name = "LIST")]
    masks: Option<String>,
    /// Lengths: queries and keys, or keys in the cache of decode [default: 1024,4096]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    lens: Vec<usize>,
    /// Values of head_dim [default: 64,128]
    #[arg(long, value_name = "D,D,...", value_delimiter = ',')]
    dims: Vec<usize>,
    /// f32, bf16, f16 [default: f32,bf16]
    #[arg(long, value_name = "T,T,...", value_delimiter = ',')]
    dtypes: Vec<Dtype>,
    /// forward, backward, decode [default: all]
    #[arg(long, value_name = "OP,OP,...", value_delimiter = ',', hide_possible_values = true)]
    ops: Vec<Op>,
    /// Query heads [default: 16, and 32 for decode]
    #[arg(long, value_name = "H")]
    heads: Option<usize>,
    /// Key-value heads [default: as many as heads, and 8 for decode]
    #[arg(long, value_name = "H")]
    kv_heads: Option<usize>,
    /// Numbers of threads [default: one per processor]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Seconds of timed runs aimed at for each row; at least three runs are made [default: 1, or 0.05 with --quick]
    #[arg(long, value_name = "SECONDS")]
    budget: Option<f64>,
    /// A few seconds in all: full, causal and sliding(256), 1024 tokens, head_dim 64, short probes
    #[arg(long)]
    quick: bool,
    /// Print one JSON document, once everything is measured
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
First the limits, for one thread and all: multiply-add, exp2, softmax, reading memory by size.
Then a row for each case:
  GFLOP/s    operations of allowed pairs: 4 * head_dim each, backward 10 * head_dim
  computed   pairs computed / pairs allowed
  GB/s       decode: bytes that have to be read and written, each once; a step appends a token
             to a cache, plans, and computes
  of limit   the least time that the limits leave / the time taken: products at the
             multiply-add peak (bf16: of dot products, where faster) and one softmax row
             for each pair, or every array read or written once, whichever is longer
Masks may use 'documents' (eight: 1 2 1 3 4 2 2 1 sixteenths of the length) and 'padding' (half).
Other programs that run meanwhile make everything worse: compare figures of one run.

Examples:
  noren bench --quick
  noren bench --masks 'full,causal,sliding(256) | keys(0..4)' --lens 4096,16384 --dims 128
  noren bench --ops decode --lens 32768 --dims 128 --dtypes f32,bf16
  noren bench --threads 1,2 --budget 3 --json > bench.json";

pub(crate) fn run(args: &BenchArgs, screen: &mut Screen) -> Result<Verdict> {
    // What cannot be measured is better known before the limits are.
    let cases = Case::all(args)?;
    let isa = Isa::choose(None)?;
    let (probe_time, budget) = args.times()?;
    let mut threads: Vec<usize> = cases.iter().map(|case| case.threads).chain([1]).collect();
    threads.sort_unstable();
    threads.dedup();

    let memory = args.memory();
    let plan = limits::probes(&memory, &threads);
    let mut progress = Progress::new(Some((plan.len() + cases.len()) as u64));
    let mut limits = Limits::new(isa, memory);
    for (probe, threads) in plan {
        progress.message(format!("{probe}, {threads} threads"));
        progress.add(1);
        limits.measure(probe, threads, probe_time);
    }
    let mut report = Report::new(limits, &threads);
    if !args.json {
        progress.aside(|| report.print_limits(screen))?;
    }
    for case in cases {
        progress.message(case.to_string());
        progress.add(1);
        let row = Row::new(&case, &ops::measure(&case, budget)?, &report.limits);
        if !args.json {
            progress.aside(|| row.print(report.rows.is_empty(), screen))?;
        }
        report.rows.push(row);
    }
    drop(progress);
    if args.json {
        screen.json(&report)?;
    }
    Ok(Verdict::Yes)
}

impl BenchArgs {
    /// The memory to read. All of a gigabyte has to be written before; a quarter is beyond most caches too.
    fn memory(&self) -> Memory {
        let memory = machine::memory();
        Memory { available: memory.available.min(if self.quick { 1 << 30 } else { usize::MAX }), ..memory }
    }

    /// How long a probe runs, and how long a row.
    fn times(&self) -> Result<(Duration, Duration)> {
        let (probe, row) = if self.quick { (0.01, 0.05) } else { (0.15, 1.0) };
        let row = self.budget.unwrap_or(row);
        if !(0.0..=86_400.0).contains(&row) {
            return Err(Failure::new(format!("--budget is {row}: give seconds, from 0 to 86400")));
        }
        Ok((Duration::from_secs_f64(probe), Duration::from_secs_f64(row)))
    }
}
