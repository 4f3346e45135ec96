//! Prints the report of an attention computation, as text or as JSON.

use super::args::AttendArgs;
use super::job::{Done, Job};
use super::verify::Check;
use crate::failure::Result;
use crate::output::{BAD, GOOD, Screen, paint};
use noren_mask::{Stats, short_bytes, short_count};
use serde::Serialize;

/// The report of one attention computation.
#[derive(Serialize)]
pub(crate) struct Report {
    /// The mask and its score modifiers, as text.
    pub(crate) spec: String,
    kv_heads: usize,
    head_dim: usize,
    v_dim: usize,
    seconds: f64,
    gflops_on_allowed: f64,
    isa: String,
    threads: usize,
    /// The fraction of cells that are in tiles without an allowed cell, from 0 to 1. No kernel computes these tiles.
    skipped_cells: f64,
    /// The fraction of tiles without an allowed cell, from 0 to 1. No kernel computes these tiles.
    skipped_tiles: f64,
    /// Memory of the input arrays, in bytes.
    input_bytes: u64,
    /// The peak memory of this process, in bytes; `None` if the system does not report the peak memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_bytes: Option<u64>,
    /// The statistics of the plan: cells, tiles and bytes.
    pub(crate) plan: Stats,
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

impl Report {
    pub(crate) fn new(job: &Job<'_>, done: &Done, verify: Option<Check>, args: &AttendArgs) -> Report {
        let (d, plan) = (job.inputs.dims(), job.plan.stats());
        let tiles = plan.full_tiles + plan.mixed_tiles + plan.empty_tiles;
        let seconds = done.time.as_secs_f64();
        Report {
            spec: job.spec.to_string(),
            kv_heads: d.kv_heads,
            head_dim: d.head_dim,
            v_dim: d.v_dim,
            seconds,
            gflops_on_allowed: 2.0 * (d.head_dim + d.v_dim) as f64 * plan.allowed as f64 / seconds.max(1e-9) / 1e9,
            isa: done.isa.to_string(),
            threads: done.threads,
            skipped_cells: 1.0 - plan.computed as f64 / plan.cells as f64,
            skipped_tiles: plan.empty_tiles as f64 / tiles as f64,
            input_bytes: job.inputs.bytes(),
            peak_bytes: peak_bytes(),
            plan,
            verify,
            output: args.output.as_ref().map(|path| path.display().to_string()),
        }
    }

    /// Prints the report.
    pub(crate) fn print(&self, screen: &mut Screen) -> Result<()> {
        let [batch, heads, q_len, kv_len] = self.plan.shape;
        let shared = if self.kv_heads == heads { String::new() } else { format!(" over {}", self.kv_heads) };
        let dims = if self.head_dim == self.v_dim { String::new() } else { format!(", v_dim {}", self.v_dim) };
        line(screen, "mask", &self.spec)?;
        let lengths = format!("{q_len} queries × {kv_len} keys");
        line(
            screen,
            "shape",
            format!("batch {batch}, heads {heads}{shared}, {lengths}, head_dim {}{dims}", self.head_dim),
        )?;
        self.print_cost(screen)?;
        if let Some(peak) = self.peak_bytes {
            line(screen, "memory", memory(peak, self.input_bytes))?;
        }
        if let Some(check) = &self.verify {
            print_check(screen, "verified", "the 64-bit reference", check)?;
        }
        match &self.output {
            Some(path) => line(screen, "written", path),
            None => line(
                screen,
                "written",
                "no file: add -o FILE.safetensors to store the output (out) and its log-sum-exp (lse)",
            ),
        }
    }

    /// Prints the allowed cells, the skipped cells and tiles, and the time.
    pub(crate) fn print_cost(&self, screen: &mut Screen) -> Result<()> {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let empty = match self.plan.empty_rows {
            0 => String::new(),
            1 => ", 1 query row may read no key".to_string(),
            n => format!(", {} query rows may read no key", short_count(n)),
        };
        let (allowed, cells) = (short_count(self.plan.allowed), short_count(self.plan.cells));
        line(screen, "allowed", format!("{allowed} of {cells} cells, {}{empty}", percent(self.plan.density)))?;
        let (by_cell, by_tile) = (percent(self.skipped_cells), percent(self.skipped_tiles));
        line(screen, "skipped", format!("{by_cell} of the cells and {by_tile} of the tiles are not computed"))?;
        let threads = if self.threads == 1 { "1 thread".to_string() } else { format!("{} threads", self.threads) };
        let speed = format!("{:.1} GFLOP/s on allowed cells", self.gflops_on_allowed);
        let (planning, time) = (duration(self.plan.planning_seconds), duration(self.seconds));
        line(screen, "time", format!("planning {planning}, attention {time}: {speed}, {threads}, {}", self.isa))
    }
}

/// Prints one line of the report: a label, such as `shape`, and the text beside the label.
pub(crate) fn line(screen: &mut Screen, label: &str, text: impl std::fmt::Display) -> Result<()> {
    screen.line(format!("{label:<9} {text}"))
}

/// Prints the differences between the output and a reference, and whether all differences count as rounding. `what`
/// names the reference, such as `the 64-bit reference`.
pub(crate) fn print_check(screen: &mut Screen, label: &str, what: &str, check: &Check) -> Result<()> {
    let verdict = match check.holds {
        true => paint(GOOD, "ok"),
        false => paint(BAD, "WRONG"),
    };
    line(screen, label, format!("{verdict}: {}", differences(what, check)))
}

/// Formats the differences between the output and the reference `what`. First comes the number of values that are NaN
/// or infinite in only one of the two. For all other values, the largest difference follows, then the largest ratio of
/// a difference to the tolerance of its query row.
fn differences(what: &str, check: &Check) -> String {
    let one_sided = match check.one_sided {
        0 => String::new(),
        1 => "1 value is NaN or infinite in only one of the two results; among all other values, ".to_string(),
        n => format!("{n} values are NaN or infinite in only one of the two results; among all other values, "),
    };
    let lse = if check.lse > 0.0 { format!(" (of lse: {:.1e})", check.lse) } else { String::new() };
    let worst = match check.worst {
        w if w <= 1.0 => format!("{:.1} % of", 100.0 * w),
        w if w < 1e4 => format!("{w:.1} x"),
        w => format!("{w:.0e} x"),
    };
    format!(
        "{one_sided}largest difference to {what}: {:.1e}{lse}; every difference is at most {worst} the tolerance of its query row",
        check.out
    )
}

/// The size of the input arrays, in bytes, above which the report shows the ratio of peak memory to input memory. For
/// smaller arrays, the program itself uses most of the memory.
const TELLING: u64 = 16 << 20;

/// Formats the peak memory of the process. If `inputs` is above [`TELLING`], adds the ratio of peak memory to input
/// memory. `peak` and `inputs` are in bytes.
fn memory(peak: u64, inputs: u64) -> String {
    let held = format!("at most {}", short_bytes(peak.into()));
    match inputs {
        0..=TELLING => held,
        _ => format!("{held}, {:.1} x the {} of input", peak as f64 / inputs as f64, short_bytes(inputs.into())),
    }
}

/// Returns the peak resident memory of this process, in bytes; `None` if the system is not Linux.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// Formats a time in seconds with a suitable unit (µs, ms or s).
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sided_values_are_reported() {
        let check = Check { out: 1e-7, lse: 0.0, scale: 1.0, worst: 0.01, one_sided: 2, holds: false };
        let expected = "2 values are NaN or infinite in only one of the two results; among all other values, largest difference to it: 1.0e-7; \
                        every difference is at most 1.0 % of the tolerance of its query row";
        assert_eq!(differences("it", &check), expected);
        let check = Check { one_sided: 0, lse: 0.5, worst: 250.0, ..check };
        let expected = "largest difference to it: 1.0e-7 (of lse: 5.0e-1); every difference is at most 250.0 x the tolerance of its query row";
        assert_eq!(differences("it", &check), expected);
    }

    #[test]
    fn memory_is_held_against_large_inputs_only() {
        assert_eq!(memory(5 << 20, 288), "at most 5.00 MiB");
        assert_eq!(memory(64 << 20, 32 << 20), "at most 64.0 MiB, 2.0 x the 32.0 MiB of input");
    }
}
