//! [`DevicePlan`]: the flat arrays that a GPU kernel reads, for one pattern (the set of cells of a batch row and head).
//!
//! A kernel adds the terms of a sum in blocks, so the last bits of its results depend on where the blocks begin. Blocks
//! of keys and of query rows therefore begin where content begins, such as a document. So a document has the same
//! blocks when it is packed with others, and a batch row has the same blocks with any padding.

use super::Runs;
use crate::Error;
use crate::facts::resolve::RowFacts;
use crate::plan::{Plan, SpanKind, Tile};
use crate::sets::interval::IntervalSet;
use std::collections::HashMap;
use std::ops::Range;

/// The tiles of one pattern (the set of cells of a batch row and head), for kernels that compute `block_q` query rows
/// and `block_kv` keys per step.
///
/// The forward pass and the gradients of queries use [`rows`](Self::rows): tiles of query rows, each with runs of keys.
/// The gradients of keys and values use [`keys`](Self::keys): tiles of keys, each with runs of query rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DevicePlan {
    /// The sizes `[block_q, block_kv]`.
    pub block: [u32; 2],
    /// Tiles of at most `block_q` query rows. They cover all query rows in order.
    pub rows: DeviceSide,
    /// Tiles of at most `block_kv` keys. They cover all keys in order.
    pub keys: DeviceSide,
    /// The cells of the mixed blocks as bits, `[blocks][block_q][block_kv / 32]`, 1 for allowed. Equal blocks are
    /// stored once. Bits beyond the rows and keys of the tile are 0.
    pub words: Vec<u32>,
}

/// Tiles of query rows, each with the runs of keys that it reads; or tiles of keys, each with the runs of query rows
/// that read it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceSide {
    /// The query rows (or keys) of each tile as `[first, end]`, `end` excluded.
    pub tiles: Vec<[u32; 2]>,
    /// The index in `runs` of the first run of each tile. The last element is the number of runs.
    pub indptr: Vec<u32>,
    /// The runs of all tiles as `[first, end, block]`, `end` excluded, ascending in each tile: keys that a tile of
    /// query rows reads, or query rows that read a tile of keys. If `block` is [`FULL`](DevicePlan::FULL), all cells of
    /// the run are allowed, and a kernel computes the run in one or more steps. Otherwise a kernel computes the run in
    /// one step, and `block` is the index of its cells in [`words`](DevicePlan::words).
    pub runs: Vec<[i32; 3]>,
}

/// The maximum number of cells that the mixed spans (ranges of keys with allowed and denied cells) of a plan may have,
/// for [`Plan::device`].
const MOST_CELLS: u64 = 1 << 31;

impl DevicePlan {
    /// The value of `block` for a run in which every cell is allowed.
    pub const FULL: i32 = -1;
}

impl Plan {
    /// Returns the arrays for a GPU kernel, for pattern `pattern` (the set of cells of a batch row and head). `block`
    /// is the numbers `[query rows, keys]` that the kernel computes in one step.
    ///
    /// ```
    /// use noren_mask::{DevicePlan, Facts, Shape, atoms::*};
    /// let facts = Facts::new().documents(vec![40, 24]);
    /// let plan = (causal() & documents()).bind(&Shape::square(64), &facts)?.plan();
    /// let device = plan.device(0, [32, 32])?;
    /// assert_eq!(device.rows.tiles, [[0, 32], [32, 40], [40, 64]]); // the second document begins a tile
    /// assert_eq!(device.rows.runs[1], [0, 32, DevicePlan::FULL]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the mixed spans of the plan have more than 2^31 cells.
    ///
    /// # Panics
    /// Panics if the plan has no pattern with this index, if `block[0]` is not a multiple of 16 above 0, or if `block[1]`
    /// is not a multiple of 32 above 0.
    pub fn device(&self, pattern: usize, block: [u32; 2]) -> Result<DevicePlan, Error> {
        let [rows, keys] = block;
        assert!(
            rows > 0 && rows.is_multiple_of(16) && keys > 0 && keys.is_multiple_of(32),
            "blocks of {block:?} cells"
        );
        let plan = self.in_place();
        let mixed = |tile: Tile<'_>| {
            let spans = tile.spans.iter().filter(|span| span.kind == SpanKind::Mixed);
            spans.map(|span| u64::from(span.keys()) * u64::from(tile.rows())).sum::<u64>()
        };
        let cells: u64 = plan.patterns()[pattern].tiles().map(mixed).sum();
        if cells > MOST_CELLS {
            return Err(Error::Budget(format!(
                "the mixed tiles have {cells} cells, but a GPU kernel gets at most {MOST_CELLS} cells: use a mask whose tiles are full or empty, or shorter sequences"
            )));
        }
        let lists = plan.row_runs(pattern);
        let kv_len = self.shape().kv_len() as u32;
        let pieces = self.pieces(pattern, &lists);
        let mut words = Words::new(block);
        let mut rows = DeviceSide { indptr: vec![0], ..DeviceSide::default() };
        let mut keys = ByKey::new(&pieces, block[1], kv_len);
        for piece in &pieces {
            for start in piece.rows.clone().step_by(block[0] as usize) {
                let tile = start..piece.rows.end.min(start + block[0]);
                let lists: Vec<&[[u32; 2]]> = tile.clone().map(|row| lists.list(row as usize)).collect();
                let (any, all) = (union(&lists), intersection(&lists));
                let before = rows.runs.len();
                row_runs(&mut rows.runs, &mut words, &lists, (&any, &all), piece.origin, kv_len);
                debug_assert!(rows.runs[before..].is_sorted_by(|a, b| a[1] <= b[0]));
                rows.tiles.push([tile.start, tile.end]);
                rows.indptr.push(rows.runs.len() as u32);
                keys.add(tile, piece.rows.start, &lists, (&any, &all), &mut words);
            }
        }
        Ok(DevicePlan { block, rows, keys: keys.finish(), words: words.finish() })
    }

    /// Cuts the query rows into pieces. A piece is consecutive query rows of the same content, such as a document.
    /// `lists` has the keys of each row. A row begins a new piece in three cases: all its keys are before or after all
    /// keys of the previous row; only one of the two rows reads no key; or only one of the two rows is padding.
    fn pieces(&self, pattern: usize, lists: &Runs) -> Vec<Piece> {
        let shape = self.shape();
        let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
        let batch = pairs.into_iter().find(|&(b, h)| self.pattern_of(b, h) == pattern).map_or(0, |(b, _)| b);
        let real = self.real_rows(batch);
        let mut out: Vec<Piece> = Vec::new();
        let mut last: Option<[u32; 2]> = None;
        let mut before = true;
        for (row, list) in lists.lists().enumerate() {
            let row = row as u32;
            let is_real = real.as_ref().is_none_or(|real| real.contains(row));
            let covering = list.first().zip(list.last()).map(|(first, last)| [first[0], last[1]]);
            let goes_on = match (last, covering) {
                (Some(a), Some(b)) => a[0] < b[1] && b[0] < a[1],
                (a, b) => a.is_none() && b.is_none(),
            };
            let origin = covering.map_or(u32::MAX, |keys| keys[0]);
            match out.last_mut().filter(|_| goes_on && is_real == before) {
                Some(piece) => {
                    piece.rows.end = row + 1;
                    piece.origin = piece.origin.min(origin);
                    piece.end = piece.end.max(covering.map_or(0, |keys| keys[1]));
                }
                None => {
                    let end = covering.map_or(0, |keys| keys[1]);
                    out.push(Piece { rows: row..row + 1, origin, end, is_real });
                }
            }
            (last, before) = (covering, is_real);
        }
        out
    }

    /// Returns the non-padding query rows of batch row `batch`, or `None` if the facts give no padding.
    fn real_rows(&self, batch: usize) -> Option<IntervalSet> {
        let bound = self.bound();
        bound.facts().real.as_ref()?;
        Some(RowFacts { facts: bound.facts(), frame: bound.frame(batch), row: batch }.real_queries(None, None))
    }
}

/// Consecutive query rows of the same content, such as a document.
#[derive(Debug)]
struct Piece {
    rows: Range<u32>,
    /// The lowest key that at least one of the rows reads, or `u32::MAX` if the rows read no key. Blocks of keys begin
    /// at this key.
    origin: u32,
    /// The first key after all keys that the rows read, or 0 if the rows read no key.
    end: u32,
    /// True if the query rows are non-padding tokens.
    is_real: bool,
}

/// Divides the keys of a tile of query rows into blocks that begin at `origin` plus a multiple of the block size. For
/// each mixed block, appends `[first key, end, index of the cells in words]` to `out`. Consecutive blocks that all rows
/// read become one entry with the index [`DevicePlan::FULL`]. `lists` has the keys of each row, `any` the keys that at
/// least one row reads, and `all` the keys that every row reads.
pub(super) fn row_runs(
    out: &mut Vec<[i32; 3]>,
    words: &mut Words,
    lists: &[&[[u32; 2]]],
    (any, all): (&[[u32; 2]], &[[u32; 2]]),
    origin: u32,
    kv_len: u32,
) {
    let size = words.block[1];
    let mut next = origin;
    for &[start, end] in any {
        let mut key = next.max(origin + (start.max(origin) - origin) / size * size);
        while key < end {
            let inside = all.partition_point(|run| run[1] <= key);
            let full = all.get(inside).filter(|run| run[0] <= key).map_or(0, |run| (run[1] - key) / size * size);
            let step = if full > 0 { full } else { size };
            let block = if full > 0 { DevicePlan::FULL } else { words.block(lists, key..kv_len.min(key + size)) };
            out.push([key as i32, (key + step) as i32, block]);
            key += step;
        }
        next = key;
    }
}

/// The cells of mixed blocks as bits. Equal blocks are stored once.
pub(super) struct Words {
    block: [u32; 2],
    known: HashMap<Vec<u32>, i32>,
    words: Vec<u32>,
}

impl Words {
    pub(super) fn new(block: [u32; 2]) -> Self {
        Words { block, known: HashMap::new(), words: Vec::new() }
    }

    /// Returns the words with the bits of all blocks, block after block.
    pub(super) fn finish(self) -> Vec<u32> {
        self.words
    }

    /// Returns the index of the block whose cells are the query rows in `lists` times the keys `keys`. Stores the block
    /// if no equal block is stored.
    fn block(&mut self, lists: &[&[[u32; 2]]], keys: Range<u32>) -> i32 {
        let per_row = (self.block[1] / 32) as usize;
        let mut words = vec![0u32; self.block[0] as usize * per_row];
        for (list, row) in lists.iter().zip(words.chunks_exact_mut(per_row)) {
            let first = list.partition_point(|run| run[1] <= keys.start);
            for run in list[first..].iter().take_while(|run| run[0] < keys.end) {
                for key in run[0].max(keys.start) - keys.start..run[1].min(keys.end) - keys.start {
                    row[key as usize / 32] |= 1 << (key % 32);
                }
            }
        }
        let next = self.known.len() as i32;
        *self.known.entry(words).or_insert_with_key(|words| {
            self.words.extend(words);
            next
        })
    }
}

/// A builder of [`DeviceSide`] for tiles of keys. Tiles of query rows are added to it in ascending order.
struct ByKey {
    tiles: Vec<[u32; 2]>,
    /// The unfinished runs of query rows, as pairs (range of key tiles, first query row of the run). All query rows of
    /// a run read all keys of these tiles. The run ends before the first query row that does not, and at the end of a
    /// piece (query rows of the same content).
    open: Vec<(Range<usize>, u32)>,
    /// The first query row of the current piece: query rows of the same content, such as a document. Runs of query rows
    /// end at the end of a piece.
    piece: u32,
    /// The first query row after the rows that were added so far.
    end: u32,
    /// The finished runs of query rows, as (index of the key tile that the rows read, run).
    runs: Vec<(u32, [i32; 3])>,
}

impl ByKey {
    /// Cuts the keys into tiles of at most `size` keys. Tiles also end at borders of the content: before the first key
    /// and after the last key that a non-padding piece (query rows of the same content) reads.
    fn new(pieces: &[Piece], size: u32, kv_len: u32) -> Self {
        let mut borders: Vec<u32> = {
            let real = pieces.iter().filter(|piece| piece.is_real);
            real.flat_map(|piece| [piece.origin.min(kv_len), piece.end]).collect()
        };
        borders.extend([0, kv_len]);
        borders.sort_unstable();
        borders.dedup();
        let between = borders.windows(2).flat_map(|ends| {
            (ends[0]..ends[1]).step_by(size as usize).map(move |start| [start, ends[1].min(start + size)])
        });
        ByKey { tiles: between.collect(), open: Vec::new(), piece: 0, end: 0, runs: Vec::new() }
    }

    /// Adds a tile of the query rows `rows`. `piece` is the first query row of the piece (query rows of the same
    /// content) that contains `rows`. `lists` has the keys of each row, `any` the keys that at least one row reads, and
    /// `all` the keys that every row reads.
    fn add(
        &mut self,
        rows: Range<u32>,
        piece: u32,
        lists: &[&[[u32; 2]]],
        (any, all): (&[[u32; 2]], &[[u32; 2]]),
        words: &mut Words,
    ) {
        if self.piece != piece {
            self.close();
            self.piece = piece;
        }
        let full: Vec<Range<usize>> = all
            .iter()
            .map(|run| {
                let first = self.tiles.partition_point(|tile| tile[0] < run[0]);
                first..self.tiles.partition_point(|tile| tile[1] <= run[1]).max(first)
            })
            .filter(|range| !range.is_empty())
            .collect();
        for &[start, end] in any {
            let mut tile = self.tiles.partition_point(|tile| tile[1] <= start);
            while self.tiles.get(tile).is_some_and(|tile| tile[0] < end) {
                let inside = full.partition_point(|range| range.end <= tile);
                match full.get(inside).filter(|range| range.start <= tile) {
                    Some(range) => tile = range.end,
                    None => {
                        let [first, last] = self.tiles[tile];
                        // Two runs of keys of `any` can be in one tile.
                        let again =
                            self.runs.last().is_some_and(|(t, run)| *t as usize == tile && run[0] == rows.start as i32);
                        if !again {
                            let block = words.block(lists, first..last);
                            self.runs.push((tile as u32, [rows.start as i32, rows.end as i32, block]));
                        }
                        tile += 1;
                    }
                }
            }
        }
        self.follow(full, rows);
    }

    /// Updates the unfinished runs after the query rows `rows`. `full` lists key tiles: every row of `rows` reads all
    /// keys of these tiles. Ends the runs for key tiles in `open` that are not in `full`, and begins runs for key tiles
    /// in `full` that are not in `open`.
    fn follow(&mut self, full: Vec<Range<usize>>, rows: Range<u32>) {
        let mut open = Vec::with_capacity(full.len());
        for (range, since) in std::mem::take(&mut self.open) {
            for part in without(&range, &full) {
                self.close_range(part, since);
            }
            let both = full.iter().map(|f| f.start.max(range.start)..f.end.min(range.end));
            open.extend(both.filter(|both| !both.is_empty()).map(|both| (both, since)));
        }
        let old: Vec<Range<usize>> = open.iter().map(|(range, _)| range.clone()).collect();
        open.extend(full.iter().flat_map(|range| without(range, &old)).map(|range| (range, rows.start)));
        open.sort_by_key(|(range, _)| range.start);
        (self.open, self.end) = (open, rows.end);
    }

    fn close_range(&mut self, tiles: Range<usize>, since: u32) {
        let run = [since as i32, self.end as i32, DevicePlan::FULL];
        self.runs.extend(tiles.map(|tile| (tile as u32, run)));
    }

    fn close(&mut self) {
        for (range, since) in std::mem::take(&mut self.open) {
            self.close_range(range, since);
        }
    }

    fn finish(mut self) -> DeviceSide {
        self.close();
        self.runs.sort_unstable_by_key(|(tile, run)| (*tile, run[0]));
        let count = self.tiles.len() as u32;
        let indptr = (0..=count).map(|tile| self.runs.partition_point(|run| run.0 < tile) as u32).collect();
        DeviceSide { tiles: self.tiles, indptr, runs: self.runs.into_iter().map(|(_, run)| run).collect() }
    }
}

/// Returns the parts of `range` that are in none of the ranges `others`. These ranges are ascending and disjoint.
fn without(range: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut start = range.start;
    for other in others.iter().filter(|other| other.start < range.end && range.start < other.end) {
        if start < other.start {
            out.push(start..other.start);
        }
        start = start.max(other.end);
    }
    if start < range.end {
        out.push(start..range.end);
    }
    out
}

/// Returns the runs of keys that at least one list contains.
pub(super) fn union(lists: &[&[[u32; 2]]]) -> Vec<[u32; 2]> {
    let mut all: Vec<[u32; 2]> = lists.concat();
    all.sort_unstable();
    let mut out: Vec<[u32; 2]> = Vec::new();
    for run in all {
        match out.last_mut().filter(|last| run[0] <= last[1]) {
            Some(last) => last[1] = last[1].max(run[1]),
            None => out.push(run),
        }
    }
    out
}

/// Returns the runs of keys that every list contains.
pub(super) fn intersection(lists: &[&[[u32; 2]]]) -> Vec<[u32; 2]> {
    let mut out = lists.first().map_or(Vec::new(), |list| list.to_vec());
    for list in lists.iter().skip(1) {
        let (mut a, mut b, mut both) = (0, 0, Vec::new());
        while a < out.len() && b < list.len() {
            let (start, end) = (out[a][0].max(list[b][0]), out[a][1].min(list[b][1]));
            if start < end {
                both.push([start, end]);
            }
            if out[a][1] < list[b][1] { a += 1 } else { b += 1 }
        }
        out = both;
        if out.is_empty() {
            break;
        }
    }
    out
}
