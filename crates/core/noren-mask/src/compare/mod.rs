//! Comparisons of two masks on one shape: equality, difference, subset, disjointness. Each comparison searches for a
//! cell that decides the result.

pub(crate) mod equivalent;
pub(crate) mod explain;

use crate::Error;
use crate::bind::budget::{Budget, Meter, Stage};
use crate::bind::count::{Listed, count_rows, listed};
use crate::bind::{BoundMask, Resolved};
use crate::mask::pattern::Pattern;
use crate::sets::bits::row_words;
use crate::sets::bounds::Bounds;
use crate::sets::interval::Interval;
use std::collections::HashMap;
use std::ops::Range;

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
#[derive(Clone, Copy)]
enum Ask {
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
        self.first_cell(other, Ask::Differ)
    }

    /// Returns the first cell that `self` allows and `other` denies, in the order of batch row, head, query and key.
    /// Returns `None` if `self` is a subset of `other`.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn first_outside(&self, other: &Self) -> Result<Option<CellIndex>, Error> {
        self.first_cell(other, Ask::OnlyFirst)
    }

    /// Returns the first cell that both masks allow, or `None` if they allow no common cell.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn first_common(&self, other: &Self) -> Result<Option<CellIndex>, Error> {
        self.first_cell(other, Ask::Both)
    }

    /// Returns the first `limit` cells that exactly one of the two masks allows, in the order of batch row, head, query
    /// and key.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn differences(&self, other: &Self, limit: usize) -> Result<Vec<CellIndex>, Error> {
        self.check_comparable(other)?;
        let mut found = Vec::new();
        for (batch, head) in self.batch_heads() {
            let pair = self.pair(other, batch, head, Ask::Differ);
            pair.visit(|q, k| {
                found.push(CellIndex { batch, head, q: q as usize, k: k as usize });
                found.len() < limit
            });
            if found.len() >= limit {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Returns the number of cells that `self` allows and `other` does not.
    ///
    /// # Errors
    /// Returns the errors of [`same_cells`](Self::same_cells).
    pub fn count_outside(&self, other: &Self) -> Result<u128, Error> {
        self.check_comparable(other)?;
        let mut counts: HashMap<(usize, usize), u64> = HashMap::new();
        let mut sum = 0;
        for (batch, head) in self.batch_heads() {
            let key = (self.pattern_of(batch, head), other.pattern_of(batch, head));
            let count = counts.entry(key).or_insert_with(|| self.pair(other, batch, head, Ask::OnlyFirst).count());
            sum += u128::from(*count);
        }
        Ok(sum)
    }

    fn batch_heads(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let heads = self.shape().head_count();
        (0..self.shape().batch_len()).flat_map(move |b| (0..heads).map(move |h| (b, h)))
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

    fn pair<'a>(&'a self, other: &'a Self, batch: usize, head: usize, ask: Ask) -> Pair<'a> {
        Pair {
            first: &self.resolved()[self.pattern_of(batch, head)],
            second: &other.resolved()[other.pattern_of(batch, head)],
            ask,
        }
    }

    fn first_cell(&self, other: &Self, ask: Ask) -> Result<Option<CellIndex>, Error> {
        self.check_comparable(other)?;
        let mut empty = std::collections::HashSet::new();
        for (batch, head) in self.batch_heads() {
            let key = (self.pattern_of(batch, head), other.pattern_of(batch, head));
            if empty.contains(&key) {
                continue;
            }
            let mut cell = None;
            self.pair(other, batch, head, ask).visit(|q, k| {
                cell = Some(CellIndex { batch, head, q: q as usize, k: k as usize });
                false
            });
            if cell.is_some() {
                return Ok(cell);
            }
            empty.insert(key);
        }
        Ok(None)
    }
}

/// The patterns (masks of one batch row and head) of two bound masks, each with the frame that maps indices to
/// positions, and the condition on a cell in the comparison.
struct Pair<'a> {
    first: &'a Resolved,
    second: &'a Resolved,
    ask: Ask,
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

impl Pair<'_> {
    fn bounds(&self, rows: &Range<u32>) -> Bounds {
        let kv_len = self.first.frame.kv_len;
        let a = self.first.pattern.bounds(&self.first.frame, rows.clone());
        let b = self.second.pattern.bounds(&self.second.frame, rows.clone());
        match self.ask {
            Ask::Both => a.and(&b),
            Ask::OnlyFirst => a.and(&b.not(kv_len)),
            Ask::Differ => a.clone().and(&b.clone().not(kv_len)).or(&b.and(&a.not(kv_len))),
        }
    }

    fn fill(&self, rows: &Range<u32>, keys: Interval, words: &mut [u64], other: &mut [u64]) {
        self.first.pattern.fill(&self.first.frame, rows.clone(), keys, words);
        self.second.pattern.fill(&self.second.frame, rows.clone(), keys, other);
        let combine = |a: u64, b: u64| match self.ask {
            Ask::Both => a & b,
            Ask::OnlyFirst => a & !b,
            Ask::Differ => a ^ b,
        };
        words.iter_mut().zip(other.iter()).for_each(|(a, b)| *a = combine(*a, *b));
    }

    /// Returns the tiles (ranges of query rows) that may contain a cell for which the condition of this comparison is
    /// true. Each tile comes with bounds on the keys of these cells: the keys for which the condition may be true in at
    /// least one row, and the keys for which it is true in every row.
    fn tiles(&self) -> impl Iterator<Item = (Range<u32>, Bounds)> + '_ {
        let q_len = self.rows();
        (0..q_len.div_ceil(ROWS)).filter_map(move |tile| {
            let rows = tile * ROWS..(tile * ROWS + ROWS).min(q_len);
            let bounds = self.bounds(&rows);
            (!bounds.upper.is_empty()).then_some((rows, bounds))
        })
    }

    /// Returns the number of query rows that may have a cell for which the condition is true: 0 for two equal masks, because
    /// no cell differs; [`Ask::Both`] is the exception.
    fn rows(&self) -> u32 {
        if self.first == self.second && !matches!(self.ask, Ask::Both) { 0 } else { self.first.frame.q_len }
    }

    /// Calls `found(q, k)` for each cell for which the condition of this comparison is true, ordered by query row, then
    /// by key. Stops when `found` returns false.
    fn visit(&self, mut found: impl FnMut(u32, u32) -> bool) {
        let mut words = vec![0; (KEYS / 64) as usize];
        let mut other = words.clone();
        let counted = self.counted();
        let (mut next, mut without, q_len) = (0, 0, self.rows());
        while next < q_len {
            if let Some(counted) = counted.as_ref().filter(|_| without == PATIENCE) {
                next = skip_rows(counted, next);
                without = 0;
                if next == q_len {
                    return;
                }
            }
            let rows = next..next.saturating_add(ROWS).min(q_len);
            (next, without) = (rows.end, PATIENCE.min(without + 1));
            let bounds = self.bounds(&rows);
            for row in rows {
                for keys in bounds.upper.iter() {
                    for start in (keys.start..keys.end).step_by(KEYS as usize) {
                        let piece = Interval::new(start, keys.end.min(start + KEYS));
                        let n = row_words(piece.len());
                        self.fill(&(row..row + 1), piece, &mut words[..n], &mut other[..n]);
                        for (i, &word) in words[..n].iter().enumerate() {
                            let mut rest = word;
                            without = if rest == 0 { without } else { 0 };
                            while rest != 0 {
                                if !found(row, start + i as u32 * 64 + rest.trailing_zeros()) {
                                    return;
                                }
                                rest &= rest - 1;
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns the cells for which the condition is true as one pattern whose cells can be counted by arithmetic; `None` if
    /// an atom gives single cells, or if the masks have different frames.
    fn counted(&self) -> Option<Resolved> {
        let not = |pattern: &Resolved| Pattern::Not(Box::new(pattern.pattern.clone()));
        let only = |a: &Resolved, b: &Resolved| Pattern::And(vec![a.pattern.clone(), not(b)]);
        let pattern = match self.ask {
            Ask::Both => Pattern::And(vec![self.first.pattern.clone(), self.second.pattern.clone()]),
            Ask::OnlyFirst => only(self.first, self.second),
            Ask::Differ => Pattern::Or(vec![only(self.first, self.second), only(self.second, self.first)]),
        };
        let same = self.first.frame == self.second.frame;
        (same && listed(&pattern) == Listed::No).then(|| Resolved { frame: self.first.frame.clone(), pattern })
    }

    fn count(&self) -> u64 {
        if let Some(count) = self.counted().and_then(|counted| cells_in(&counted, 0..self.rows())) {
            return count;
        }
        let mut words = vec![0; (ROWS * KEYS / 64) as usize];
        let mut other = words.clone();
        let mut count = 0;
        for (rows, bounds) in self.tiles() {
            count += bounds.lower.count() * rows.len() as u64;
            for keys in bounds.upper.minus(&bounds.lower).iter() {
                for start in (keys.start..keys.end).step_by(KEYS as usize) {
                    let piece = Interval::new(start, keys.end.min(start + KEYS));
                    let n = rows.len() * row_words(piece.len());
                    self.fill(&rows, piece, &mut words[..n], &mut other[..n]);
                    count += words[..n].iter().map(|w| u64::from(w.count_ones())).sum::<u64>();
                }
            }
        }
        count
    }
}
