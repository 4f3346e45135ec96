//! Formats the output of `noren partition`: a report as text, and JSON.

use crate::failure::{Failure, Result};
use crate::output::{DIM, STRONG, paint};
use noren_dist::{Baseline, Measures, Options, Partition, Search, Simulation, count, short_seconds};
use noren_mask::{Plan, short_bytes, short_count};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;

/// Maximum number of ranks for which the report has one line each. With more ranks, it lists only some.
const MOST_RANKS: usize = 16;

/// Returns `value` as one line of JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Failure::new(format!("the result cannot be written as JSON: {e}")))
}

/// Returns the JSON document of `--json`: the partition (`found`), the search, the partitions of other projects
/// (`others`), and the simulation (`simulated`).
pub(super) fn everything(found: &Search, others: &[Baseline], simulated: &Simulation) -> Value {
    let others: Vec<Value> = others.iter().map(|o| json!({"name": o.name, "measures": o.measures})).collect();
    json!({"partition": found.partition, "search": found.rows, "others": others, "simulation": simulated})
}

/// Returns the ranges of queries and keys that each rank computes, in the format of MagiAttention, as JSON `[batch
/// row][rank]`.
pub(super) fn magi(split: &Partition, plan: &Plan) -> Result<Value> {
    let mut rows = Vec::new();
    for batch in 0..split.shape[0] {
        let ranks = split.magi_slices(plan, batch)?;
        let one = |r: &noren_dist::RankSlices| {
            let of = |f: fn(&noren_mask::Slice) -> Value| r.slices.iter().map(f).collect::<Vec<_>>();
            json!({
                "rows": r.rows,
                "keys": r.keys,
                "q_ranges": of(|s| json!(s.rows)),
                "k_ranges": of(|s| json!(s.keys)),
                "attn_type_map": of(|s| json!(s.kind as u8)),
            })
        };
        rows.push(ranks.iter().map(one).collect::<Vec<_>>());
    }
    Ok(json!(rows))
}

/// Returns the whole report as text. `found` is the search and the split (partition) that it found, and `simulated` the
/// simulation of this split. `others` are the splits by other projects, and `slow` the simulations of these splits, in
/// the same order.
pub(super) fn table(
    found: &Search,
    options: &Options,
    others: &[Baseline],
    simulated: &Simulation,
    slow: &[Simulation],
) -> String {
    let mut out = String::new();
    let split = &found.partition;
    let [area, tokens] = options.objective.limits();
    let nodes = if split.nodes > 1 { format!(" on {} nodes", split.nodes) } else { String::new() };
    let _ = writeln!(out, "{:<16} {} over {} ranks{nodes}", "split", paint(STRONG, &split.method), split.ranks);
    let _ = writeln!(
        out,
        "{:<16} a rank has at most {area} times the mean number of cells and {tokens} times the mean number of tokens; within these limits, the traffic is minimised",
        "limits"
    );
    let row = &found.rows[0];
    if found.rows.len() > 1 {
        let _ = writeln!(
            out,
            "{:<16} the batch rows have {} different masks; the numbers below are for the rows with the first mask",
            "batch rows",
            found.rows.len()
        );
    }
    if !row.exact {
        let _ = writeln!(
            out,
            "{:<16} the numbers of cells are estimated from some query rows, because there are too many mixed tiles to count",
            "cells"
        );
    }
    let _ = writeln!(
        out,
        "\n{}",
        paint(DIM, "                        cells  tokens  busiest receives  on average  peers  simulated")
    );
    for (i, candidate) in row.candidates.iter().enumerate().filter(|(i, c)| c.on_front || *i == row.chosen) {
        let time = (i == row.chosen).then_some(simulated.forward);
        let mark = if i == row.chosen { "*" } else { " " };
        line(&mut out, mark, &candidate.method, &candidate.measures, time);
    }
    if !others.is_empty() {
        let _ = writeln!(
            out,
            "{}",
            paint(DIM, "splits of other projects, in which a rank receives only the keys that it needs")
        );
    }
    for (other, slow) in others.iter().zip(slow) {
        line(&mut out, " ", other.name, &other.measures, Some(slow.forward));
    }
    if let Some(bound) = &row.bound {
        let _ = writeln!(
            out,
            "\n{:<16} in every split, the busiest rank receives at least {}: {}",
            "lower bound",
            bytes(bound.bytes),
            bound.why
        );
    }
    let _ = write!(out, "\n{simulated}");
    ranks(&mut out, found, options);
    let _ = writeln!(out, "{:<16} {}", "hash", &split.hash[..16]);
    out
}

fn line(out: &mut String, mark: &str, name: &str, m: &Measures, seconds: Option<f64>) {
    let time = seconds.map_or(String::new(), short_seconds);
    let row = format!(
        "{mark} {name:<20} {:>6.3}  {:>6.3}  {:>16}  {:>10}  {:>5}  {time:>10}",
        m.area,
        m.tokens,
        bytes(m.received),
        bytes(m.mean_received as u64),
        m.peers
    );
    let _ = writeln!(out, "{}", row.trim_end());
}

/// Appends one line per rank to `out`: the tokens, the cells and the traffic of the rank.
fn ranks(out: &mut String, found: &Search, options: &Options) {
    let split = &found.partition;
    if split.ranks > MOST_RANKS {
        return;
    }
    let traffic = split.traffic(&options.wire);
    let title = "rank      tokens       cells    receives       sends  foreign rows  steps";
    let _ = writeln!(out, "\n{}", paint(DIM, title));
    for (rank, share) in split.rows[0].shares.iter().enumerate() {
        let foreign: u64 = share.receives.iter().map(|e| count(&e.rows)).sum();
        let _ = writeln!(
            out,
            "{rank:>4}  {:>10}  {:>10}  {:>10}  {:>10}  {foreign:>12}  {:>5}",
            share.tokens(),
            short_count(found.rows[0].areas[rank][0] as u128),
            bytes(traffic[rank].received),
            bytes(traffic[rank].sent),
            share.steps.len()
        );
    }
}

fn bytes(value: u64) -> String {
    short_bytes(value.into())
}
