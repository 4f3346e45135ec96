//! A plan in the formats of other systems: runs of keys per row, denied rows per key, tiles of any size, and slices
//! (rectangles and trapezoids of cells).
//!
//! The inputs of FlexAttention, cuDNN, FlashMask, FlashInfer, flash-attention, MagiAttention and Splash are built from
//! these formats. Each format contains exactly the allowed cells of the plan.

mod blocks;
mod decode;
mod device;
pub(crate) mod grid;
pub(crate) mod keep;
#[cfg(feature = "serde")]
pub(crate) mod serial;
mod slices;

pub use blocks::Blocks;
pub use decode::DecodePlan;
pub use device::{DevicePlan, DeviceSide};
pub use slices::{Slice, SliceKind};

use crate::atoms::foreign;
use crate::plan::{Plan, SpanKind};
use crate::sets::bits::runs;
use crate::sets::interval::IntervalSet;

/// Lists of runs `[start, end)`. There is one list for each query row (the runs of keys that it reads), or one list for
/// each key (runs of query rows). List `i` is `runs[indptr[i]..indptr[i + 1]]`. Its runs ascend, with a gap between any
/// two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runs {
    /// The index in `runs` of the first run of each list. The last value is the total number of runs.
    pub indptr: Vec<u32>,
    /// The runs of all lists, list after list.
    pub runs: Vec<[u32; 2]>,
}

impl Runs {
    /// Returns the runs of the list with index `i`.
    pub fn list(&self, i: usize) -> &[[u32; 2]] {
        &self.runs[self.indptr[i] as usize..self.indptr[i + 1] as usize]
    }

    /// Returns all lists of runs, in order.
    pub fn lists(&self) -> impl ExactSizeIterator<Item = &[[u32; 2]]> {
        (0..self.indptr.len() - 1).map(|i| self.list(i))
    }

    /// Returns the ranges of list `i` as a set.
    pub(crate) fn set(&self, i: usize) -> IntervalSet {
        let mut set = IntervalSet::new();
        self.list(i).iter().for_each(|[start, end]| set.push(*start, *end));
        set
    }
}

impl Plan {
    /// Returns the runs of keys that each query row of pattern `pattern` may read, one list per query row. A pattern is
    /// the set of cells of a batch row and head ([`BoundMask::pattern_of`](crate::BoundMask::pattern_of)).
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let plan = (sliding(2) | causal() & keys(0..1)).bind(&Shape::square(4), &Facts::new())?.plan();
    /// assert_eq!(plan.row_runs(0).list(3), [[0, 1], [2, 4]]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the plan has no pattern with this index.
    pub fn row_runs(&self, pattern: usize) -> Runs {
        let plan = self.in_place();
        let number = pattern;
        let pattern = &plan.patterns()[number];
        let mut out = Runs { indptr: vec![0], runs: Vec::new() };
        let mut words = Vec::new();
        for tile in pattern.tiles() {
            let from = out.indptr.len() - 1;
            let mut lists: Vec<Vec<[u32; 2]>> = vec![Vec::new(); tile.rows() as usize];
            for span in tile.spans {
                if span.kind == SpanKind::Full {
                    lists.iter_mut().for_each(|list| push(list, span.start, span.end));
                    continue;
                }
                let per_row = (span.keys() as usize).div_ceil(64);
                words.clear();
                words.resize(lists.len() * per_row, 0);
                pattern.fill_bits(tile.start..tile.end, span.start..span.end, &mut words);
                for (list, bits) in lists.iter_mut().zip(words.chunks(per_row)) {
                    runs(bits, 0, span.keys(), |a, z| push(list, span.start + a, span.start + z));
                }
            }
            debug_assert_eq!(from, tile.start as usize, "each tile of a plan begins at the end of the tile before it");
            for list in lists {
                out.runs.extend(list);
                out.indptr.push(out.runs.len() as u32);
            }
        }
        debug_check_rows(&plan, number, &out);
        out
    }

    /// Returns, for each key of pattern `pattern`, the runs of query rows that may *not* read the key. A pattern is the
    /// set of cells of a batch row and head ([`BoundMask::pattern_of`](crate::BoundMask::pattern_of)). Returns `None`
    /// if the list of a key would have more than `most` runs.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let plan = sliding(2).bind(&Shape::square(4), &Facts::new())?.plan();
    /// assert_eq!(plan.masked_rows(0, 2).unwrap().list(1), [[0, 1], [3, 4]]);
    /// assert_eq!(plan.masked_rows(0, 1), None);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the plan has no pattern with this index.
    pub fn masked_rows(&self, pattern: usize, most: usize) -> Option<Runs> {
        let rows = self.row_runs(pattern);
        let (q_len, kv_len) = (self.shape().q_len() as u32, self.shape().kv_len());
        // The rows at which a key becomes masked or unmasked; it is masked from row 0 on unless row 0 reads it.
        let mut borders: Vec<Vec<u32>> = vec![vec![0]; kv_len];
        let mut before: &[[u32; 2]] = &[];
        for (row, now) in rows.lists().enumerate() {
            for [start, end] in changed(before, now) {
                for list in &mut borders[start as usize..end as usize] {
                    if list.last() == Some(&(row as u32)) {
                        list.pop();
                    } else {
                        list.push(row as u32);
                    }
                    if list.len() > 2 * most + 1 {
                        return None;
                    }
                }
            }
            before = now;
        }
        let mut out = Runs { indptr: vec![0], runs: Vec::new() };
        for mut list in borders {
            if list.len() % 2 == 1 {
                list.push(q_len);
            }
            if list.len() / 2 > most {
                return None;
            }
            out.runs.extend(list.chunks(2).map(|pair| [pair[0], pair[1]]));
            out.indptr.push(out.runs.len() as u32);
        }
        Some(out)
    }
}

/// In debug builds, panics if `runs`, the runs of keys per query row, differ from the cells of
/// [`BoundMask::allowed`](crate::BoundMask::allowed). The formats of other systems are computed from these runs.
fn debug_check_rows(plan: &Plan, pattern: usize, runs: &Runs) {
    let bound = plan.bound();
    let shape = bound.shape();
    let small = shape.q_len() as u64 * shape.kv_len() as u64 <= Plan::CHECKED_CELLS;
    if !cfg!(debug_assertions) || !small || foreign(bound.mask()).is_some() {
        return;
    }
    let place = shape.batch_heads().find(|&(b, h)| plan.pattern_of(b, h) == pattern);
    let Some((batch, head)) = place else { return };
    for (row, list) in runs.lists().enumerate() {
        for key in 0..shape.kv_len() {
            let given = list.iter().any(|run| (run[0]..run[1]).contains(&(key as u32)));
            let cell = [batch, head, row, key];
            assert_eq!(
                given,
                bound.allowed(batch, head, row, key),
                "the exported rows of `{}` are wrong at cell {cell:?}",
                bound.mask()
            );
        }
    }
}

/// Appends the run `start..end` to `list`. If the last run ends at `start`, that run is extended instead.
fn push(list: &mut Vec<[u32; 2]>, start: u32, end: u32) {
    match list.last_mut() {
        Some(last) if last[1] == start => last[1] = end,
        _ => list.push([start, end]),
    }
}

/// Returns the keys that are in exactly one of two lists of runs.
fn changed(a: &[[u32; 2]], b: &[[u32; 2]]) -> Vec<[u32; 2]> {
    let mut borders: Vec<u32> = a.iter().chain(b).flatten().copied().collect();
    borders.sort_unstable();
    borders.chunks(2).filter(|pair| pair[0] < pair[1]).map(|pair| [pair[0], pair[1]]).collect()
}
