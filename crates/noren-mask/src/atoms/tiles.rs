//! [`TileCells`]: the cells of a function as tiles of 64 queries and 64 keys.

use crate::Error;
use crate::bits::runs;
use crate::resolved::{Reach, ResolvedAtom, RowWork};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// The number of queries and the number of keys of a tile.
const SIDE: i64 = TileCells::SIDE as i64;

/// A run of tiles in one row of tiles, and the first of its mixed tiles in the list of bits.
#[derive(Clone, Copy, Debug)]
struct TileRun {
    /// Index of the first tile.
    start: u32,
    /// Index after the last tile.
    end: u32,
    /// Index of the bits of the first tile, or `None` if the tiles are full. The bits of the next tiles follow.
    bits: Option<usize>,
}

/// The cells of one batch row and head for a range of query positions and the key positions from 0: full tiles as runs,
/// mixed tiles as bits. A tile has [`SIDE`](Self::SIDE) queries and as many keys. Tiles without allowed cells take no memory.
///
/// ```
/// use noren_mask::atoms::TileCells;
/// let mut cells = TileCells::new(0..64, 128);
/// cells.full(0, 0..1)?; // the first tile of the first row of tiles
/// cells.mixed(0, 1, [1; 64])?; // each of the 64 queries reads the first key of the second tile
/// assert!(cells.allowed(63, 63) && cells.allowed(5, 64) && !cells.allowed(5, 65));
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TileCells {
    queries: Range<i64>,
    keys_end: i64,
    /// The number of rows of tiles.
    row_count: usize,
    /// The runs of row of tiles `i` begin at `runs[rows[i]]` and end where those of row `i + 1` begin. Rows after the last row that
    /// has runs are not listed.
    rows: Vec<usize>,
    runs: Vec<TileRun>,
    bits: Vec<[u64; TileCells::SIDE]>,
}

impl TileCells {
    /// The number of queries of a tile, and of keys.
    pub const SIDE: usize = 64;

    /// Returns cells without an allowed cell, for the query positions `queries` and the key positions `0..keys_end`.
    pub fn new(queries: Range<i64>, keys_end: i64) -> Self {
        let row_count = (queries.end - queries.start).max(0) as usize;
        let row_count = row_count.div_ceil(TileCells::SIDE);
        TileCells { queries, keys_end, row_count, rows: Vec::new(), runs: Vec::new(), bits: Vec::new() }
    }

    /// Returns the query positions.
    pub fn queries(&self) -> Range<i64> {
        self.queries.clone()
    }

    /// Returns the first position after the last key.
    pub fn keys_end(&self) -> i64 {
        self.keys_end
    }

    /// Returns the number of bytes of the runs and bits.
    pub fn bytes(&self) -> usize {
        self.rows.len() * size_of::<usize>()
            + self.runs.len() * size_of::<TileRun>()
            + self.bits.len() * size_of::<[u64; TileCells::SIDE]>()
    }

    /// Allows every cell of the tiles `tiles` of row of tiles `row`. Tiles are added by ascending row, and in a row by
    /// ascending index.
    ///
    /// # Errors
    /// Returns an error if the tiles do not exist or are not after the tiles that were added before.
    pub fn full(&mut self, row: usize, tiles: Range<u32>) -> Result<(), Error> {
        self.push(row, TileRun { start: tiles.start, end: tiles.end, bits: None })
    }

    /// Allows cells of tile `tile` of row of tiles `row`: query `i` of the tile reads key `j` of the tile if bit `j` of
    /// `bits[i]` is 1. Bits beyond the queries and keys must be 0.
    ///
    /// # Errors
    /// Returns the errors of [`full`](Self::full), and an error for bits beyond the queries and keys.
    pub fn mixed(&mut self, row: usize, tile: u32, bits: [u64; TileCells::SIDE]) -> Result<(), Error> {
        let keys = self.keys_end - i64::from(tile) * SIDE;
        let queries = self.queries.end - self.queries.start - row as i64 * SIDE;
        let beyond_keys = if keys < SIDE { u64::MAX << keys.max(0) } else { 0 };
        let past = bits.iter().zip(0..).any(|(word, i)| if i < queries { word & beyond_keys != 0 } else { *word != 0 });
        if past {
            return Err(Error::fact("tiles", format!("tile {tile} of row {row} has bits beyond the queries and keys")));
        }
        let at = self.bits.len();
        self.push(row, TileRun { start: tile, end: tile.saturating_add(1), bits: Some(at) })?;
        self.bits.push(bits);
        Ok(())
    }

    fn push(&mut self, row: usize, run: TileRun) -> Result<(), Error> {
        let (count, tiles) = (self.row_count, (self.keys_end + SIDE - 1) / SIDE);
        if row >= count || run.start >= run.end || i64::from(run.end) > tiles {
            return Err(Error::fact(
                "tiles",
                format!("row {row}, tiles {}..{}: there are {count} rows of {tiles} tiles", run.start, run.end),
            ));
        }
        let new_row = row >= self.rows.len();
        let after = if new_row { 0 } else { self.runs.last().map_or(0, |last| last.end) };
        if row + 1 < self.rows.len() || run.start < after {
            return Err(Error::fact(
                "tiles",
                format!(
                    "tile {} of row {row} comes after a later tile: add tiles by ascending row and index",
                    run.start
                ),
            ));
        }
        if new_row {
            self.rows.resize(row + 1, self.runs.len());
        }
        self.runs.push(run);
        Ok(())
    }

    fn row_runs(&self, row: i64) -> &[TileRun] {
        let at = |row: usize| self.rows.get(row).copied().unwrap_or(self.runs.len());
        &self.runs[at(row as usize)..at(row as usize + 1)]
    }

    /// Returns whether the query at position `q` may read the key at position `k`; false for positions without cells.
    pub fn allowed(&self, q: i64, k: i64) -> bool {
        if !self.queries.contains(&q) || !(0..self.keys_end).contains(&k) {
            return false;
        }
        let mut found = false;
        self.emit(q, k..k + 1, &mut |_, _| found = true);
        found
    }

    /// Calls `emit(start, end)` for the runs of key positions in `keys` that the query at position `q` reads.
    fn emit(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let at = q - self.queries.start;
        let (start, end) = (keys.start.max(0), keys.end.min(self.keys_end));
        if !self.queries.contains(&q) || start >= end {
            return;
        }
        let list = self.row_runs(at / SIDE);
        let first = list.partition_point(|run| i64::from(run.end) * SIDE <= start);
        for run in list[first..].iter().take_while(|run| i64::from(run.start) * SIDE < end) {
            let Some(bits) = run.bits else {
                emit((i64::from(run.start) * SIDE).max(start), (i64::from(run.end) * SIDE).min(end));
                continue;
            };
            let base = i64::from(run.start) * SIDE;
            let word = self.bits[bits][(at % SIDE) as usize];
            let (from, to) = ((start - base).max(0), (end - base).min(SIDE));
            runs(&[word], from as u32, to as u32, |a, z| emit(base + i64::from(a), base + i64::from(z)));
        }
    }
}

/// Cells that planning reads. Two values are equal if they share their cells.
#[derive(Clone, Debug)]
pub(super) struct SharedCells(pub(super) Arc<TileCells>);

impl SharedCells {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl PartialEq for SharedCells {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for SharedCells {}

impl PartialOrd for SharedCells {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SharedCells {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl Hash for SharedCells {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl ResolvedAtom for SharedCells {
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        self.0.emit(q, keys, emit);
    }

    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        let cells = &*self.0;
        if queries.start < cells.queries.start || queries.end > cells.queries.end || keys.end > cells.keys_end {
            return Reach::Unknown;
        }
        let (first, last) = (queries.start - cells.queries.start, queries.end - 1 - cells.queries.start);
        let positions = |run: &TileRun| i64::from(run.start) * SIDE..(i64::from(run.end) * SIDE).min(cells.keys_end);
        let mut some = Vec::new();
        let mut every: Option<Vec<Range<i64>>> = None;
        for row in first / SIDE..=last / SIDE {
            let list = cells.row_runs(row);
            some.extend(list.iter().map(positions));
            let full: Vec<_> = list.iter().filter(|run| run.bits.is_none()).map(positions).collect();
            every = Some(match every {
                None => full,
                Some(before) => intersect(&before, &full),
            });
        }
        Reach::Keys { some, every: every.unwrap_or_default() }
    }

    fn row_work(&self) -> RowWork {
        RowWork::ManyRuns
    }
}

/// Returns the positions that are in both lists of ascending ranges.
fn intersect(a: &[Range<i64>], b: &[Range<i64>]) -> Vec<Range<i64>> {
    let (mut i, mut j, mut both) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        let (start, end) = (a[i].start.max(b[j].start), a[i].end.min(b[j].end));
        if start < end {
            both.push(start..end);
        }
        if a[i].end < b[j].end { i += 1 } else { j += 1 }
    }
    both
}
