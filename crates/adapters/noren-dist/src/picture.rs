//! [`picture`]: a partition as an SVG picture of the owners of tokens, the cells of each rank, and the bytes that ranks
//! send.

use crate::Error;
use crate::costs::measure::over_mean;
use crate::costs::simulate::{cells, grain};
use crate::partition::runs::{count, within};
use crate::partition::strips::Strips;
use crate::partition::wire::Wire;
use crate::partition::{Partition, RowPartition, Step};
use noren_mask::text::escape;
use noren_mask::{BoundMask, Cover, Grid, GridOptions, Plan, short_bytes, short_count};
use std::fmt::Write;

const MARGIN: usize = 28;
/// Width and height of the drawn mask, in pixels.
const SIDE: usize = 560;
/// Maximum number of rows and of columns of the grid in which the mask is drawn. Each grid cell may stand for many mask
/// cells.
const CELLS: usize = 112;
/// Width of the two bars that show the owners of queries and of keys, in pixels.
const BAR: usize = 12;
/// Size of a chart beside the drawn mask, `[width, height]` in pixels.
const CHART: [usize; 2] = [400, 96];
/// Maximum number of rows and columns of the traffic matrix (bytes that each rank receives from each rank). If there
/// are more ranks, one row stands for several ranks.
const PEERS: usize = 64;
/// Width of the traffic matrix (bytes that each rank receives from each rank), in pixels.
const TRAFFIC: usize = 200;

/// The CSS of a picture, without the colours of the ranks.
const STYLE: &str = "\
.nrd{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
.nrd-page{fill:#fcfbf8}.nrd-text{fill:#22263a}.nrd-soft{fill:#6f7287}.nrd-title{font-size:15px;font-weight:600}\
.nrd-bold{font-weight:600}.nrd-denied{fill:#efece4}.nrd-line{stroke:#a9abb8;stroke-dasharray:3 3;fill:none}\
.nrd-base{stroke:#cfccc3;fill:none}.nrd-flow{fill:#2f4b8f}.nrd-limit{stroke:#c4513a;stroke-dasharray:3 3;fill:none}\
@media (prefers-color-scheme:dark){\
.nrd-page{fill:#14161f}.nrd-text{fill:#e7e7ee}.nrd-soft{fill:#9a9db3}.nrd-denied{fill:#212432}\
.nrd-line{stroke:#5b5f75}.nrd-base{stroke:#3a3e50}.nrd-flow{fill:#7f9ff0}.nrd-limit{stroke:#e9785f}}";

/// Returns a picture of batch row `batch` and head `head` of a partition as SVG, in a light or dark colour scheme.
///
/// The colour of a grid cell shows the rank that computes most of its mask cells; a colour is lighter if some of these
/// mask cells are denied. Bars show the owners of queries (left) and keys (above). Charts beside the mask show the
/// cells, tokens and bytes of each rank, and a matrix shows the bytes that each rank receives from each other rank.
///
/// ```
/// use noren_dist::{Options, Wire, partition, picture};
/// use noren_mask::{Facts, Shape, atoms::*};
/// let plan = (causal() & documents_of([48, 16])).bind(&Shape::square(64), &Facts::new())?.plan();
/// let split = partition(&plan, &Options { ranks: 4, ..Options::default() })?;
/// assert!(picture(&plan, &split, 0, 0, &Wire::default())?.starts_with("<svg"));
/// # Ok::<(), noren_dist::Error>(())
/// ```
///
/// # Errors
/// Returns an error if the partition has another shape, or if the batch row or head is outside the shape.
pub fn picture(plan: &Plan, split: &Partition, batch: usize, head: usize, wire: &Wire) -> Result<String, Error> {
    let bound = plan.bound();
    split.check_shape(bound.shape())?;
    let options = GridOptions { max_rows: CELLS, max_cols: CELLS, ..GridOptions::default() };
    let grid = bound.grid(batch, head, &options)?;
    let row = split.row(batch);
    let mut body = String::new();
    let top = heading(&mut body, bound, split, batch, head);
    let [x, y] = [MARGIN + BAR + 6, top + BAR + 24];
    mask(&mut body, &grid, row, split.ranks, [x, y]);
    let right = x + SIDE + 48;
    let strips = Strips::new(plan, batch, grain(plan.shape().q_len(), split.ranks));
    let bottom = charts(&mut body, split, row, &strips, wire, [right, top + 12]);
    let lower = traffic(&mut body, split, row, wire, [right, bottom + 10]);
    let (width, height) = (right + CHART[0] + MARGIN, lower.max(y + SIDE + 38) + MARGIN);
    let title = escape(&bound.mask().to_string());
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" class=\"nrd\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n<title>{title} over {} ranks</title>\n<style>{STYLE}</style>\n\
         <rect class=\"nrd-page\" width=\"{width}\" height=\"{height}\" rx=\"10\"/>\n{body}</svg>\n",
        split.ranks
    ))
}

/// Returns the colour of a rank. Neighbouring ranks have similar hues. Even ranks are darker than odd ranks, so that
/// neighbours can be distinguished.
fn color(rank: u32, ranks: usize) -> String {
    let hue = 222.0 + 360.0 * f64::from(rank) / ranks as f64;
    let light = if rank.is_multiple_of(2) { 46 } else { 60 };
    format!("hsl({:.0} 52% {light}%)", hue % 360.0)
}

fn text(out: &mut String, [x, y]: [usize; 2], classes: &str, words: &str) {
    let _ = writeln!(out, "<text class=\"{classes}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(words));
}

fn rect(out: &mut String, [x, y]: [f64; 2], [w, h]: [f64; 2], look: &str) {
    let _ = writeln!(out, "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" {look}/>");
}

/// Writes the title (the mask) and the numbers of queries, keys, ranks and nodes. Returns the y coordinate at which the
/// drawings below may start, in pixels.
fn heading(out: &mut String, bound: &BoundMask, split: &Partition, batch: usize, head: usize) -> usize {
    let mask = bound.mask().to_string();
    let cut: String = mask.chars().take(110).collect();
    let title = if cut.len() < mask.len() { format!("{cut}…") } else { mask };
    text(out, [MARGIN, MARGIN + 12], "nrd-text nrd-title", &title);
    let [rows, heads, _, q_len, kv_len] = split.shape;
    let mut about = format!("{q_len} queries × {kv_len} keys over {} ranks", split.ranks);
    if split.nodes > 1 {
        let _ = write!(about, " on {} nodes", split.nodes);
    }
    let _ = write!(about, " by {}", split.method);
    if rows > 1 || heads > 1 {
        let _ = write!(about, " · batch row {batch}, head {head}");
    }
    text(out, [MARGIN, MARGIN + 32], "nrd-soft", &about);
    MARGIN + 44
}

/// Draws the mask with its upper left corner at `[x, y]` (pixels). Each grid cell has the colour of the rank that
/// computes most of the grid cell. Bars on two sides show the owners of queries (left) and of keys (above).
fn mask(out: &mut String, grid: &Grid, row: &RowPartition, ranks: usize, [x, y]: [usize; 2]) {
    let (rows, cols) = (grid.row_count(), grid.col_count());
    let [w, h] = [SIDE as f64 / cols as f64, SIDE as f64 / rows as f64];
    let by = computing(grid, row);
    text(out, [x, y - BAR - 10], "nrd-soft", "keys →");
    rect(out, [x as f64, y as f64], [SIDE as f64, SIDE as f64], "class=\"nrd-denied\"");
    for r in 0..rows {
        let look = |c: usize| (grid.cover(r, c), by[r * cols + c]);
        let mut c = 0;
        while c < cols {
            let end = (c + 1..cols).find(|i| look(*i) != look(c)).unwrap_or(cols);
            let (cover, rank) = look(c);
            if let (Cover::Full | Cover::Mixed, Some(rank)) = (cover, rank) {
                let faint = if cover == Cover::Mixed { " fill-opacity=\".62\"" } else { "" };
                let fill = format!("fill=\"{}\"{faint}", color(rank, ranks));
                rect(out, [x as f64 + c as f64 * w, y as f64 + r as f64 * h], [(end - c) as f64 * w, h], &fill);
            }
            c = end;
        }
    }
    let along = |runs: &[[u32; 2]], len: u32, mut draw: Box<dyn FnMut(f64, f64) + '_>| {
        let scale = SIDE as f64 / f64::from(len);
        runs.iter().for_each(|[a, z]| draw(f64::from(*a) * scale, f64::from(z - a) * scale));
    };
    let [q_len, kv_len] = [grid.queries(rows - 1).end as u32, grid.keys(cols - 1).end as u32];
    for (rank, share) in row.shares.iter().enumerate() {
        let fill = format!("fill=\"{}\"", color(rank as u32, ranks));
        let [left, above] = [(x - BAR - 4) as f64, (y - BAR - 4) as f64];
        along(&share.queries, q_len, Box::new(|at, len| rect(out, [left, y as f64 + at], [BAR as f64, len], &fill)));
        along(&share.keys, kv_len, Box::new(|at, len| rect(out, [x as f64 + at, above], [len, BAR as f64], &fill)));
    }
    let legend = [
        "colour: the rank that computes; lighter in places with denied cells",
        "bars: owners of queries (left) and of keys (above)",
    ];
    for (i, line) in legend.iter().enumerate() {
        text(out, [x, y + SIDE + 18 + 17 * i], "nrd-soft", line);
    }
}

/// Returns, for each cell of the picture's grid, the rank that computes the largest part of the grid cell; `None` if no
/// rank computes a mask cell in it.
fn computing(grid: &Grid, row: &RowPartition) -> Vec<Option<u32>> {
    let (rows, cols) = (grid.row_count(), grid.col_count());
    let mut best: Vec<(u64, Option<u32>)> = vec![(0, None); rows * cols];
    for (rank, share) in row.shares.iter().enumerate() {
        let mut mine = vec![0u64; rows * cols];
        for step in &share.steps {
            let (down, across) = overlaps(grid, step);
            for (r, height) in &down {
                across.iter().for_each(|(c, width)| mine[r * cols + c] += height * width);
            }
        }
        for (best, mine) in best.iter_mut().zip(mine) {
            if mine > best.0 {
                *best = (mine, Some(rank as u32));
            }
        }
    }
    best.into_iter().map(|(_, rank)| rank).collect()
}

/// The rows (or columns) of the picture's grid in which a step has queries (or keys), each as (index of the grid row,
/// number of the step's queries in this grid row).
type Meets = Vec<(usize, u64)>;

fn overlaps(grid: &Grid, step: &Step) -> (Meets, Meets) {
    let meets = |runs: &[[u32; 2]], number: usize, range: &dyn Fn(usize) -> std::ops::Range<usize>| -> Meets {
        let one = |i: usize| {
            let range = range(i);
            let parts: Vec<[u32; 2]> = within(runs, range.start as u32, range.end as u32).collect();
            (i, count(&parts))
        };
        (0..number).map(one).filter(|(_, n)| *n > 0).collect()
    };
    let down = meets(&step.rows, grid.row_count(), &|i| grid.queries(i));
    (down, meets(&step.keys, grid.col_count(), &|i| grid.keys(i)))
}

/// A function that formats a number of a chart as text.
type Show = fn(f64) -> String;

/// Draws three bar charts with the cells, received bytes and tokens of each rank; `[x, y]` is their upper left corner.
/// Returns the y coordinate below the charts.
fn charts(
    out: &mut String,
    split: &Partition,
    row: &RowPartition,
    strips: &Strips,
    wire: &Wire,
    [x, y]: [usize; 2],
) -> usize {
    let sizes = wire.sizes(split.shape[1], split.shape[2]);
    let received: Vec<f64> = row.shares.iter().map(|s| sizes.traffic(s).received as f64).collect();
    let tokens: Vec<f64> = row.shares.iter().map(|s| s.tokens() as f64).collect();
    let allowed: Vec<f64> =
        row.shares.iter().map(|s| s.steps.iter().map(|step| cells(step, strips)[0]).sum()).collect();
    let bytes: Show = |v| short_bytes(v as u128);
    let number: Show = |v| short_count(v as u128);
    let mut at = y;
    let all: [(&str, &[f64], Show); 3] = [
        ("allowed cells computed", &allowed, number),
        ("received forward", &received, bytes),
        ("tokens owned", &tokens, number),
    ];
    for (name, values, show) in all {
        let most = values.iter().copied().fold(0.0, f64::max);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        text(out, [x, at + 12], "nrd-text nrd-bold", name);
        let about =
            format!("most {} · mean {} · {:.2} × mean", show(most), show(mean), over_mean(values.iter().copied()));
        text(out, [x, at + 28], "nrd-soft", &about);
        bars(out, values, most.max(1e-30), [x, at + 36]);
        at += CHART[1] + 60;
    }
    at
}

fn bars(out: &mut String, values: &[f64], most: f64, [x, y]: [usize; 2]) {
    let [width, height] = [CHART[0] as f64, CHART[1] as f64];
    let step = width / values.len() as f64;
    let gap = if step > 6.0 { 2.0 } else { 0.0 };
    for (rank, value) in values.iter().enumerate() {
        let tall = height * value / most;
        let fill = format!("fill=\"{}\"", color(rank as u32, values.len()));
        rect(out, [x as f64 + rank as f64 * step, y as f64 + height - tall], [step - gap, tall], &fill);
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let level = y as f64 + height * (1.0 - mean / most);
    let _ = writeln!(out, "<path class=\"nrd-line\" d=\"M{x} {level:.1}h{width}\"/>");
    let _ = writeln!(out, "<path class=\"nrd-base\" d=\"M{x} {}h{width}\"/>", y + CHART[1]);
}

/// Draws a matrix of the bytes that each rank receives from each other rank; `[x, y]` is its upper left corner. Returns
/// the y coordinate below the matrix.
fn traffic(out: &mut String, split: &Partition, row: &RowPartition, wire: &Wire, [x, y]: [usize; 2]) -> usize {
    let sizes = wire.sizes(split.shape[1], split.shape[2]);
    let side = split.ranks.min(PEERS);
    let place = |rank: usize| rank * side / split.ranks;
    let mut bytes = vec![0u64; side * side];
    for (rank, share) in row.shares.iter().enumerate() {
        for exchange in &share.receives {
            let [there, back, ..] = sizes.of(exchange);
            let (to, from) = (place(rank), place(exchange.peer as usize));
            bytes[to * side + from] += there;
            bytes[from * side + to] += back;
        }
    }
    let most = bytes.iter().copied().max().unwrap_or(0).max(1) as f64;
    text(out, [x, y + 12], "nrd-text nrd-bold", "bytes from rank to rank");
    let note = format!("row: receiving rank, column: sending rank · darkest cell: {}", short_bytes(most as u128));
    text(out, [x, y + 28], "nrd-soft", &note);
    let top = (y + 36) as f64;
    rect(out, [x as f64, top], [TRAFFIC as f64, TRAFFIC as f64], "class=\"nrd-denied\"");
    let cell = TRAFFIC as f64 / side as f64;
    for (i, value) in bytes.iter().enumerate().filter(|(_, value)| **value > 0) {
        let look = format!("class=\"nrd-flow\" fill-opacity=\"{:.2}\"", 0.15 + 0.85 * *value as f64 / most);
        rect(out, [x as f64 + (i % side) as f64 * cell, top + (i / side) as f64 * cell], [cell, cell], &look);
    }
    y + 36 + TRAFFIC
}
