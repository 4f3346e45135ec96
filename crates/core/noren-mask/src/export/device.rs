//! [`DevicePlan`]: the flat arrays that a GPU kernel reads, for one pattern (the set of cells of a batch row and head).
//!
//! A kernel adds the terms of a sum in blocks, so the last bits of its results depend on where the blocks begin. Blocks
//! of keys and of query rows therefore begin where content begins, such as a document. So a document has the same
//! blocks when it is packed with others, and a batch row has the same blocks with any padding.

use super::Runs;
use crate::Error;
use crate::facts::resolve::RowFacts;
use crate::plan::{Plan, SpanKind, Tile};
use crate::sets::interval::{Interval, IntervalSet};
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
                let read = RowKeys::new(tile.clone().map(|row| lists.set(row as usize)).collect());
                let before = rows.runs.len();
                read.add_runs(&mut rows.runs, &mut words, piece.origin, kv_len);
                debug_assert!(rows.runs[before..].is_sorted_by(|a, b| a[1] <= b[0]));
                rows.tiles.push([tile.start, tile.end]);
                rows.indptr.push(rows.runs.len() as u32);
                keys.add(tile, piece.rows.start, &read, &mut words);
            }
        }
        Ok(DevicePlan { block, rows, keys: keys.finish(), words: words.finish() })
    }

    /// Cuts the query rows into pieces. A piece is consecutive query rows of the same content, such as a document.
    /// `lists` has the keys of each row. A row begins a new piece in three cases: all its keys are before or after all
    /// keys of the previous row; only one of the two rows reads no key; or only one of the two rows is padding.
    fn pieces(&self, pattern: usize, lists: &Runs) -> Vec<Piece> {
        let place = self.shape().batch_heads().find(|&(b, h)| self.pattern_of(b, h) == pattern);
        let batch = place.map_or(0, |(batch, _)| batch);
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

/// The keys that the query rows of a tile read.
pub(super) struct RowKeys {
    pub(super) each: Vec<IntervalSet>,
    /// The keys that at least one row reads.
    pub(super) any: IntervalSet,
    /// The keys that every row reads.
    all: IntervalSet,
}

impl RowKeys {
    pub(super) fn new(each: Vec<IntervalSet>) -> Self {
        let any = each.iter().flat_map(IntervalSet::iter).map(|run| run.start..run.end).collect();
        let all = each.iter().cloned().reduce(|all, row| all.intersect(&row)).unwrap_or_default();
        RowKeys { each, any, all }
    }

    /// Divides the keys into blocks that begin at `origin` plus a multiple of the block size. For each mixed block,
    /// appends `[first key, end, index of the cells in words]` to `out`. Consecutive blocks that all rows read become one
    /// entry with the index [`DevicePlan::FULL`].
    pub(super) fn add_runs(&self, out: &mut Vec<[i32; 3]>, words: &mut Words, origin: u32, kv_len: u32) {
        let size = words.block[1];
        let mut next = origin;
        for Interval { start, end } in self.any.iter() {
            let mut key = next.max(origin + (start.max(origin) - origin) / size * size);
            while key < end {
                let inside = self.all.within(key, kv_len).next().filter(|run| run.start == key);
                let full = inside.map_or(0, |run| run.len() / size * size);
                let step = if full > 0 { full } else { size };
                let block = if full > 0 { DevicePlan::FULL } else { words.block(self, key..kv_len.min(key + size)) };
                out.push([key as i32, (key + step) as i32, block]);
                key += step;
            }
            next = key;
        }
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

    /// Returns the index of the block whose cells are the query rows of `read` times the keys `keys`. Stores the block if
    /// no equal block is stored.
    fn block(&mut self, read: &RowKeys, keys: Range<u32>) -> i32 {
        let per_row = (self.block[1] / 32) as usize;
        let mut words = vec![0u32; self.block[0] as usize * per_row];
        for (row, words) in read.each.iter().zip(words.chunks_exact_mut(per_row)) {
            for run in row.within(keys.start, keys.end) {
                for key in run.start - keys.start..run.end - keys.start {
                    words[key as usize / 32] |= 1 << (key % 32);
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
    open: Vec<(Interval, u32)>,
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

    /// Adds a tile of the query rows `rows`, which read the keys `read`. `piece` is the first query row of the piece (query
    /// rows of the same content) that contains `rows`.
    fn add(&mut self, rows: Range<u32>, piece: u32, read: &RowKeys, words: &mut Words) {
        if self.piece != piece {
            self.close();
            self.piece = piece;
        }
        let tile = |is_before: &dyn Fn(&[u32; 2]) -> bool| self.tiles.partition_point(is_before) as u32;
        let full = read.all.iter().map(|run| tile(&|t| t[0] < run.start)..tile(&|t| t[1] <= run.end)).collect();
        let touched = read.any.iter().map(|run| tile(&|t| t[1] <= run.start)..tile(&|t| t[0] < run.end));
        let touched: IntervalSet = touched.collect();
        for tile in touched.minus(&full).iter().flat_map(|tiles| tiles.start..tiles.end) {
            let [first, last] = self.tiles[tile as usize];
            let block = words.block(read, first..last);
            self.runs.push((tile, [rows.start as i32, rows.end as i32, block]));
        }
        self.follow(&full, rows);
    }

    /// Updates the unfinished runs after the query rows `rows`. `full` has key tiles: every row of `rows` reads all
    /// keys of these tiles. Ends the runs for key tiles in `open` that are not in `full`, and begins runs for key tiles
    /// in `full` that are not in `open`.
    fn follow(&mut self, full: &IntervalSet, rows: Range<u32>) {
        let mut open: Vec<(Interval, u32)> = Vec::new();
        for (tiles, since) in std::mem::take(&mut self.open) {
            let tiles = IntervalSet::from(tiles.start..tiles.end);
            tiles.minus(full).iter().for_each(|ended| self.close_range(ended, since));
            open.extend(tiles.intersect(full).iter().map(|both| (both, since)));
        }
        let old = open.iter().map(|(tiles, _)| tiles.start..tiles.end).collect();
        open.extend(full.minus(&old).iter().map(|tiles| (tiles, rows.start)));
        open.sort_by_key(|(tiles, _)| tiles.start);
        (self.open, self.end) = (open, rows.end);
    }

    fn close_range(&mut self, tiles: Interval, since: u32) {
        let run = [since as i32, self.end as i32, DevicePlan::FULL];
        self.runs.extend((tiles.start..tiles.end).map(|tile| (tile, run)));
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
