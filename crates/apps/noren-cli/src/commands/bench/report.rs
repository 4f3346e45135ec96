//! Formats the measurements as a text table and as JSON.

use super::cases::Case;
use super::limits::{Bound, Limits};
use super::ops::Measured;
use crate::failure::Result;
use crate::output::{DIM, STRONG, Screen, paint};
use noren::machine::{self, Probe};
use noren_mask::short_bytes;
use serde::{Serialize, Serializer};
use std::fmt::Write;
use std::time::Duration;

/// The results of a benchmark: the measured speed limits of the machine, and one row for each case.
#[derive(Serialize)]
pub(super) struct Report {
    noren: &'static str,
    processor: String,
    isa: String,
    /// Numbers of threads with which the limits were measured.
    threads: Vec<usize>,
    #[serde(serialize_with = "limits_as_json")]
    pub(super) limits: Limits,
    /// The names of the measurements that were left out, each with the reason.
    not_measured: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// The measured result of one benchmark case, as a row of the table.
#[derive(Serialize)]
pub(super) struct Row {
    op: String,
    dtype: String,
    mask: String,
    q_len: usize,
    kv_len: usize,
    head_dim: usize,
    heads: usize,
    kv_heads: usize,
    threads: usize,
    runs: usize,
    ms_median: f64,
    ms_min: f64,
    /// Number of allowed pairs of query and key, summed over all heads.
    allowed: u128,
    computed_per_allowed: f64,
    planning_ms: f64,
    /// Floating-point operations on allowed cells in the run with the median time, in billions per second.
    gflops: f64,
    /// The bytes of arrays that must be read or written, divided by the median time, in GB/s (10^9 bytes per second).
    gb_per_s: f64,
    /// The shortest possible time under the limits of the machine, in milliseconds; `None` if a limit was not measured.
    limit_ms: Option<f64>,
    bound: Option<Bound>,
    /// The shortest possible time divided by the median time, `limit_ms / ms_median`; `None` if a limit was not
    /// measured.
    of_limit: Option<f64>,
}

impl Report {
    pub(super) fn new(limits: Limits, threads: &[usize]) -> Report {
        let mut not_measured = Vec::new();
        let has_dot = Probe::Bf16Dot.is_available();
        for (name, there) in [("bf16 dot", has_dot), ("bf16 tiles", Probe::Tiles.is_available())] {
            if !there {
                not_measured.push(format!("{name}: this processor lacks these instructions"));
            }
        }
        Report {
            noren: env!("CARGO_PKG_VERSION"),
            processor: machine::processor(),
            isa: limits.isa.to_string(),
            threads: threads.to_vec(),
            limits,
            not_measured,
            rows: Vec::new(),
        }
    }

    /// Prints the machine and its measured limits.
    pub(super) fn print_limits(&self, screen: &mut Screen) -> Result<()> {
        screen.line(format!("{}, {}", self.processor, self.isa))?;
        let mut head = format!("{:<18}", "limit");
        for n in &self.threads {
            let name = if *n == 1 { "1 thread".to_owned() } else { format!("{n} threads") };
            write!(head, "{name:>12}").expect("a write to a String cannot fail");
        }
        screen.line(format!("\n{}", paint(STRONG, head)))?;
        let mut rates = self.limits.rates.as_slice();
        while let Some((probe, threads, _)) = rates.first() {
            let (name, unit) = self.limits.describe(probe, *threads);
            let same = rates.iter().take_while(|(probe, n, _)| self.limits.describe(probe, *n).0 == name).count();
            let mut line = format!("{name:<18}");
            for n in &self.threads {
                let found = rates[..same].iter().find(|(_, threads, _)| threads == n);
                let cell = found.map_or("-".to_owned(), |(_, _, rate)| significant(rate.median / 1e9));
                write!(line, "{cell:>12}").expect("a write to a String cannot fail");
            }
            let size = match probe {
                Probe::Read { bytes } => format!("  {}", short_bytes((bytes / threads) as u128)),
                _ => String::new(),
            };
            screen.line(format!("{line}  {unit}{}", paint(DIM, size)))?;
            rates = &rates[same..];
        }
        for line in &self.not_measured {
            screen.line(paint(DIM, line))?;
        }
        Ok(())
    }
}

impl Row {
    /// Returns the table row of a measured case. To find the limit of memory, measures for about `probe_time` how fast
    /// the machine reads as many bytes as the case has.
    pub(super) fn new(case: &Case, measured: &Measured, limits: &Limits, probe_time: Duration) -> Row {
        let Measured { times, stats, work, computed_per_allowed } = measured;
        let median = times[times.len() / 2].as_secs_f64().max(1e-9);
        let least = limits.least_seconds(work, case.dtype, case.threads, probe_time);
        Row {
            op: case.op.to_string(),
            dtype: case.dtype.to_string(),
            mask: case.spec.to_string(),
            q_len: case.q_len(),
            kv_len: case.len,
            head_dim: case.dim,
            heads: case.heads,
            kv_heads: case.kv_heads,
            threads: case.threads,
            runs: times.len(),
            ms_median: median * 1e3,
            ms_min: times[0].as_secs_f64() * 1e3,
            allowed: stats.allowed,
            computed_per_allowed: *computed_per_allowed,
            planning_ms: stats.planning_seconds * 1e3,
            gflops: work.flop / median / 1e9,
            gb_per_s: work.bytes / median / 1e9,
            limit_ms: least.map(|(seconds, _)| seconds * 1e3),
            bound: least.map(|(_, bound)| bound),
            of_limit: least.map(|(seconds, _)| seconds / median),
        }
    }

    /// Prints one line of the table. If `first` is true, prints the table heading before the line.
    pub(super) fn print(&self, first: bool, screen: &mut Screen) -> Result<()> {
        if first {
            let head = format!(
                "{:<8} {:<5} {:<20} {:>7} {:>4} {:>3} {:>9} {:>8} {:>8} {:>6}  {}",
                "op", "dtype", "mask", "len", "dim", "thr", "ms", "GFLOP/s", "computed", "GB/s", "of limit"
            );
            screen.line(format!("\n{}", paint(STRONG, head)))?;
        }
        let bandwidth = if self.q_len == 1 { significant(self.gb_per_s) } else { String::new() };
        let limit = match (self.of_limit, self.bound) {
            (Some(share), Some(bound)) => {
                let name = if bound == Bound::Memory { "memory" } else { "compute" };
                format!("{:>3.0} % {}", share * 100.0, paint(DIM, name))
            }
            _ => String::new(),
        };
        screen.line(format!(
            "{:<8} {:<5} {:<20} {:>7} {:>4} {:>3} {:>9} {:>8} {:>8.2} {bandwidth:>6}  {limit}",
            self.op,
            self.dtype,
            self.mask,
            self.kv_len,
            self.head_dim,
            self.threads,
            significant(self.ms_median),
            significant(self.gflops),
            self.computed_per_allowed,
        ))
    }
}

/// Formats a number with three significant digits, and with at most three decimals.
fn significant(value: f64) -> String {
    let digits = match value.abs() {
        x if x >= 100.0 => 0,
        x if x >= 10.0 => 1,
        x if x >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn limits_as_json<S: Serializer>(limits: &Limits, to: S) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Limit {
        probe: String,
        unit: &'static str,
        threads: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<usize>,
        median: f64,
        best: f64,
    }
    to.collect_seq(limits.rates.iter().map(|(probe, threads, rate)| {
        let (name, unit) = limits.describe(probe, *threads);
        let bytes = match probe {
            Probe::Read { bytes } => Some(*bytes),
            _ => None,
        };
        Limit { probe: name, unit, threads: *threads, bytes, median: rate.median / 1e9, best: rate.best / 1e9 }
    }))
}
