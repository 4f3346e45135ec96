//! `noren partition`: splits the computation of a mask over many processes (ranks).

mod report;

use crate::args::{FactArgs, ShapeArgs, bind, choice};
use crate::failure::{Failure, Result};
use crate::output::{Screen, with_note};
use crate::target::Target;
use crate::verdict::Verdict;
use clap::Args;
use clap::builder::TypedValueParser;
use noren_dist::{Costs, Machine, Objective, Options, Travel, Wire, compare, picture, search, simulate};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PartitionArgs {
    /// The mask, for example 'causal & documents'
    mask: String,
    /// Number of ranks: processes that compute together, such as one per GPU
    #[arg(long, short = 'r', value_name = "R")]
    ranks: usize,
    /// Number of nodes (machines); consecutive ranks are on one node, as evenly as possible
    #[arg(long, value_name = "K", default_value_t = 1)]
    nodes: usize,
    /// The numbers that are made equal for all ranks before the traffic is minimised: those of cells, closely (balanced) or
    /// roughly (traffic), or those of tokens (tokens)
    #[arg(long, value_parser = objective(), default_value = "balanced", hide_possible_values = true, value_name = "balanced|traffic|tokens")]
    objective: Objective,
    /// Send only keys and values: each query row is computed by the rank that owns the row
    #[arg(long)]
    keys_only: bool,
    /// Print JSON: the split with the computation steps and the data exchanges of each rank, the search for the split,
    /// and the splits of other projects
    #[arg(long)]
    json: bool,
    /// Print the split as JSON for MagiAttention (magi) or for PyTorch's context parallelism (torch)
    #[arg(long, value_enum, hide_possible_values = true, value_name = "magi|torch", conflicts_with = "json")]
    export: Option<ExportArg>,
    /// Write a picture of the tokens, cells and received keys of each rank: .svg
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    wire: WireArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    facts: FactArgs,
}

/// Sizes of the data that ranks exchange, in bytes, and speeds of the simulated machines.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Machine (simulated)")]
struct WireArgs {
    /// Number of values of a key of one head
    #[arg(long, value_name = "D", default_value_t = 128)]
    head_dim: usize,
    /// Size of one value of queries, keys and values, in bytes
    #[arg(long, value_name = "N", default_value_t = 2)]
    element_bytes: usize,
    /// Size of one value of the partial results that ranks exchange, in bytes
    #[arg(long, value_name = "N", default_value_t = 4)]
    partial_bytes: usize,
    /// Speed of a rank in the forward pass without a mask, in GFLOP/s [default: 375, two cores of an AMD EPYC of family 26 in f32]
    #[arg(long, value_name = "GFLOP/S")]
    gflops: Option<f64>,
    /// Bandwidth into a rank from ranks on the same node, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = 10.0)]
    near: f64,
    /// Bandwidth into a rank from ranks on other nodes, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = 1.25)]
    far: f64,
    /// Time from the sending of a message to the arrival of its first byte, in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 30.0)]
    latency: f64,
}

impl WireArgs {
    fn wire(&self) -> Wire {
        let WireArgs { head_dim, element_bytes: element, partial_bytes: partial, .. } = *self;
        Wire { head_dim, v_dim: head_dim, element, partial }
    }

    fn machine(&self) -> Result<Machine> {
        let given = [("--near", self.near), ("--far", self.far), ("--gflops", self.gflops.unwrap_or(1.0))];
        if let Some((name, value)) = given.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            return Err(Failure::new(format!("{name} is {value}: give a number above 0")));
        }
        if !(self.latency.is_finite() && self.latency >= 0.0) {
            return Err(Failure::new(format!("--latency is {}: give 0 or more", self.latency)));
        }
        let costs = self.gflops.map_or_else(Costs::default, Costs::at);
        Ok(Machine { costs, near: self.near * 1e9, far: self.far * 1e9, latency: self.latency * 1e-6 })
    }
}

/// Returns the parser of the goal of a split.
fn objective() -> impl TypedValueParser<Value = Objective> {
    choice([("balanced", Objective::Balanced), ("traffic", Objective::Traffic), ("tokens", Objective::Tokens)])
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum ExportArg {
    /// The slices of each rank, in the format of MagiAttention
    Magi,
    /// Indices for a load balancer of PyTorch's context parallelism
    Torch,
}

const EXAMPLES: &str = "\
Examples:
  noren partition 'causal & documents([90000, 41072])' --len 131072 --ranks 8
  noren partition 'sliding(4096)' --len 1048576 --ranks 256 --nodes 32
  noren partition causal --len 131072 --ranks 8 --heads 32 --kv-heads 8 -o split.svg
  noren partition causal --len 4096 --ranks 4 --keys-only --objective tokens --export torch
  noren partition causal --past 32767 --new 1 --heads 32 --kv-heads 8 --ranks 4";

pub(crate) fn run(args: &PartitionArgs, screen: &mut Screen) -> Result<Verdict> {
    let target = args.output.as_deref().map(|path| Target::svg(path, "end the file name with .svg")).transpose()?;
    let (wire, machine) = (args.wire.wire(), args.wire.machine()?);
    let bound = bind(std::slice::from_ref(&args.mask), &args.shape, &args.facts, &Default::default())?;
    let plan = bound.masks[0].plan();
    let options = Options {
        ranks: args.ranks,
        nodes: args.nodes,
        travel: if args.keys_only { Travel::Keys } else { Travel::Both },
        objective: args.objective,
        far: machine.near / machine.far,
        wire,
        ..Options::default()
    };
    let found = with_note("splitting ...", || search(&plan, &options))?;
    if let Some(target) = target {
        let svg = picture(&plan, &found.partition, 0, 0, &wire)?;
        target.write(|out| out.write_all(svg.as_bytes()))?;
    }
    match args.export {
        Some(ExportArg::Torch) => screen.line(report::json(&found.partition.torch_indices()?)?)?,
        Some(ExportArg::Magi) => screen.line(report::json(&report::magi(&found.partition, &plan)?)?)?,
        None => {
            let others =
                with_note("computing the splits of other projects, for comparison ...", || compare(&plan, &options))?;
            let simulated = simulate(&plan, &found.partition, &wire, &machine)?;
            if args.json {
                screen.line(report::json(&report::everything(&found, &others, &simulated))?)?;
                return Ok(Verdict::Yes);
            }
            let mut slow = Vec::new();
            for other in &others {
                slow.push(simulate(&plan, &other.partition, &wire, &machine)?);
            }
            screen.text(report::table(&found, &options, &others, &simulated, &slow))?;
            screen.remark(&bound)?;
        }
    }
    Ok(Verdict::Yes)
}
