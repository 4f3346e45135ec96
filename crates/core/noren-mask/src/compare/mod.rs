//! Comparisons of two masks on one shape: equality, difference, subset, disjointness. Each comparison searches for a
//! cell that decides the result.

pub(crate) mod equivalent;
pub(crate) mod explain;

use crate::Error;
use crate::bind::budget::{Budget, Meter, Stage};
use crate::bind::count::{Listed, count_rows, listed};
use crate::bind::{BoundMask, Resolved};
use crate::mask::pattern::{Pattern, Selection};
use crate::sets::bits::{count, ones, row_words};
use crate::sets::interval::{Interval, IntervalSet};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The indices of one cell of a mask.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CellIndex {
    /// Index of the batch row.
    pub batch: usize,
    /// Index of the query head.
    pub head: usize,
    /// Index of the query row.
    pub q: usize,
    /// Index of the key.
    pub k: usize,
}

impl std::fmt::Display for CellIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}, {}, {}, {}]", self.batch, self.head, self.q, self.k)
    }
}

/// The condition on a cell in a comparison of two masks.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ask {
    /// Exactly one of the two masks allows the cell.
    Differ,
    /// The first mask allows the cell and the second does not.
    OnlyFirst,
    /// The first and the second mask of the comparison allow the cell.
    Both,
}

impl BoundMask {
    /// Returns whether both masks allow the same cells.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let (shape, facts) = (Shape::square(1 << 20), Facts::new());
    /// let a = (causal() & window(4095, None)).bind(&shape, &facts)?;
    /// let b = sliding(4096).bind(&shape, &facts)?;
    /// assert!(a.same_cells(&b)?);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if the batch sizes, heads or lengths differ.
    pub fn same_cells(&self, other: &Self) -> Result<bool, Error> {
        Ok(self.first_difference(other)?.is_none())
    }

    /// Returns the first cell that exactly one of the two masks allows, in the order of batch row, head, query and key.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn first_difference(&self, other: &Self) -> Result<Option<CellIndex>, Error> {
        Ok(self.cells(other, Ask::Differ, 1)?.pop())
    }

    /// Returns the first cell that both masks allow, or `None` if they allow no common cell.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn first_common(&self, other: &Self) -> Result<Option<CellIndex>, Error> {
        Ok(self.cells(other, Ask::Both, 1)?.pop())
    }

    /// Returns the first `limit` cells that exactly one of the two masks allows, in the order of batch row, head, query
    /// and key.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn differences(&self, other: &Self, limit: usize) -> Result<Vec<CellIndex>, Error> {
        self.cells(other, Ask::Differ, limit)
    }

    /// Returns the number of cells that `self` allows and `other` does not.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn count_outside(&self, other: &Self) -> Result<u128, Error> {
        self.check_comparable(other)?;
        let mut counts: HashMap<(usize, usize), u64> = HashMap::new();
        let mut sum = 0;
        for (batch, head) in self.shape().batch_heads() {
            let key = (self.pattern_of(batch, head), other.pattern_of(batch, head));
            let count = counts.entry(key).or_insert_with(|| count_all(&self.combined(other, key, Ask::OnlyFirst)));
            sum += u128::from(*count);
        }
        Ok(sum)
    }

    /// Checks that both masks have the same batch size, heads and lengths.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] with the sizes of both masks if the sizes differ.
    pub fn check_comparable(&self, other: &Self) -> Result<(), Error> {
        let sizes = |m: &Self| [m.shape().batch_len(), m.shape().head_count(), m.shape().q_len(), m.shape().kv_len()];
        if sizes(self) == sizes(other) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "cannot compare: the shapes of the two masks, [batch, heads, q_len, kv_len], are {:?} and {:?}: bind both masks to the \
             same shape",
            sizes(self),
            sizes(other)
        )))
    }

    /// Returns the cells of a pattern of `self` and a pattern of `other` for which the condition `ask` is true.
    pub(crate) fn combined(&self, other: &Self, patterns: (usize, usize), ask: Ask) -> Resolved {
        let (first, second) = (&self.resolved()[patterns.0], &other.resolved()[patterns.1]);
        let frame = first.frame.clone();
        if first == second && ask != Ask::Both {
            return Resolved { frame, pattern: Pattern::none() };
        }
        let a = first.pattern.clone();
        let b = match frame == second.frame {
            true => second.pattern.clone(),
            // indices have other positions in the second mask
            false => Selection::pattern(&Arc::new(Selection::all(&second.frame)), &second.pattern),
        };
        let pattern = match ask {
            Ask::Both => Pattern::And(vec![a, b]),
            Ask::OnlyFirst => a.minus(&b),
            Ask::Differ => Pattern::Or(vec![a.clone().minus(&b), b.minus(&a)]),
        };
        Resolved { frame, pattern }
    }

    /// Returns the first `limit` cells for which the condition `ask` is true, in the order of batch row, head, query and
    /// key.
    fn cells(&self, other: &Self, ask: Ask, limit: usize) -> Result<Vec<CellIndex>, Error> {
        self.check_comparable(other)?;
        let mut found = Vec::new();
        let mut empty = HashSet::new();
        for (batch, head) in self.shape().batch_heads() {
            let key = (self.pattern_of(batch, head), other.pattern_of(batch, head));
            if found.len() >= limit {
                break;
            }
            if empty.contains(&key) {
                continue;
            }
            let before = found.len();
            visit(&self.combined(other, key, ask), |q, k| {
                found.push(CellIndex { batch, head, q: q as usize, k: k as usize });
                found.len() < limit
            });
            if found.len() == before {
                empty.insert(key);
            }
        }
        Ok(found)
    }
}

/// The number of query rows of a tile in a comparison.
const ROWS: u32 = 64;
/// The maximum number of keys that a comparison reads at once.
const KEYS: u32 = 4096;
/// The number of tiles without a result after which a search counts cells to find the next tile with one.
const PATIENCE: u32 = 64;

/// Returns the number of cells in `rows`; `None` if counting them takes too many steps.
fn cells_in(counted: &Resolved, rows: Range<u32>) -> Option<u64> {
    let meter = &mut Meter::new(&Budget::new(), Stage::Counting, u64::from(rows.end - rows.start));
    count_rows(counted, rows, meter).ok().map(|cells| cells.allowed)
}

/// Returns a row from `start` on, before which no row from `start` on has a cell: by steps of growing size, then by halves.
fn skip_rows(counted: &Resolved, mut start: u32) -> u32 {
    let (mut step, q_len) = (ROWS, counted.frame.q_len);
    while start < q_len && step > 0 {
        let end = start.saturating_add(step).min(q_len);
        match cells_in(counted, start..end) {
            Some(0) => (start, step) = (end, step.saturating_mul(2)),
            Some(_) if step <= ROWS => break,
            Some(_) => step /= 4,
            None => break,
        }
    }
    start
}

/// Returns the keys in `set`, in pieces of at most [`KEYS`] keys.
fn pieces(set: &IntervalSet) -> impl Iterator<Item = Interval> + '_ {
    set.iter().flat_map(|keys| {
        let starts = (keys.start..keys.end).step_by(KEYS as usize);
        starts.map(move |start| Interval::new(start, keys.end.min(start + KEYS)))
    })
}

/// Returns whether cells of the pattern can be counted by arithmetic: no atom gives single cells.
fn is_countable(cells: &Resolved) -> bool {
    listed(&cells.pattern) == Listed::No
}

/// Calls `found(q, k)` for each cell, ordered by query row, then by key. Stops when `found` returns false.
fn visit(cells: &Resolved, mut found: impl FnMut(u32, u32) -> bool) {
    let Resolved { frame, pattern } = cells;
    let mut words = vec![0; (KEYS / 64) as usize];
    let countable = is_countable(cells);
    let (mut next, mut without) = (0, 0);
    while next < frame.q_len {
        if countable && without == PATIENCE {
            (next, without) = (skip_rows(cells, next), 0);
            continue;
        }
        let rows = next..next.saturating_add(ROWS).min(frame.q_len);
        (next, without) = (rows.end, PATIENCE.min(without + 1));
        let bounds = pattern.bounds(frame, rows.clone());
        for row in rows {
            for keys in pieces(&bounds.upper) {
                let words = &mut words[..row_words(keys.len())];
                pattern.fill(frame, row..row + 1, keys, words);
                for k in ones(words) {
                    without = 0;
                    if !found(row, keys.start + k as u32) {
                        return;
                    }
                }
            }
        }
    }
}

/// Returns the number of cells.
fn count_all(cells: &Resolved) -> u64 {
    let Resolved { frame, pattern } = cells;
    let counted = if is_countable(cells) { cells_in(cells, 0..frame.q_len) } else { None };
    if let Some(counted) = counted {
        return counted;
    }
    let mut words = vec![0; (ROWS * KEYS / 64) as usize];
    let mut all = 0;
    for start in (0..frame.q_len).step_by(ROWS as usize) {
        let rows = start..start.saturating_add(ROWS).min(frame.q_len);
        let bounds = pattern.bounds(frame, rows.clone());
        all += bounds.lower.count() * rows.len() as u64;
        for keys in pieces(&bounds.upper.minus(&bounds.lower)) {
            let words = &mut words[..rows.len() * row_words(keys.len())];
            pattern.fill(frame, rows.clone(), keys, words);
            all += count(words);
        }
    }
    all
}
