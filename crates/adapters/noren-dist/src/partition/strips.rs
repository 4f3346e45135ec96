//! [`Strips`]: the allowed cells of a batch row, counted in strips of consecutive query rows. All splits are computed
//! from these counts.

use crate::partition::runs::{Runs, count, merged};
use noren_mask::{PatternPlan, Plan, PlanOptions, Reorder, SpanKind, TileSpan};

/// The maximum number of 64-bit words of mask bits in mixed tiles for which all cells are counted. If a mask has more
/// words, the cells of a mixed piece (a run of keys of which the rows of a strip may read only some) are estimated from
/// some rows.
const MOST_WORDS: u64 = 1 << 28;
/// The number of query rows from which the allowed cells of a mixed piece (a run of keys) are estimated, if the mask
/// has more than `MOST_WORDS` words.
const SAMPLED_ROWS: u32 = 4;
/// A mixed span (a range of keys of which query rows may read only some) is wide if it has at least `WIDE * grain`
/// keys, where `grain` is the number of query rows of a strip. The rows of a wide span may read very different keys, so
/// the keys that each row reads are found row by row.
const WIDE: u32 = 16;

/// A run of keys that the query rows of one strip (a run of query rows) read, in heads with equal masks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) mixed: bool,
    /// The index in `Strips::planes` of the set of heads with equal masks that read these keys.
    plane: u32,
    /// The number of allowed cells of this piece: the rows of the strip (run of query rows) x the keys of the piece,
    /// over all heads of `plane`.
    pub(crate) area: f64,
}

/// Consecutive query rows `start..end`, with the runs of keys that the rows read (`pieces`). If heads have different
/// masks, their pieces may contain the same keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strip<'a> {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) pieces: &'a [Piece],
    /// The number of query rows of this strip, divided by the number of query rows of the strip from which it was cut;
    /// 1 for a whole strip.
    share: f64,
}

impl Strip<'_> {
    pub(crate) fn rows(&self) -> u32 {
        self.end - self.start
    }

    pub(crate) fn area(&self) -> f64 {
        self.pieces.iter().map(|p| p.area).sum::<f64>() * self.share
    }

    /// Returns the estimated number of allowed cells with keys in `start..end`. The estimate assumes that the cells of
    /// each piece (a run of keys that the strip reads) are distributed evenly over the keys of the piece.
    pub(crate) fn area_within(&self, start: u32, end: u32) -> f64 {
        self.pieces.iter().map(|p| p.area_within(start, end)).sum::<f64>() * self.share
    }

    /// Cuts the pieces of the strip (the runs of keys that it reads) to the keys `start..end`. Returns each cut piece
    /// as (range of keys, estimated number of allowed cells).
    pub(crate) fn pieces_within(&self, start: u32, end: u32) -> impl Iterator<Item = ([u32; 2], f64)> + '_ {
        let part = move |p: &Piece| [p.start.max(start), p.end.min(end)];
        let share = self.share;
        let some = self.pieces.iter().filter(move |p| p.start < end && start < p.end);
        some.map(move |p| (part(p), p.area_within(start, end) * share))
    }
}

impl Piece {
    pub(crate) fn area_within(&self, start: u32, end: u32) -> f64 {
        let (from, to) = (self.start.max(start), self.end.min(end));
        if from >= to { 0.0 } else { self.area * f64::from(to - from) / f64::from(self.end - self.start) }
    }
}

/// The allowed cells of one batch row over all its heads, counted in strips of consecutive query rows.
#[derive(Debug)]
pub(crate) struct Strips {
    plan: Plan,
    /// The different masks (patterns) of the heads of the batch row, as (index of the pattern in the plan, number of
    /// heads with this pattern).
    planes: Vec<(usize, u32)>,
    /// Approximate number of query rows of a strip (a run of query rows that is counted together).
    grain: u32,
    starts: Vec<u32>,
    first: Vec<u32>,
    pieces: Vec<Piece>,
    /// Whether the areas (numbers of allowed cells) are exact counts; otherwise they are estimates.
    pub(crate) exact: bool,
}

impl Strips {
    /// Creates the strips (runs of query rows) of batch row `batch`, with about `grain` query rows each. A strip also
    /// ends where the content of the mask changes, such as at the end of a document.
    pub(crate) fn new(plan: &Plan, batch: usize, grain: u32) -> Self {
        Self::counting(plan, batch, grain, MOST_WORDS)
    }

    /// Creates the strips. If the mask bits of mixed pieces (runs of keys of which a strip reads only some) need at
    /// most `most_words` 64-bit words, counts their allowed cells; otherwise estimates them.
    fn counting(plan: &Plan, batch: usize, grain: u32, most_words: u64) -> Self {
        let options = PlanOptions { block_q: grain, block_kv: grain, reorder: Reorder::Never };
        let plan = plan.bound().plan_with(&options);
        let mut planes: Vec<(usize, u32)> = Vec::new();
        for head in 0..plan.shape().head_count() {
            let pattern = plan.pattern_of(batch, head);
            match planes.iter_mut().find(|(known, _)| *known == pattern) {
                Some((_, heads)) => *heads += 1,
                None => planes.push((pattern, 1)),
            }
        }
        let mut starts: Vec<u32> =
            planes.iter().flat_map(|(p, _)| plan.patterns()[*p].tiles().map(|t| t.start)).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.push(plan.shape().q_len() as u32);
        let mut out = Strips { planes, grain, starts, first: vec![0], pieces: Vec::new(), exact: true, plan };
        out.fill(most_words);
        out
    }

    fn fill(&mut self, most_words: u64) {
        let words: u64 = self.planes.iter().map(|(p, _)| mixed_words(&self.plan.patterns()[*p])).sum();
        self.exact = words <= most_words;
        if self.exact {
            self.cut_wide();
        }
        let mut at = vec![0; self.planes.len()];
        let mut bits = Vec::new();
        for i in 0..self.starts.len() - 1 {
            let rows = [self.starts[i], self.starts[i + 1]];
            for (plane, (pattern, heads)) in self.planes.iter().enumerate() {
                let pattern = &self.plan.patterns()[*pattern];
                while pattern.tile(at[plane]).end <= rows[0] {
                    at[plane] += 1;
                }
                for span in pattern.tile(at[plane]).spans {
                    let mut add = |[start, end]: [u32; 2], cells: f64, mixed: bool| {
                        if cells > 0.0 {
                            let area = cells * f64::from(*heads);
                            self.pieces.push(Piece { start, end, mixed, plane: plane as u32, area });
                        }
                    };
                    let keys = [span.start, span.end];
                    let all = |[start, end]: [u32; 2]| f64::from(rows[1] - rows[0]) * f64::from(end - start);
                    if span.kind == SpanKind::Full {
                        add(keys, all(keys), false);
                    } else if !self.exact {
                        // rows that were not counted may read these keys
                        add(keys, sampled(pattern, rows, keys, &mut bits).max(1.0), true);
                    } else if wide(span, self.grain) {
                        let lists = row_runs(pattern, rows, keys, self.grain, &mut bits);
                        for run in merged(lists.into_iter().flatten().collect()) {
                            let cells = counted(pattern, rows, run, &mut bits) as f64;
                            add(run, cells, cells < all(run));
                        }
                    } else {
                        add(keys, counted(pattern, rows, keys, &mut bits) as f64, true);
                    }
                }
            }
            self.first.push(self.pieces.len() as u32);
        }
    }

    /// Splits strips (runs of query rows) with wide spans (mixed spans with many keys, see [`WIDE`]). A strip is split
    /// between two neighbouring query rows if one row reads more than `2 * n + grain` keys, where `n` is the number of
    /// keys that the other row reads. Rows with many keys thus become separate strips.
    fn cut_wide(&mut self) {
        let mut borders = Vec::new();
        let mut bits = Vec::new();
        for (pattern, _) in &self.planes {
            let pattern = &self.plan.patterns()[*pattern];
            for tile in pattern.tiles() {
                for span in tile.spans.iter().filter(|s| wide(s, self.grain)) {
                    let rows = [tile.start, tile.end];
                    let lists = row_runs(pattern, rows, [span.start, span.end], self.grain, &mut bits);
                    let read: Vec<u64> = lists.iter().map(|list| count(list)).collect();
                    let differ = |pair: &[u64]| pair[0].max(pair[1]) > 2 * pair[0].min(pair[1]) + u64::from(self.grain);
                    let cuts = read.windows(2).enumerate().filter(|(_, pair)| differ(pair));
                    borders.extend(cuts.map(|(i, _)| tile.start + i as u32 + 1));
                }
            }
        }
        self.starts.extend(borders);
        self.starts.sort_unstable();
        self.starts.dedup();
    }

    /// Returns the number of strips (runs of consecutive query rows).
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn q_len(&self) -> u32 {
        self.plan.shape().q_len() as u32
    }

    pub(crate) fn kv_len(&self) -> u32 {
        self.plan.shape().kv_len() as u32
    }

    pub(crate) fn get(&self, index: usize) -> Strip<'_> {
        let pieces = self.first[index] as usize..self.first[index + 1] as usize;
        Strip { start: self.starts[index], end: self.starts[index + 1], pieces: &self.pieces[pieces], share: 1.0 }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Strip<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Returns whether all heads have the same mask.
    pub(crate) fn single(&self) -> bool {
        self.planes.len() == 1
    }

    pub(crate) fn heads(&self) -> f64 {
        self.planes.iter().map(|(_, heads)| f64::from(*heads)).sum()
    }

    /// Returns the index of the strip (run of query rows) that contains query row `row`.
    pub(crate) fn at(&self, row: u32) -> usize {
        self.starts.partition_point(|s| *s <= row) - 1
    }

    /// Returns the strips (runs of query rows) that overlap rows `start..end`, cut to these rows.
    pub(crate) fn within(&self, start: u32, end: u32) -> impl Iterator<Item = Strip<'_>> {
        let first = if start < end { self.at(start) } else { self.len() };
        (first..self.len()).map(|i| self.get(i)).take_while(move |s| s.start < end).map(move |s| {
            let (from, to) = (s.start.max(start), s.end.min(end));
            Strip { start: from, end: to, share: f64::from(to - from) / f64::from(s.rows()), ..s }
        })
    }

    /// Returns the estimated numbers of allowed cells of `rows` x `keys` over all heads, `[all, in mixed pieces]`. The
    /// estimate assumes that the cells of each piece (a run of keys that a strip reads) are distributed evenly.
    pub(crate) fn estimate(&self, rows: [u32; 2], keys: [u32; 2]) -> [f64; 2] {
        let mut sum = [0.0; 2];
        for strip in self.within(rows[0], rows[1]) {
            for piece in strip.pieces {
                let area = piece.area_within(keys[0], keys[1]) * strip.share;
                sum[0] += area;
                sum[1] += if piece.mixed { area } else { 0.0 };
            }
        }
        sum
    }

    /// Returns the numbers of allowed cells of `rows` x `keys` over all heads, `[all, in mixed pieces]`. A piece is a
    /// run of keys that a strip reads; in a mixed piece, some cells may be denied. The numbers are exact counts if
    /// [`exact`](Self::exact) is true.
    pub(crate) fn count(&self, rows: [u32; 2], keys: [u32; 2]) -> [f64; 2] {
        let mut sum = [0.0; 2];
        let mut bits = Vec::new();
        for index in self.at(rows[0])..self.len() {
            let strip = self.get(index);
            if strip.start >= rows[1] {
                break;
            }
            let lines = [strip.start.max(rows[0]), strip.end.min(rows[1])];
            for piece in strip.pieces {
                let part = [piece.start.max(keys[0]), piece.end.min(keys[1])];
                if part[0] >= part[1] {
                    continue;
                }
                let share = f64::from(lines[1] - lines[0]) / f64::from(strip.rows());
                let whole = part == [piece.start, piece.end] && share == 1.0;
                let area = match piece.mixed && !whole && self.exact {
                    true => {
                        let (pattern, heads) = self.planes[piece.plane as usize];
                        counted(&self.plan.patterns()[pattern], lines, part, &mut bits) as f64 * f64::from(heads)
                    }
                    false => piece.area_within(part[0], part[1]) * share,
                };
                sum[0] += area;
                sum[1] += if piece.mixed { area } else { 0.0 };
            }
        }
        sum
    }
}

fn mixed_words(pattern: &PatternPlan) -> u64 {
    let words = |t: noren_mask::Tile<'_>| -> u64 {
        let mixed = t.spans.iter().filter(|s| s.kind == SpanKind::Mixed);
        mixed.map(|s| u64::from(t.rows()) * u64::from(s.keys().div_ceil(64))).sum()
    };
    pattern.tiles().map(words).sum()
}

/// Returns true if a mixed span (a range of keys of which query rows may read only some) is wide: it has at least `WIDE
/// * grain` keys, where `grain` is the number of query rows of a strip.
fn wide(span: &TileSpan, grain: u32) -> bool {
    span.kind == SpanKind::Mixed && span.keys() / WIDE >= grain
}

/// Returns, for each query row of `rows`, the runs of keys that the row reads within `keys`. Two runs with fewer than
/// `gap` keys between them become one run. `bits` is scratch memory.
fn row_runs(pattern: &PatternPlan, rows: [u32; 2], keys: [u32; 2], gap: u32, bits: &mut Vec<u64>) -> Vec<Runs> {
    let read = |row: u32| {
        let words = fill(pattern, [row, row + 1], keys, bits);
        let mut out = Runs::new();
        let mut at = 0;
        while let Some(start) = next(words, at, 0) {
            at = next(words, start, u64::MAX).unwrap_or(u32::MAX).min(keys[1] - keys[0]);
            let run = [keys[0] + start, keys[0] + at];
            match out.last_mut() {
                Some(last) if run[0] - last[1] < gap => last[1] = run[1],
                _ => out.push(run),
            }
        }
        out
    };
    (rows[0]..rows[1]).map(read).collect()
}

/// Returns the index of the first bit from index `at` on that is 1 (if `flip` is 0) or 0 (if `flip` is `u64::MAX`).
/// Returns `None` if there is no such bit. `words` holds 64 bits in each number.
fn next(words: &[u64], at: u32, flip: u64) -> Option<u32> {
    let mut word = (at / 64) as usize;
    let mut left = (words.get(word)? ^ flip) & (u64::MAX << (at % 64));
    while left == 0 {
        word += 1;
        left = words.get(word)? ^ flip;
    }
    Some(word as u32 * 64 + left.trailing_zeros())
}

fn fill<'a>(pattern: &PatternPlan, rows: [u32; 2], keys: [u32; 2], bits: &'a mut Vec<u64>) -> &'a [u64] {
    bits.clear();
    bits.resize((rows[1] - rows[0]) as usize * (keys[1] - keys[0]).div_ceil(64) as usize, 0);
    pattern.fill_bits(rows[0]..rows[1], keys[0]..keys[1], bits);
    bits
}

/// Returns the exact number of allowed cells of `rows` x `keys`. `bits` is scratch memory.
fn counted(pattern: &PatternPlan, rows: [u32; 2], keys: [u32; 2], bits: &mut Vec<u64>) -> u64 {
    fill(pattern, rows, keys, bits).iter().map(|w| u64::from(w.count_ones())).sum()
}

/// Returns the number of allowed cells of `rows` x `keys`, estimated from the cells of at most `SAMPLED_ROWS` rows.
/// `bits` is scratch memory.
fn sampled(pattern: &PatternPlan, rows: [u32; 2], keys: [u32; 2], bits: &mut Vec<u64>) -> f64 {
    let lines = rows[1] - rows[0];
    let taken = lines.min(SAMPLED_ROWS);
    let at = |i: u32| rows[0] + (2 * i + 1) * lines / (2 * taken);
    let cells: u64 = (0..taken).map(|i| counted(pattern, [at(i), at(i) + 1], keys, bits)).sum();
    cells as f64 * f64::from(lines) / f64::from(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use noren_mask::{Facts, Shape, atoms};

    #[test]
    fn no_cell_is_lost_where_cells_are_not_counted() {
        // Query 128 alone reads beyond its chunk, and it is not among the rows that are counted.
        let mask = atoms::causal() & (atoms::chunk(32) | atoms::queries(128..129));
        let bound = mask.bind(&Shape::square(512), &Facts::new()).expect("a sound mask");
        let strips = Strips::counting(&bound.plan(), 0, 128, 0);
        assert!(!strips.exact);
        for strip in strips.iter() {
            for q in strip.start..strip.end {
                for k in (0..512).filter(|k| bound.allowed(0, 0, q as usize, *k as usize)) {
                    assert!(
                        strip.pieces.iter().any(|p| p.start <= k && k < p.end && p.area > 0.0),
                        "query {q}, key {k}"
                    );
                }
            }
        }
    }
}
