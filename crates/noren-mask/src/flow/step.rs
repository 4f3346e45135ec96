//! One layer: who reads a set, and whom a set reads, tile by tile.

use super::{Fill, as_bits, as_set, mark};
use crate::interval::IntervalSet;
use crate::keep::{count, set_range};
use crate::{BoundMask, Kind, PatternPlan, Plan, PlanOptions, Reorder, Tile};

/// A layer's plan, and the rows that read everything because they may read nothing.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    plan: Plan,
    /// For each pattern, its empty rows; none where they read nothing.
    empty: Vec<IntervalSet>,
}

impl Layer {
    pub(crate) fn new(bound: &BoundMask, fill: Fill) -> Self {
        let plan = bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() });
        let empty =
            plan.patterns().iter().map(|p| if fill == Fill::Finite { empty_rows(p) } else { IntervalSet::new() });
        let empty = empty.collect();
        Layer { plan, empty }
    }

    /// The patterns of a batch row's heads, each once, and the token that query row 0 is.
    fn patterns(&self, batch: usize) -> (Vec<usize>, u32) {
        let mut patterns: Vec<usize> =
            (0..self.plan.shape().head_count()).map(|h| self.plan.pattern_of(batch, h)).collect();
        patterns.sort_unstable();
        patterns.dedup();
        (patterns, self.plan.shape().query_offset(batch) as u32)
    }

    /// `known` and every token that reads one of it.
    pub(crate) fn readers(&self, batch: usize, known: &IntervalSet) -> IntervalSet {
        let n = self.plan.shape().kv_len() as u32;
        let (patterns, offset) = self.patterns(batch);
        let bits = as_bits(known, n);
        let mut out = bits.clone();
        for pattern in patterns {
            if !known.is_empty() {
                self.empty[pattern]
                    .iter()
                    .for_each(|i| set_range(&mut out, (i.start + offset) as usize, (i.end + offset) as usize));
            }
            let plan = &self.plan.patterns()[pattern];
            for tile in plan.tiles() {
                let meets = |kind: Kind| {
                    tile.spans.iter().filter(move |s| s.kind == kind).filter(|s| known.meets(s.start, s.end))
                };
                if meets(Kind::Full).next().is_some() {
                    set_range(&mut out, (tile.start + offset) as usize, (tile.end + offset) as usize);
                    continue;
                }
                for span in meets(Kind::Mixed) {
                    rows_meeting(plan, tile, span.start..span.end, &bits, |row| mark(&mut out, row + offset));
                }
            }
        }
        as_set(&out, n)
    }

    /// `readers` and every token that one of them reads.
    pub(crate) fn read_by(&self, batch: usize, readers: &IntervalSet) -> IntervalSet {
        let n = self.plan.shape().kv_len() as u32;
        let (patterns, offset) = self.patterns(batch);
        let mut out = as_bits(readers, n);
        for pattern in patterns {
            if self.empty[pattern].iter().any(|i| readers.meets(i.start + offset, i.end + offset)) {
                return IntervalSet::all(n);
            }
            let plan = &self.plan.patterns()[pattern];
            for tile in plan.tiles().filter(|t| readers.meets(t.start + offset, t.end + offset)) {
                for span in tile.spans {
                    match span.kind {
                        Kind::Full => set_range(&mut out, span.start as usize, span.end as usize),
                        Kind::Mixed => union_rows(plan, tile, span.start..span.end, readers, offset, &mut out),
                    }
                }
            }
        }
        as_set(&out, n)
    }

    /// Number of cells (query in `to`, key in `from`), over all heads' patterns; a query's own cell is not one.
    pub(crate) fn cells(&self, batch: usize, from: &IntervalSet, to: &IntervalSet) -> u64 {
        let n = self.plan.shape().kv_len() as u32;
        let (patterns, offset) = self.patterns(batch);
        let bits = as_bits(from, n);
        let both = from.intersect(to);
        let mut total = 0;
        let mut words = Vec::new();
        for pattern in patterns {
            let plan = &self.plan.patterns()[pattern];
            for tile in plan.tiles().filter(|t| to.meets(t.start + offset, t.end + offset)) {
                for span in tile.spans.iter().filter(|s| from.meets(s.start, s.end)) {
                    if span.kind == Kind::Full {
                        let (first, last) = (tile.start + offset, tile.end + offset);
                        let own = size(&both, first.max(span.start), last.min(span.end));
                        total += size(to, first, last) * size(from, span.start, span.end) - own;
                        continue;
                    }
                    let wide = (span.end - span.start).div_ceil(64) as usize;
                    fill(plan, tile, span.start..span.end, &mut words);
                    for (row, cells) in (tile.start..).zip(words.chunks(wide)).filter(|(r, _)| to.contains(r + offset))
                    {
                        total += masked(cells, &bits, span.start).map(|w| u64::from(w.count_ones())).sum::<u64>();
                        let own = row + offset;
                        let reads_itself = (span.start..span.end).contains(&own) && from.contains(own) && {
                            let k = (own - span.start) as usize;
                            cells[k / 64] >> (k % 64) & 1 == 1
                        };
                        total -= u64::from(reads_itself);
                    }
                }
            }
            for rows in self.empty[pattern].iter() {
                let (first, last) = (rows.start + offset, rows.end + offset);
                total += size(to, first, last) * from.count() - size(&both, first, last);
            }
        }
        total
    }

    /// Each token that is a query, with the keys that it reads in any head, as bits.
    pub(crate) fn each_row(&self, batch: usize, mut row: impl FnMut(u32, &[u64])) {
        let n = self.plan.shape().kv_len() as u32;
        let (patterns, offset) = self.patterns(batch);
        let wide = n.div_ceil(64) as usize;
        let mut words = vec![0; wide];
        for pattern in patterns {
            let plan = &self.plan.patterns()[pattern];
            for q in 0..plan.q_len() {
                plan.fill_bits(q..q + 1, 0..n, &mut words);
                if self.empty[pattern].contains(q) {
                    set_range(&mut words, 0, n as usize);
                }
                if count(&words) > 0 {
                    row(q + offset, &words);
                }
            }
        }
    }
}

/// Number of tokens of `set` in `start..end`, which may be empty.
fn size(set: &IntervalSet, start: u32, end: u32) -> u64 {
    if start >= end { 0 } else { set.within(start, end).map(|i| u64::from(i.len())).sum() }
}

/// The cells of a tile's rows over `keys`.
fn fill(plan: &PatternPlan, tile: Tile<'_>, keys: std::ops::Range<u32>, words: &mut Vec<u64>) {
    let wide = (keys.end - keys.start).div_ceil(64) as usize;
    words.clear();
    words.resize(tile.rows() as usize * wide, 0);
    plan.fill_bits(tile.start..tile.end, keys, words);
}

/// The words of `cells`, which begin at key `start`, that also are in `bits`, which begin at key 0.
fn masked<'a>(cells: &'a [u64], bits: &'a [u64], start: u32) -> impl Iterator<Item = u64> + 'a {
    let (word, shift) = (start as usize / 64, start % 64);
    cells.iter().enumerate().map(move |(i, cell)| {
        let low = bits.get(word + i).copied().unwrap_or(0) >> shift;
        let high = if shift == 0 { 0 } else { bits.get(word + i + 1).copied().unwrap_or(0) << (64 - shift) };
        cell & (low | high)
    })
}

fn rows_meeting(
    plan: &PatternPlan,
    tile: Tile<'_>,
    keys: std::ops::Range<u32>,
    bits: &[u64],
    mut hit: impl FnMut(u32),
) {
    let wide = (keys.end - keys.start).div_ceil(64) as usize;
    let mut words = Vec::new();
    fill(plan, tile, keys.clone(), &mut words);
    for (row, cells) in (tile.start..).zip(words.chunks(wide)) {
        if masked(cells, bits, keys.start).any(|w| w != 0) {
            hit(row);
        }
    }
}

fn union_rows(
    plan: &PatternPlan,
    tile: Tile<'_>,
    keys: std::ops::Range<u32>,
    readers: &IntervalSet,
    offset: u32,
    out: &mut [u64],
) {
    let wide = (keys.end - keys.start).div_ceil(64) as usize;
    let mut words = Vec::new();
    fill(plan, tile, keys.clone(), &mut words);
    let mut all = vec![0u64; wide];
    for (_, cells) in (tile.start..).zip(words.chunks(wide)).filter(|(row, _)| readers.contains(row + offset)) {
        all.iter_mut().zip(cells).for_each(|(a, c)| *a |= c);
    }
    crate::array::bit_runs(&all, 0, keys.end - keys.start, |a, z| {
        set_range(out, (keys.start + a) as usize, (keys.start + z) as usize)
    });
}

/// The rows that may read nothing.
fn empty_rows(plan: &PatternPlan) -> IntervalSet {
    let mut out = IntervalSet::new();
    let mut words = Vec::new();
    for tile in plan.tiles() {
        if tile.spans.iter().any(|s| s.kind == Kind::Full) {
            continue;
        }
        let mut reads = vec![false; tile.rows() as usize];
        for span in tile.spans {
            fill(plan, tile, span.start..span.end, &mut words);
            let wide = (span.end - span.start).div_ceil(64) as usize;
            reads.iter_mut().zip(words.chunks(wide)).for_each(|(r, cells)| *r |= count(cells) > 0);
        }
        (tile.start..).zip(&reads).filter(|(_, r)| !**r).for_each(|(row, _)| out.push(row, row + 1));
    }
    out
}
