//! `noren plan`: shows the cost of a mask: cells, tiles and memory.

use crate::args::{FactArgs, ShapeArgs, bind};
use crate::failure::{Failure, Result};
use crate::output::{DIM, Screen, paint};
use crate::verdict::Verdict;
use clap::Args;
use noren_mask::{Budget, PlanOptions, Progress, Stats, short_count};
use std::cell::Cell;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::Instant;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// The mask, for example 'causal & documents'
    mask: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Number of values of a query or a key of one head, for the cost of attention and of the key-value cache
    #[arg(long, value_name = "D", default_value_t = 128)]
    head_dim: usize,
    /// Maximum number of steps of planning and of counting [default: 67108864]
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
    #[command(flatten)]
    blocks: BlockArgs,
}

/// The sizes of the tiles of a plan.
#[derive(Args, Clone, Debug)]
pub(crate) struct BlockArgs {
    /// Maximum number of query rows in a tile
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Tiles")]
    pub(crate) block_q: u32,
    /// Number of keys in a tile
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Tiles")]
    pub(crate) block_kv: u32,
}

impl BlockArgs {
    /// Converts the sizes to plan options.
    ///
    /// # Errors
    ///
    /// Returns an error if a size is 0.
    pub(crate) fn options(&self) -> Result<PlanOptions> {
        for (name, value) in [("--block-q", self.block_q), ("--block-kv", self.block_kv)] {
            if value == 0 {
                return Err(Failure::new(format!("{name} is 0: give at least 1")));
            }
        }
        Ok(PlanOptions { block_q: self.block_q, block_kv: self.block_kv, ..PlanOptions::default() })
    }
}

/// The cost of attention in one layer.
#[derive(Clone, Copy, serde::Serialize)]
struct Costs {
    /// Operations of the forward pass over the allowed cells of all heads: `4 * head_dim` for each.
    forward_flops: u128,
    /// Numbers of the keys and values of one token.
    cache_numbers_per_token: u128,
}

impl Costs {
    fn new(stats: &Stats, kv_heads: usize, head_dim: usize) -> Costs {
        let dim = head_dim as u128;
        Costs { forward_flops: 4 * dim * stats.allowed, cache_numbers_per_token: 2 * dim * kv_heads as u128 }
    }
}

#[derive(serde::Serialize)]
struct AsJson<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    #[serde(flatten)]
    costs: Costs,
}

const EXAMPLES: &str = "\
Examples:
  noren plan causal --len 4096 --heads 16
  noren plan 'sliding(4096) | causal & keys(0..4)' --len 1M
  noren plan 'causal & documents' --facts facts.json --json
  noren plan causal --past 8191 --new 1 --heads 32 --kv-heads 8";

pub(crate) fn run(args: &PlanArgs, screen: &mut Screen) -> Result<Verdict> {
    let bound = bind(std::slice::from_ref(&args.mask), &args.shape, &args.facts, &Default::default())?;
    let watch = watch();
    let budget = Budget::new().watch(&watch);
    let budget = args.steps.map_or(budget, |steps| budget.steps(steps));
    let options = args.blocks.options()?;
    let stats = bound.masks[0].plan_within(&options, &budget).and_then(|plan| plan.stats_within(&budget));
    let stats = stats.map_err(|error| {
        let steps = matches!(&error, noren_mask::Error::Budget(message) if message.contains("Budget::steps"));
        let failure = Failure::from(error);
        if steps { failure.hint("--steps N allows more steps") } else { failure }
    })?;
    let costs = Costs::new(&stats, bound.masks[0].shape().kv_head_count(), args.head_dim);
    if args.json {
        screen.json(&AsJson { stats: &stats, costs })?;
        return Ok(Verdict::Yes);
    }
    screen.text(&stats)?;
    screen.line(dense(&stats))?;
    let Costs { forward_flops: flops, cache_numbers_per_token: numbers } = costs;
    screen.line(format!(
        "{:<18} {} FLOPs forward, with head_dim {}",
        "attention",
        short_count(flops),
        args.head_dim
    ))?;
    screen.line(format!("{:<18} {} numbers per token and layer", "key-value cache", short_count(numbers)))?;
    screen.remark(&bound)?;
    Ok(Verdict::Yes)
}

/// Returns a function that prints the progress of planning and counting once per second, if standard error is a
/// terminal.
fn watch() -> impl Fn(Progress) -> ControlFlow<()> {
    let (start, shown) = (Instant::now(), Cell::new(0));
    move |progress| {
        let seconds = start.elapsed().as_secs();
        if shown.replace(seconds) < seconds && std::io::stderr().is_terminal() {
            let Progress { stage, rows, all_rows, .. } = progress;
            anstream::eprintln!("{}", paint(DIM, format!("{stage} ... {rows} of {all_rows} query rows")));
        }
        ControlFlow::Continue(())
    }
}

/// Formats the cost of attention that computes allowed and denied cells, as attention with a mask array does.
fn dense(stats: &Stats) -> String {
    let times = match stats.computed {
        0 => "the plan computes no cell".to_string(),
        n => format!("{:.2} x the plan", stats.cells as f64 / n as f64),
    };
    format!("{:<18} computes {} cells, {times}", "dense masking", short_count(stats.cells))
}
