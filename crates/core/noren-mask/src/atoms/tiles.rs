//! [`TileCells`]: the cells of a function as tiles of 64 queries and 64 keys.

use crate::Error;
use crate::mask::basis::ByAddress;
use crate::mask::resolved::{Reach, ResolvedAtom, RowWork};
use crate::sets::bits::runs;
use std::ops::Range;

/// The number of queries and the number of keys of a tile.
const SIDE: i64 = TileCells::SIDE as i64;

/// Consecutive tiles in one row of tiles. Either all tiles of the run are full, or all are mixed (with allowed and
/// denied cells).
#[derive(Clone, Copy, Debug)]
struct TileRun {
    /// Index of the first tile of the run, in its row of tiles.
    start: u32,
    /// Index after the last tile of the run, in its row of tiles.
    end: u32,
    /// Index in the field `bits` of [`TileCells`] for the first tile of the run; the other tiles of the run follow.
    /// `None` if the tiles are full.
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
    /// The rows of tiles that have entries in `runs`, ascending, as (number of the row, index in `runs` of the first
    /// entry of the row). The entries of a row end where the entries of the next listed row begin.
    rows: Vec<(usize, usize)>,
    runs: Vec<TileRun>,
    bits: Vec<[u64; TileCells::SIDE]>,
}

impl TileCells {
    /// The number of queries of a tile, and also the number of its keys.
    pub const SIDE: usize = 64;

    /// Returns cells that are all denied, for the query positions `queries` and the key positions `0..keys_end`. Use
    /// [`full`](Self::full) and [`mixed`](Self::mixed) to allow cells.
    pub fn new(queries: Range<i64>, keys_end: i64) -> Self {
        let row_count = count(&queries).div_ceil(TileCells::SIDE as u64) as usize;
        TileCells { queries, keys_end, row_count, rows: Vec::new(), runs: Vec::new(), bits: Vec::new() }
    }

    /// Returns the range of query positions.
    pub fn queries(&self) -> Range<i64> {
        self.queries.clone()
    }

    /// Returns the first position after the last key.
    pub fn keys_end(&self) -> i64 {
        self.keys_end
    }

    /// Returns the size of the stored runs and bits in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.len() * size_of::<(usize, usize)>()
            + self.runs.len() * size_of::<TileRun>()
            + self.bits.len() * size_of::<[u64; TileCells::SIDE]>()
    }

    /// Allows every cell of the tiles with the indices `tiles` in the row of tiles number `row`. Tiles must be added in
    /// ascending order: by row of tiles, then by index in the row.
    ///
    /// # Errors
    /// Returns an error if the tiles do not exist or are not after the tiles that were added before.
    pub fn full(&mut self, row: usize, tiles: Range<u32>) -> Result<(), Error> {
        self.push(row, TileRun { start: tiles.start, end: tiles.end, bits: None })
    }

    /// Allows some cells of the tile with index `tile` in the row of tiles number `row`: query `i` of the tile reads
    /// key `j` of the tile if bit `j` of `bits[i]` is 1. Bits of queries and keys outside of the mask must be 0.
    ///
    /// # Errors
    /// Returns the errors of [`full`](Self::full), and an error if a bit of a query or key outside of the mask is 1.
    pub fn mixed(&mut self, row: usize, tile: u32, bits: [u64; TileCells::SIDE]) -> Result<(), Error> {
        let keys = self.keys_end.saturating_sub(i64::from(tile) * SIDE);
        let queries = count(&self.queries).saturating_sub((row as u64).saturating_mul(TileCells::SIDE as u64));
        let beyond_keys = if keys < SIDE { u64::MAX << keys.max(0) } else { 0 };
        let past = bits.iter().zip(0..).any(|(word, i)| if i < queries { word & beyond_keys != 0 } else { *word != 0 });
        if past {
            return Err(Error::fact(
                "tiles",
                format!(
                    "tile {tile} in row of tiles {row} has bits for queries or keys that do not exist: set these bits to 0"
                ),
            ));
        }
        let at = self.bits.len();
        self.push(row, TileRun { start: tile, end: tile.saturating_add(1), bits: Some(at) })?;
        self.bits.push(bits);
        Ok(())
    }

    fn push(&mut self, row: usize, run: TileRun) -> Result<(), Error> {
        let refuse = |problem: String| Err(Error::fact("tiles", problem));
        let (count, tiles) = (self.row_count, self.keys_end.max(0).unsigned_abs().div_ceil(TileCells::SIDE as u64));
        if row >= count || run.start >= run.end || u64::from(run.end) > tiles {
            return refuse(format!(
                "tiles {}..{} in row of tiles {row} do not exist: there are {count} rows of {tiles} tiles, counted from 0",
                run.start, run.end
            ));
        }
        let last = self.rows.last().map(|(row, _)| *row);
        let after = if last == Some(row) { self.runs.last().map_or(0, |last| last.end) } else { 0 };
        if last > Some(row) || run.start < after {
            return refuse(format!(
                "tile {} in row of tiles {row} is not after the tiles that were added before: add tiles by ascending row and index",
                run.start
            ));
        }
        if last != Some(row) {
            self.rows.push((row, self.runs.len()));
        }
        self.runs.push(run);
        Ok(())
    }

    /// Returns the runs of the row of tiles number `row`.
    fn row_runs(&self, row: u64) -> &[TileRun] {
        let at = self.rows.partition_point(|(listed, _)| (*listed as u64) < row);
        match self.rows[at..] {
            [(listed, first), ..] if listed as u64 == row => {
                &self.runs[first..self.rows.get(at + 1).map_or(self.runs.len(), |next| next.1)]
            }
            _ => &[],
        }
    }

    /// Returns the number of queries before position `q`. `q` must be at least the position of the first query.
    fn before(&self, q: i64) -> u64 {
        q.wrapping_sub(self.queries.start) as u64
    }

    /// Returns true if the query at position `q` may read the key at position `k`. Returns false for positions outside
    /// of the ranges of these cells.
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
        let (start, end) = (keys.start.max(0), keys.end.min(self.keys_end));
        if !self.queries.contains(&q) || start >= end {
            return;
        }
        let at = self.before(q);
        let list = self.row_runs(at / TileCells::SIDE as u64);
        let first = list.partition_point(|run| i64::from(run.end) * SIDE <= start);
        for run in list[first..].iter().take_while(|run| i64::from(run.start) * SIDE < end) {
            let Some(bits) = run.bits else {
                emit((i64::from(run.start) * SIDE).max(start), (i64::from(run.end) * SIDE).min(end));
                continue;
            };
            let base = i64::from(run.start) * SIDE;
            let word = self.bits[bits][at as usize % TileCells::SIDE];
            let (from, to) = ((start - base).max(0), (end - base).min(SIDE));
            runs(&[word], from as u32, to as u32, |a, z| emit(base + i64::from(a), base + i64::from(z)));
        }
    }
}

impl ResolvedAtom for ByAddress<TileCells> {
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        self.0.emit(q, keys, emit);
    }

    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        let cells = &*self.0;
        let held =
            queries.start >= cells.queries.start && queries.end <= cells.queries.end && keys.end <= cells.keys_end;
        if !held || queries.start >= queries.end {
            return Reach::Unknown;
        }
        let side = TileCells::SIDE as u64;
        let (first, last) = (cells.before(queries.start) / side, cells.before(queries.end - 1) / side);
        let positions = |run: &TileRun| i64::from(run.start) * SIDE..(i64::from(run.end) * SIDE).min(cells.keys_end);
        let mut some = Vec::new();
        let mut every: Option<Vec<Range<i64>>> = None;
        for row in first..=last {
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

/// Returns the number of positions in a range; 0 if the range ends before it starts.
fn count(positions: &Range<i64>) -> u64 {
    if positions.start < positions.end { positions.end.wrapping_sub(positions.start) as u64 } else { 0 }
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
