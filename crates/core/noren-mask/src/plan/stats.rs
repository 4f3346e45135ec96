//! [`Stats`]: the cost of a plan, compared with a dense mask.

use crate::Error;
use crate::bind::budget::{Budget, Meter, Stage};
use crate::bind::count::{Cells, Listed, listed};
use crate::mask::Mask;
use crate::plan::{PatternPlan, Plan, PlanOptions, SpanKind};
use crate::sets::bits::row_words;
use std::fmt;

/// Exact counts over all batch rows and heads of a plan; see [`Plan::stats`].
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stats {
    /// The text of the mask.
    pub mask: String,
    /// The shape `[batch, heads, q_len, kv_len]`.
    pub shape: [usize; 4],
    /// Number of distinct patterns. A pattern is the set of cells of a batch row and head; equal sets count once.
    pub patterns: usize,
    /// Number of all cells.
    pub cells: u128,
    /// Number of allowed cells.
    pub allowed: u128,
    /// The fraction of all cells that is allowed: `allowed / cells`, from 0 to 1.
    pub density: f64,
    /// Number of cells that a kernel computes: those of full and mixed spans.
    pub computed: u128,
    /// The ratio `computed / allowed`. The best value is 1, at which a kernel computes only allowed cells. If no cell
    /// is allowed, the value is 0.
    pub computed_per_allowed: f64,
    /// The reordering of queries and keys and its effect, or `None` if the plan has no reordering.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub reordered: Option<Reordered>,
    /// Number of query rows (of all batch rows and heads) that read no key.
    pub empty_rows: u128,
    /// Number of tiles of `block_q` x `block_kv` cells that are inside one span in which every cell is allowed.
    pub full_tiles: u128,
    /// Number of tiles of `block_q` x `block_kv` cells that intersect a span (range of keys that a query tile reads)
    /// and in which not every cell is known to be allowed: they intersect a mixed span or contain the border of a span.
    pub mixed_tiles: u128,
    /// Number of tiles of `block_q` x `block_kv` cells that intersect no span (range of keys that a query tile reads).
    /// Kernels skip these tiles.
    pub empty_tiles: u128,
    /// Memory of the plan, in bytes.
    pub plan_bytes: usize,
    /// Memory of a dense mask with one byte per cell, in bytes. If all batch rows have equal cells, the dense mask has
    /// one batch row; if all heads have equal cells, it has one head.
    pub dense_bytes: u128,
    /// Time of planning, in seconds.
    pub planning_seconds: f64,
}

/// The reordering of query rows and keys in a plan, and the number of cells that a kernel would compute if rows and
/// keys had the order of their indices.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Reordered {
    /// The distinct reorderings in the plan, each described in a few words, such as `8 residue classes` (sets of rows
    /// or keys with equal positions modulo 8).
    pub how: Vec<String>,
    /// Number of distinct patterns (sets of cells of a batch row and head) that are reordered.
    pub patterns: usize,
    /// Number of cells that a kernel would compute if query rows and keys had the order of their indices.
    pub computed_in_place: u128,
}

/// The counts of one pattern (set of cells of a batch row and head). [`Stats`] are the sums of these counts over all
/// batch rows and heads.
#[derive(Clone, Copy, Default)]
struct Counts {
    cells: Cells,
    computed: u64,
    computed_in_place: u64,
    full_tiles: u64,
    mixed_tiles: u64,
    tiles: u64,
}

impl Plan {
    /// Returns exact counts of cells, tiles and bytes. For most masks, cells are counted by arithmetic on ranges,
    /// without visiting each cell. The documentation of [`stats_within`](Self::stats_within), which has a limit of
    /// steps, lists the masks for which each cell is visited.
    pub fn stats(&self) -> Stats {
        self.stats_within(&Budget::unlimited()).expect("a budget without limits cannot run out")
    }

    /// Returns [`stats`](Self::stats) within a budget. The watch function of the budget receives the progress and can cancel.
    ///
    /// For documents, chunks, sets of keys, clearance levels, bands, strides and neighborhoods, the time is
    /// proportional to the number of borders of ranges, not to the number of cells. For `random`, functions and dense
    /// arrays, each cell of the mixed spans is visited.
    ///
    /// ```
    /// use noren_mask::{Budget, Facts, Shape, atoms::*};
    /// let bound = (!stride(8)).bind(&Shape::square(1 << 20), &Facts::new())?;
    /// let stats = bound.plan().stats_within(&Budget::new())?;
    /// assert_eq!(stats.allowed, (1u128 << 40) / 8 * 7);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Budget`] if the budget is spent, and [`Error::Cancelled`] if its watch function cancels.
    pub fn stats_within(&self, budget: &Budget<'_>) -> Result<Stats, Error> {
        let rows = self.patterns().iter().map(|pattern| u64::from(pattern.q_len())).sum();
        let mut meter = Meter::new(budget, Stage::Counting, rows);
        let count = |pattern: &PatternPlan| count(pattern, self.options(), &mut meter);
        let counts = self.patterns().iter().map(count).collect::<Result<Vec<Counts>, Error>>()?;
        Ok(self.sum(&counts))
    }

    /// Returns the statistics of the plan: the sums over all batch rows and heads. `counts` has the counts of each
    /// distinct pattern.
    fn sum(&self, counts: &[Counts]) -> Stats {
        let shape = self.shape();
        let [batch, heads] = [shape.batch_len(), shape.head_count()];
        let mut sum = [0u128; 7];
        for (b, h) in shape.batch_heads() {
            let c = counts[self.pattern_of(b, h)];
            let Cells { allowed, empty_rows } = c.cells;
            let parts = [allowed, c.computed, empty_rows, c.full_tiles, c.mixed_tiles, c.tiles, c.computed_in_place];
            sum.iter_mut().zip(parts).for_each(|(s, n)| *s += u128::from(n));
        }
        let [allowed, computed, empty_rows, full_tiles, mixed_tiles, tiles, computed_in_place] = sum;
        let mut how: Vec<String> = self.patterns().iter().filter_map(PatternPlan::reordered).collect();
        let reordered = how.len();
        how.sort();
        how.dedup();
        let by_head = (0..batch).any(|b| (1..heads).any(|h| self.pattern_of(b, h) != self.pattern_of(b, 0)));
        let by_row = (1..batch).any(|b| (0..heads).any(|h| self.pattern_of(b, h) != self.pattern_of(0, h)));
        let planes = if by_head { heads } else { 1 } * if by_row { batch } else { 1 };
        let ratio = |a: u128, b: u128| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        Stats {
            mask: Mask::to_string(self.bound().mask()),
            shape: [batch, heads, shape.q_len(), shape.kv_len()],
            patterns: self.patterns().len(),
            cells: shape.cells(),
            allowed,
            density: ratio(allowed, shape.cells()),
            computed,
            computed_per_allowed: ratio(computed, allowed),
            reordered: (reordered > 0).then_some(Reordered { how, patterns: reordered, computed_in_place }),
            empty_rows,
            full_tiles,
            mixed_tiles,
            empty_tiles: tiles - full_tiles - mixed_tiles,
            plan_bytes: self.bytes(),
            dense_bytes: planes as u128 * shape.q_len() as u128 * shape.kv_len() as u128,
            planning_seconds: self.planning_time().as_secs_f64(),
        }
    }
}

/// The maximum number of keys whose cells are written as bits and then counted in one step. A limit keeps the memory
/// for the bits small.
const KEYS: u32 = 4096;

fn count(plan: &PatternPlan, options: &PlanOptions, meter: &mut Meter<'_>) -> Result<Counts, Error> {
    let key_tiles = u64::from(plan.key_places().div_ceil(options.block_kv));
    let mut counts = Counts { tiles: key_tiles * plan.tile_count() as u64, ..Counts::default() };
    // words of 64 cells in mixed spans
    let mut words = 0u64;
    for tile in plan.tiles() {
        meter.step(1 + tile.spans.len() as u64 / 4)?;
        counts.computed += tile.computed();
        let mixed = tile.spans.iter().filter(|span| span.kind == SpanKind::Mixed);
        words += mixed.map(|span| u64::from(tile.rows()) * row_words(span.keys()) as u64).sum::<u64>();
        let (full, touched) = key_tiles_of(tile.spans, options.block_kv, plan.key_places());
        counts.full_tiles += full;
        counts.mixed_tiles += touched - full;
    }
    counts.computed_in_place = match plan.reordered() {
        Some(_) => plan.computed_in_place(options.block_q, meter)?,
        None => counts.computed,
    };
    counts.cells = match listed(&plan.resolved().pattern) {
        Listed::No => crate::bind::count::count(plan.resolved(), meter)?,
        Listed::Words => visit(plan, 1, meter)?,
        Listed::Cells => {
            // returns the error now rather than after the budget's time
            meter.needs(words.saturating_mul(64))?;
            visit(plan, 64, meter)?
        }
    };
    Ok(counts)
}

/// Counts the allowed cells of the plan, and the query rows that read no key. In full spans, all cells count; in mixed
/// spans, the cells whose bits [`PatternPlan::fill_bits`] sets. Subtracts `steps` from the budget for each word of 64
/// mask bits.
fn visit(plan: &PatternPlan, steps: u64, meter: &mut Meter<'_>) -> Result<Cells, Error> {
    let mut cells = Cells::default();
    let mut words = Vec::new();
    for tile in plan.tiles() {
        let rows = tile.rows() as usize;
        let mut read = vec![false; rows];
        for span in tile.spans {
            if span.kind == SpanKind::Full {
                cells.allowed += u64::from(span.keys()) * rows as u64;
                read.fill(true);
                continue;
            }
            for start in (span.start..span.end).step_by(KEYS as usize) {
                let keys = start..span.end.min(start + KEYS);
                let stride = row_words(keys.len() as u32);
                words.resize(rows * stride, 0);
                meter.step(words.len() as u64 * steps)?;
                plan.fill_bits(tile.start..tile.end, keys, &mut words);
                for (line, read) in words.chunks(stride).zip(&mut read) {
                    let ones = line.iter().map(|w| u64::from(w.count_ones())).sum::<u64>();
                    cells.allowed += ones;
                    *read |= ones > 0;
                }
            }
        }
        cells.empty_rows += read.iter().filter(|r| !**r).count() as u64;
        meter.done(rows as u64);
    }
    Ok(cells)
}

/// Divides the keys into key tiles of `block` keys, and returns (number of key tiles that are inside one full span,
/// number of key tiles that intersect at least one span).
fn key_tiles_of(spans: &[crate::TileSpan], block: u32, kv_len: u32) -> (u64, u64) {
    let (mut full, mut touched, mut next) = (0, 0, 0);
    for span in spans {
        if span.kind == SpanKind::Full {
            let last = if span.end == kv_len { kv_len.div_ceil(block) } else { span.end / block };
            full += u64::from(last.saturating_sub(span.start.div_ceil(block)));
        }
        let first = (span.start / block).max(next);
        next = span.end.div_ceil(block);
        touched += u64::from(next.saturating_sub(first));
    }
    (full, touched)
}

/// Returns `value` as a short text with a unit, such as `1.23 M` for 1234567. `base` is 1000 for counts, and 1024 for
/// bytes. `units[i]` is the unit of `base` to the power `i`.
fn short(value: f64, base: f64, units: [&str; 6]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= base && unit < 5 {
        value /= base;
        unit += 1;
    }
    let text = match value {
        v if unit == 0 => format!("{v:.0}"),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    if units[unit].is_empty() { text } else { format!("{text} {}", units[unit]) }
}

/// Returns a count in short form for users: `1.23 M`.
pub fn short_count(value: u128) -> String {
    short(value as f64, 1000.0, ["", "k", "M", "G", "T", "P"])
}

/// Returns a number of bytes in short form for users: `1.5 MiB`.
pub fn short_bytes(value: u128) -> String {
    short(value as f64, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Writes the counts as a table for users, on several lines.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [batch, heads, q_len, kv_len] = self.shape;
        let percent = |part: u128, all: u128| match all {
            0 => String::from("0 %"),
            _ => format!("{:.2} %", 100.0 * part as f64 / all as f64),
        };
        let tiles = self.full_tiles + self.mixed_tiles + self.empty_tiles;
        let tile = |n: u128| format!("{:>10}  {}", short_count(n), percent(n, tiles));
        let mut line = |name: &str, value: String| writeln!(f, "{name:<18} {value}");
        line("mask", self.mask.clone())?;
        line("shape", format!("batch {batch}, heads {heads}, {q_len} queries x {kv_len} keys"))?;
        line("patterns", self.patterns.to_string())?;
        line("allowed cells", format!("{:>10}  {}", short_count(self.allowed), percent(self.allowed, self.cells)))?;
        line(
            "computed cells",
            format!("{:>10}  {:.3} x allowed", short_count(self.computed), self.computed_per_allowed),
        )?;
        if let Some(Reordered { how, computed_in_place, .. }) = &self.reordered {
            let times = *computed_in_place as f64 / self.allowed.max(1) as f64;
            let (how, before) = (how.join("; "), short_count(*computed_in_place));
            line(
                "reordered",
                format!("{how:>10}  (without reordering: {before} computed cells, {times:.3} x allowed)"),
            )?;
        }
        line("empty rows", format!("{:>10}", short_count(self.empty_rows)))?;
        line("full tiles", tile(self.full_tiles))?;
        line("mixed tiles", tile(self.mixed_tiles))?;
        line("empty tiles", tile(self.empty_tiles))?;
        line("plan", format!("{:>10}", short_bytes(self.plan_bytes as u128)))?;
        let ratio = self.dense_bytes as f64 / self.plan_bytes.max(1) as f64;
        line("dense mask", format!("{:>10}  {ratio:.0} x the plan", short_bytes(self.dense_bytes)))?;
        line("planning time", format!("{:>7.3} ms", self.planning_seconds * 1e3))
    }
}
