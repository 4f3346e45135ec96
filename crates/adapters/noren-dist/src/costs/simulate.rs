//! [`simulate`]: estimates the time of a partition on other machines. Nothing is measured.

use crate::Error;
use crate::costs::Machine;
use crate::costs::measure::over_mean;
use crate::partition::runs::count;
use crate::partition::strips::Strips;
use crate::partition::wire::{Sizes, Wire};
use crate::partition::{Partition, Share, Step};
use noren_mask::{Plan, short_bytes};
use serde::Serialize;
use std::fmt;

/// One simulated forward and backward pass of one attention layer.
///
/// The simulation works as follows. A rank first computes the steps that need no data of other ranks; messages arrive
/// in the meantime. Each message needs the latency and the bandwidth of its connection. Then the rank computes the
/// remaining steps, and sends back the results of rows of other ranks. The pass ends when the slowest rank ends.
/// Contention and the time to merge results are left out.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Simulation {
    /// Always true, because a simulation measures nothing on real machines.
    pub simulated: bool,
    /// Number of ranks.
    pub ranks: usize,
    /// Seconds of the forward pass.
    pub forward: f64,
    /// Seconds of the backward pass.
    pub backward: f64,
    /// Seconds of the forward pass if the work were divided evenly among the ranks and no data were sent.
    pub forward_ideal: f64,
    /// The largest number of allowed cells that a rank computes, divided by the mean over ranks.
    pub area: f64,
    /// The largest number of tokens that a rank owns, divided by the mean over ranks.
    pub tokens: f64,
    /// Maximum over ranks of the bytes that a rank receives from other ranks of its own node in the forward pass.
    pub near: u64,
    /// Maximum over ranks of the bytes that a rank receives from other nodes in the forward pass.
    pub far: u64,
    /// The largest number of steps (rectangles of query rows x keys) that a rank computes.
    pub steps: usize,
    /// Maximum over ranks of the bytes that a rank holds in the forward pass: the queries, keys, values and outputs of
    /// its own tokens, and the data that it receives.
    pub memory: u64,
}

/// Simulates a forward and a backward pass of one attention layer by the partition of a planned mask.
///
/// ```
/// use noren_dist::{Machine, Options, Wire, partition, simulate};
/// use noren_mask::{Facts, Shape, atoms::*};
/// let plan = causal().bind(&Shape::square(4096), &Facts::new())?.plan();
/// let split = partition(&plan, &Options { ranks: 4, ..Options::default() })?;
/// let run = simulate(&plan, &split, &Wire::default(), &Machine::default())?;
/// assert!(run.simulated && run.forward >= run.forward_ideal);
/// # Ok::<(), noren_dist::Error>(())
/// ```
///
/// # Errors
/// Returns an error if the partition has another shape.
pub fn simulate(plan: &Plan, partition: &Partition, wire: &Wire, machine: &Machine) -> Result<Simulation, Error> {
    let shape = plan.shape();
    partition.check_shape(shape)?;
    let sizes = wire.sizes(shape.head_count(), shape.kv_head_count());
    let grain = grain(shape.q_len(), partition.ranks);
    let mut ranks = vec![Rank::default(); partition.ranks];
    let mut strips: Vec<Option<Strips>> = partition.rows.iter().map(|_| None).collect();
    for (batch, &row) in partition.row_of.iter().enumerate() {
        let strips = strips[row].get_or_insert_with(|| Strips::new(plan, batch, grain));
        for (rank, (sum, share)) in ranks.iter_mut().zip(&partition.rows[row].shares).enumerate() {
            sum.add(rank as u32, share, strips, partition, &sizes);
        }
    }
    let d = wire.head_dim;
    let cells = |r: &Rank| [r.local[0] + r.rest[0], r.local[1] + r.rest[1]];
    let all = ranks.iter().map(cells).fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    let slowest = |seconds: &dyn Fn(&Rank) -> f64| ranks.iter().map(seconds).fold(0.0, f64::max);
    Ok(Simulation {
        simulated: true,
        ranks: partition.ranks,
        forward: slowest(&|r| r.seconds(machine, |cells| machine.costs.forward(cells, d), [0, 1])),
        backward: slowest(&|r| r.seconds(machine, |cells| machine.costs.backward(cells, d), [2, 3])),
        forward_ideal: machine.costs.forward(all, d) / partition.ranks as f64,
        area: over_mean(ranks.iter().map(|r| cells(r)[0])),
        tokens: over_mean(ranks.iter().map(|r| r.tokens as f64)),
        near: ranks.iter().map(|r| r.near[0] + r.near[1]).max().unwrap_or(0),
        far: ranks.iter().map(|r| r.far[0] + r.far[1]).max().unwrap_or(0),
        steps: ranks.iter().map(|r| r.steps).max().unwrap_or(0),
        memory: ranks.iter().map(|r| r.memory).max().unwrap_or(0),
    })
}

/// Returns the number of consecutive query rows of a strip, for a simulation. The allowed cells of a strip are counted
/// together.
pub(crate) fn grain(q_len: usize, ranks: usize) -> u32 {
    (q_len / ranks / 16).clamp(1, 128).max(q_len >> 15) as u32
}

/// The work of one rank.
///
/// * `local`, `rest`: the numbers of allowed cells, `[all, in tiles with denied cells]`, in steps that need no data of
///   other ranks, and in all other steps.
/// * `near`, `far`: the bytes that the rank receives from its own node, and from other nodes: `[forward before the
///   computation, forward after it, backward before it, backward after it]`.
#[derive(Clone, Copy, Default)]
struct Rank {
    local: [f64; 2],
    rest: [f64; 2],
    near: [u64; 4],
    far: [u64; 4],
    messages: u32,
    tokens: u64,
    steps: usize,
    memory: u64,
}

impl Rank {
    fn add(&mut self, rank: u32, share: &Share, strips: &Strips, partition: &Partition, sizes: &Sizes) {
        for step in &share.steps {
            let cells = cells(step, strips);
            let sum = if step.peer == rank && !step.foreign { &mut self.local } else { &mut self.rest };
            *sum = [sum[0] + cells[0], sum[1] + cells[1]];
        }
        let mut foreign = 0;
        for (exchange, comes) in share.receives.iter().map(|e| (e, true)).chain(share.sends.iter().map(|e| (e, false)))
        {
            let [there, back, again, gradients] = sizes.of(exchange);
            // Before the computation, a rank receives from the peers in `receives`; after the computation, it receives
            // results from the peers in `sends`.
            let kinds = if comes { [there, 0, again, 0] } else { [0, back, 0, gradients] };
            let same = partition.node_of(rank) == partition.node_of(exchange.peer);
            let wires = if same { &mut self.near } else { &mut self.far };
            wires.iter_mut().zip(kinds).for_each(|(sum, bytes)| *sum += bytes);
            if comes {
                self.messages += 1;
                foreign += count(&exchange.rows) * sizes.result + there;
            }
        }
        self.steps += share.steps.len();
        self.tokens += share.tokens();
        let own = count(&share.queries) * (sizes.query + sizes.result) + count(&share.keys) * sizes.key;
        self.memory += own + foreign;
    }

    fn seconds(&self, machine: &Machine, compute: impl Fn([f64; 2]) -> f64, [before, after]: [usize; 2]) -> f64 {
        let wire = |kind: usize| self.near[kind] as f64 / machine.near + self.far[kind] as f64 / machine.far;
        let latency = |kind: usize| if wire(kind) > 0.0 { machine.latency } else { 0.0 };
        let arrive = wire(before) + f64::from(self.messages) * latency(before);
        let (local, rest) = (compute(self.local), compute(self.rest));
        // Steps begin as their keys arrive, so computing and receiving overlap except for the last message.
        let last = arrive / f64::from(self.messages.max(1));
        (local + rest).max(arrive + rest / f64::from(self.messages.max(1))).max(local.max(last) + rest)
            + wire(after)
            + latency(after)
    }
}

/// Returns the estimated numbers of allowed cells of a step over all heads, `[all, in mixed tiles]`. A mixed tile has
/// allowed and denied cells.
pub(crate) fn cells(step: &Step, strips: &Strips) -> [f64; 2] {
    let mut sum = [0.0; 2];
    for rows in &step.rows {
        for keys in &step.keys {
            let [all, mixed] = strips.estimate(*rows, *keys);
            sum = [sum[0] + all, sum[1] + mixed];
        }
    }
    sum
}

/// Prints the measures of the simulation as a table.
impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: String| writeln!(f, "{name:<22} {value}");
        line(
            "simulated forward",
            format!(
                "{}  ({} if the work is equal on all ranks and sending takes no time)",
                short_seconds(self.forward),
                short_seconds(self.forward_ideal)
            ),
        )?;
        line("simulated backward", short_seconds(self.backward))?;
        line(
            "simulated wires",
            format!("{} in a node, {} between nodes, maximum over ranks", bytes(self.near), bytes(self.far)),
        )?;
        line("simulated memory", format!("{}, maximum over ranks", bytes(self.memory)))?;
        line("simulated steps", format!("{}, maximum over ranks", self.steps))
    }
}

/// Returns a time with its unit, such as `31.4 ms`.
pub fn short_seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 99.5 => format!("{s:.0} s"),
        s if s >= 0.9995 => format!("{s:.2} s"),
        s if s >= 0.9995e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

fn bytes(value: u64) -> String {
    short_bytes(value.into())
}
