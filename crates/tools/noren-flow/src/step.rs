//! One layer of a stack. Computes tile by tile, for a set of tokens, the tokens that read the set and the tokens that
//! the set reads.

use super::queries::QueryRows;
use noren_mask::bits::{count, set_bit, set_range};
use noren_mask::interval::IntervalSet;
use noren_mask::{BoundMask, Budget, Error, PatternPlan, Plan, PlanOptions, Reorder, SpanKind, Tile};
use std::collections::BTreeSet;
use std::ops::Range;

/// The maximum number of tiles in one layer: enough for two batch rows of the maximum sequence length.
const MOST_TILES: u64 = 1 << 26;
/// The maximum number of spans (ranges of keys that a tile reads) of one layer.
const MOST_SPANS: u64 = 1 << 27;

/// The result of a query that may read no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// The output is zero, as in noren and many other kernels.
    #[default]
    Nothing,
    /// The output is the mean of the values of all keys, including padding and later tokens. Kernels that set all
    /// hidden scores to one finite value give this result.
    Finite,
}

/// The plan of one layer, and its empty rows: the query rows that may read no key. With `Fill::Finite`, empty rows read
/// every key.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    plan: Plan,
    /// The empty rows (query rows without an allowed key), one set for each distinct pattern, which is a set of cells
    /// that heads share. With `Fill::Finite`, empty rows read every key; with `Fill::Nothing`, the sets are empty.
    empty: Vec<IntervalSet>,
}

impl Layer {
    /// Builds the plan of a layer with the mask `bound`.
    ///
    /// # Errors
    /// Returns [`Error::Budget`] if the plan has too many tiles or takes too long.
    pub(super) fn new(bound: &BoundMask, fill: Fill) -> Result<Self, Error> {
        let options = PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() };
        let plan = bound.plan_within(&options, &Budget::new().tiles(MOST_TILES).spans(MOST_SPANS))?;
        let empty =
            plan.patterns().iter().map(|p| if fill == Fill::Finite { empty_rows(p) } else { IntervalSet::new() });
        let empty = empty.collect();
        Ok(Layer { plan, empty })
    }

    /// Returns each distinct pattern (set of cells that heads share) of batch row `batch`, together with the empty rows
    /// of the pattern.
    fn patterns(&self, batch: usize) -> impl Iterator<Item = (&PatternPlan, &IntervalSet)> {
        let mut patterns: Vec<usize> =
            (0..self.plan.shape().head_count()).map(|h| self.plan.pattern_of(batch, h)).collect();
        patterns.sort_unstable();
        patterns.dedup();
        patterns.into_iter().map(|pattern| (&self.plan.patterns()[pattern], &self.empty[pattern]))
    }

    fn tokens(&self) -> u32 {
        self.plan.shape().kv_len() as u32
    }

    /// Returns the tokens of `known` and every token that reads at least one token of `known` in this layer. `queries`
    /// has the token of each query row.
    pub(super) fn readers(&self, batch: usize, queries: &QueryRows, known: &IntervalSet) -> IntervalSet {
        let bits = as_bits(known, self.tokens());
        let done = queries.rows_of(known);
        let q_len = self.plan.shape().q_len() as u32;
        let mut hit = as_bits(&done, q_len);
        for (plan, empty) in self.patterns(batch) {
            if !known.is_empty() {
                empty.iter().for_each(|i| set_range(&mut hit, i.start as usize, i.end as usize));
            }
            // Rows that are already influenced cannot change.
            for tile in plan.tiles().filter(|t| !done.contains_range(t.start, t.end)) {
                let meets = |kind: SpanKind| {
                    tile.spans.iter().filter(move |s| s.kind == kind).filter(|s| known.meets(s.start, s.end))
                };
                if meets(SpanKind::Full).next().is_some() {
                    set_range(&mut hit, tile.start as usize, tile.end as usize);
                    continue;
                }
                for span in meets(SpanKind::Mixed) {
                    rows_meeting(plan, tile, span.start..span.end, &bits, |row| set_bit(&mut hit, row as usize));
                }
            }
        }
        known.union(&queries.tokens_of(&as_set(&hit, q_len)))
    }

    /// Returns the tokens of `readers` and every token that at least one of `readers` reads in this layer. `queries`
    /// has the token of each query row.
    pub(super) fn read_by(&self, batch: usize, queries: &QueryRows, readers: &IntervalSet) -> IntervalSet {
        let n = self.tokens();
        let rows = queries.rows_of(readers);
        let mut out = as_bits(readers, n);
        for (plan, empty) in self.patterns(batch) {
            if empty.iter().any(|i| rows.meets(i.start, i.end)) {
                return IntervalSet::all(n);
            }
            for tile in plan.tiles().filter(|t| rows.meets(t.start, t.end)) {
                for span in tile.spans {
                    match span.kind {
                        SpanKind::Full => set_range(&mut out, span.start as usize, span.end as usize),
                        SpanKind::Mixed if all_set(&out, span.start, span.end) => {}
                        SpanKind::Mixed => union_rows(plan, tile, span.start..span.end, &rows, &mut out),
                    }
                }
            }
        }
        as_set(&out, n)
    }

    /// Returns the number of cells with a query in `to` and a key in `from` that at least one head of the batch row allows.
    /// Cells in which a token reads itself are not counted.
    pub(super) fn cells(&self, batch: usize, queries: &QueryRows, from: &IntervalSet, to: &IntervalSet) -> u64 {
        let n = self.tokens();
        let bits = as_bits(from, n);
        let rows = queries.rows_of(to);
        let both = from.intersect(to);
        let own = |rows: Range<u32>, keys: Range<u32>| -> u64 {
            queries.tokens_in(rows).map(|t| size(&both, t.start.max(keys.start), t.end.min(keys.end))).sum()
        };
        let patterns: Vec<_> =
            self.patterns(batch).map(|(plan, empty)| (plan, empty, plan.tiles().collect::<Vec<_>>())).collect();
        // between two borders, all query rows have the same tile of each pattern
        let borders = patterns.iter().flat_map(|(_, empty, tiles)| {
            tiles.iter().map(|tile| tile.end).chain(empty.iter().flat_map(|rows| [rows.start, rows.end]))
        });
        let borders: BTreeSet<u32> = borders.collect();
        let (mut total, mut start) = (0, 0);
        let (mut words, mut others) = (Vec::new(), Vec::new());
        for end in borders {
            let range = std::mem::replace(&mut start, end)..end;
            if !rows.meets(range.start, range.end) {
                continue;
            }
            let (mut full, mut mixed) = (Vec::new(), Vec::new());
            for (_, empty, tiles) in &patterns {
                full.extend(empty.contains(range.start).then_some(0..n));
                let tile = tiles[tiles.partition_point(|tile| tile.end <= range.start)];
                for span in tile.spans {
                    let list = if span.kind == SpanKind::Full { &mut full } else { &mut mixed };
                    list.push(span.start..span.end);
                }
            }
            let full: IntervalSet = full.into_iter().collect();
            for keys in full.iter() {
                total += size(&rows, range.start, range.end) * size(from, keys.start, keys.end)
                    - own(range.clone(), keys.start..keys.end);
            }
            let mixed = mixed.into_iter().collect::<IntervalSet>().minus(&full);
            for keys in mixed.iter().filter(|keys| from.meets(keys.start, keys.end)) {
                let wide = keys.len().div_ceil(64) as usize;
                words.clear();
                words.resize(range.len() * wide, 0);
                others.resize(words.len(), 0);
                for (plan, ..) in &patterns {
                    plan.fill_bits(range.clone(), keys.start..keys.end, &mut others);
                    words.iter_mut().zip(&others).for_each(|(word, other)| *word |= other);
                }
                for (row, cells) in range.clone().zip(words.chunks(wide)).filter(|(row, _)| rows.contains(*row)) {
                    total += masked(cells, &bits, keys.start).map(|w| u64::from(w.count_ones())).sum::<u64>();
                    let own = queries.token_of(row);
                    let reads_itself = (keys.start..keys.end).contains(&own) && from.contains(own) && {
                        let k = (own - keys.start) as usize;
                        cells[k / 64] >> (k % 64) & 1 == 1
                    };
                    total -= u64::from(reads_itself);
                }
            }
        }
        total
    }

    /// Calls `row(token, keys)` for each token that is a query, once for each distinct pattern (set of cells that heads
    /// share). The set bits of `keys` are the keys that the query reads in this pattern. Queries that read no key are
    /// skipped.
    pub(super) fn each_row(&self, batch: usize, queries: &QueryRows, mut row: impl FnMut(u32, &[u64])) {
        let n = self.tokens();
        let mut words = vec![0; n.div_ceil(64) as usize];
        for (plan, empty) in self.patterns(batch) {
            for q in 0..plan.q_len() {
                plan.fill_bits(q..q + 1, 0..n, &mut words);
                if empty.contains(q) {
                    set_range(&mut words, 0, n as usize);
                }
                if count(&words) > 0 {
                    row(queries.token_of(q), &words);
                }
            }
        }
    }
}

/// Returns a set of numbers below `len` as words of 64 bits: bit `n % 64` of word `n / 64` is set if `n` is in the set.
fn as_bits(set: &IntervalSet, len: u32) -> Vec<u64> {
    let mut bits = vec![0; len.div_ceil(64) as usize];
    set.iter().for_each(|i| set_range(&mut bits, i.start as usize, i.end.min(len) as usize));
    bits
}

/// Returns the numbers below `len` whose bits are set in `bits`. This function is the inverse of `as_bits`.
fn as_set(bits: &[u64], len: u32) -> IntervalSet {
    let mut set = IntervalSet::new();
    noren_mask::bits::runs(bits, 0, len, |a, z| set.push(a, z));
    set
}

/// Returns true if the bits `start..end` are all set. The range must not be empty.
fn all_set(bits: &[u64], start: u32, end: u32) -> bool {
    let (first, last) = (start as usize / 64, (end as usize - 1) / 64);
    (first..=last).all(|word| {
        let low = if word == first { u64::MAX << (start % 64) } else { u64::MAX };
        let high = if word == last { u64::MAX >> (63 - (end - 1) % 64) } else { u64::MAX };
        bits[word] & low & high == low & high
    })
}

/// Returns the number of tokens of `set` in the range `start..end`. The range may be empty.
fn size(set: &IntervalSet, start: u32, end: u32) -> u64 {
    if start >= end { 0 } else { set.within(start, end).map(|i| u64::from(i.len())).sum() }
}

/// Writes one bit to `words` for each cell of a tile with a key in `keys`: 1 if the query row may read the key. The
/// bits of each query row begin with a new 64-bit word.
fn fill(plan: &PatternPlan, tile: Tile<'_>, keys: Range<u32>, words: &mut Vec<u64>) {
    let wide = (keys.end - keys.start).div_ceil(64) as usize;
    words.clear();
    words.resize(tile.rows() as usize * wide, 0);
    plan.fill_bits(tile.start..tile.end, keys, words);
}

/// Returns the bits that are set both in `cells` and in `bits`, as words of 64 bits. Bit 0 of `cells` belongs to key
/// `start`, and bit 0 of `bits` belongs to key 0.
fn masked<'a>(cells: &'a [u64], bits: &'a [u64], start: u32) -> impl Iterator<Item = u64> + 'a {
    let (word, shift) = (start as usize / 64, start % 64);
    cells.iter().enumerate().map(move |(i, cell)| {
        let low = bits.get(word + i).copied().unwrap_or(0) >> shift;
        let high = if shift == 0 { 0 } else { bits.get(word + i + 1).copied().unwrap_or(0) << (64 - shift) };
        cell & (low | high)
    })
}

fn rows_meeting(plan: &PatternPlan, tile: Tile<'_>, keys: Range<u32>, bits: &[u64], mut hit: impl FnMut(u32)) {
    let wide = (keys.end - keys.start).div_ceil(64) as usize;
    let mut words = Vec::new();
    fill(plan, tile, keys.clone(), &mut words);
    for (row, cells) in (tile.start..).zip(words.chunks(wide)) {
        if masked(cells, bits, keys.start).any(|w| w != 0) {
            hit(row);
        }
    }
}

/// Sets in `out` the bit of each key in the range `keys` that at least one query row of `rows` reads in the tile.
fn union_rows(plan: &PatternPlan, tile: Tile<'_>, keys: Range<u32>, rows: &IntervalSet, out: &mut [u64]) {
    let wide = (keys.end - keys.start).div_ceil(64) as usize;
    let mut words = Vec::new();
    fill(plan, tile, keys.clone(), &mut words);
    let mut all = vec![0u64; wide];
    for (_, cells) in (tile.start..).zip(words.chunks(wide)).filter(|(row, _)| rows.contains(*row)) {
        all.iter_mut().zip(cells).for_each(|(a, c)| *a |= c);
    }
    noren_mask::bits::runs(&all, 0, keys.end - keys.start, |a, z| {
        set_range(out, (keys.start + a) as usize, (keys.start + z) as usize)
    });
}

/// Returns the query rows whose mask allows no key.
fn empty_rows(plan: &PatternPlan) -> IntervalSet {
    let mut out = IntervalSet::new();
    let mut words = Vec::new();
    for tile in plan.tiles() {
        if tile.spans.iter().any(|s| s.kind == SpanKind::Full) {
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
