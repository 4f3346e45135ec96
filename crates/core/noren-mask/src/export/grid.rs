//! Exact down-sampling of a mask: a small matrix. An entry (empty, full or mixed) stands for a rectangle of cells.

use crate::Error;
use crate::bind::{BoundMask, Resolved};
use crate::compare::Ask;
use crate::plan::{PatternPlan, SpanKind};
use crate::sets::bits::{count, row_words};
use crate::sets::interval::{Interval, IntervalSet};
use std::ops::Range;

/// The state of the cells in a rectangle of query rows and keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cover {
    /// No cell is allowed.
    Empty,
    /// At least one cell is allowed and at least one cell is denied.
    Mixed,
    /// Every cell is allowed.
    Full,
}

/// Options of [`BoundMask::grid`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridOptions {
    /// The maximum number of rows of the grid. A row of the grid covers one or more consecutive query rows.
    pub max_rows: usize,
    /// The maximum number of columns of the grid. A column of the grid covers one or more consecutive keys.
    pub max_cols: usize,
    /// The query rows of the grid, or `None` for all query rows.
    pub queries: Option<Range<usize>>,
    /// The keys of the grid, or `None` for all keys.
    pub keys: Option<Range<usize>>,
}

impl Default for GridOptions {
    /// Returns the options for the whole mask in at most 64 x 64 rectangles.
    fn default() -> Self {
        GridOptions { max_rows: 64, max_cols: 64, queries: None, keys: None }
    }
}

/// A mask that is divided into rectangles, each with its exact [`Cover`]. [`BoundMask::grid`] returns a `Grid`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grid {
    /// The first query row of each grid row. The last element is the end of the last grid row.
    rows: Vec<u32>,
    /// The first key of each grid column. The last element is the end of the last grid column.
    cols: Vec<u32>,
    /// The [`Cover`] of each rectangle of the grid, in row-major order.
    covers: Vec<Cover>,
}

impl Grid {
    /// Returns the number of rows of the grid.
    pub fn row_count(&self) -> usize {
        self.rows.len() - 1
    }

    /// Returns the number of grid columns.
    pub fn col_count(&self) -> usize {
        self.cols.len() - 1
    }

    /// Returns the cover of the rectangle in row `row` and column `col` of the grid.
    ///
    /// # Panics
    /// Panics if `row` or `col` is outside the grid.
    pub fn cover(&self, row: usize, col: usize) -> Cover {
        assert!(col < self.col_count(), "column {col} of {}", self.col_count());
        self.covers[row * self.col_count() + col]
    }

    /// Returns the query rows of grid row `row`.
    pub fn queries(&self, row: usize) -> Range<usize> {
        self.rows[row] as usize..self.rows[row + 1] as usize
    }

    /// Returns the keys of grid column `col`.
    pub fn keys(&self, col: usize) -> Range<usize> {
        self.cols[col] as usize..self.cols[col + 1] as usize
    }

    /// Returns the [`Cover`] of each rectangle of the grid, in row-major order.
    pub fn covers(&self) -> &[Cover] {
        &self.covers
    }

    /// Returns, for each rectangle in row-major order, the most expensive kind of the spans (ranges of keys) of `plan`
    /// in the rectangle: mixed is more expensive than full. Returns `None` for a rectangle without a span. The plan
    /// must not be reordered ([`Reorder::Never`](crate::Reorder::Never)).
    pub fn kinds(&self, plan: &PatternPlan) -> Vec<Option<SpanKind>> {
        let mut kinds = Vec::with_capacity(self.covers.len());
        let mut first = 0;
        for row in 0..self.row_count() {
            let queries = self.queries(row);
            while (plan.tile(first).end as usize) <= queries.start {
                first += 1;
            }
            let tiles =
                || (first..plan.tile_count()).map(|i| plan.tile(i)).take_while(|t| (t.start as usize) < queries.end);
            let of = |kind: SpanKind| -> IntervalSet {
                tiles().fold(IntervalSet::new(), |all, tile| {
                    let spans = tile.spans.iter().filter(|s| s.kind == kind).map(|s| s.start..s.end);
                    all.union(&spans.collect())
                })
            };
            let (mixed, full) = (of(SpanKind::Mixed), of(SpanKind::Full));
            kinds.extend((0..self.col_count()).map(|col| {
                let (start, end) = (self.cols[col], self.cols[col + 1]);
                match () {
                    () if mixed.meets(start, end) => Some(SpanKind::Mixed),
                    () if full.meets(start, end) => Some(SpanKind::Full),
                    () => None,
                }
            }));
        }
        kinds
    }

    /// Returns true if at least one rectangle has more than one cell.
    pub fn is_sampled(&self) -> bool {
        [&self.rows, &self.cols].into_iter().any(|b| b.windows(2).any(|w| w[1] - w[0] > 1))
    }
}

impl BoundMask {
    /// Returns the mask of one batch row and query head as at most `max_rows` x `max_cols` rectangles of nearly equal
    /// size. Each cell is in exactly one rectangle.
    ///
    /// Covers are exact: a rectangle with allowed and denied cells is [`Cover::Mixed`], even if only one of its cells
    /// is allowed or denied. For most rectangles, the bounds of the mask give the cover, so a million tokens take
    /// milliseconds. Only functions without bounds and random masks are evaluated cell by cell, until an allowed and a
    /// denied cell are found.
    ///
    /// ```
    /// use noren_mask::{Cover, Facts, GridOptions, Shape, atoms::*};
    /// let bound = causal().bind(&Shape::square(1 << 20), &Facts::new())?;
    /// let grid = bound.grid(0, 0, &GridOptions { max_rows: 3, max_cols: 3, ..GridOptions::default() })?;
    /// use Cover::*;
    /// assert_eq!(grid.covers(), [Mixed, Empty, Empty, Full, Mixed, Empty, Full, Full, Mixed]);
    /// assert_eq!(grid.queries(1), 349525..699050);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the batch row, the head or a range is outside the shape, if a range is empty, or if the
    /// maximum number of rows or columns is 0.
    pub fn grid(&self, batch: usize, head: usize, options: &GridOptions) -> Result<Grid, Error> {
        self.check_pair(batch, head)?;
        let (rows, cols) = options.borders(self)?;
        self.grid_between(batch, head, rows, cols)
    }

    /// Returns the grid of one batch row and query head, with rectangles of any size. `queries` and `keys` are the
    /// borders between the rectangles in ascending order, including the start and the end.
    ///
    /// ```
    /// use noren_mask::{Cover, Facts, Shape, atoms::*};
    /// let bound = causal().bind(&Shape::square(100), &Facts::new())?;
    /// let grid = bound.grid_between(0, 0, vec![0, 64, 100], vec![0, 64, 100])?;
    /// assert_eq!(grid.covers(), [Cover::Mixed, Cover::Empty, Cover::Full, Cover::Mixed]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the batch row or head is outside the shape, if there are fewer than two borders, or if
    /// borders do not ascend or are outside the shape.
    pub fn grid_between(&self, batch: usize, head: usize, queries: Vec<u32>, keys: Vec<u32>) -> Result<Grid, Error> {
        self.check_pair(batch, head)?;
        draw(&self.resolved()[self.pattern_of(batch, head)], queries, keys)
    }

    /// Returns the grid of the cells that this mask allows and `other` denies.
    ///
    /// # Errors
    /// Returns the errors of [`grid`](Self::grid), and [`Error::Invalid`] if the shapes have different sizes.
    pub fn grid_minus(
        &self,
        other: &BoundMask,
        batch: usize,
        head: usize,
        options: &GridOptions,
    ) -> Result<Grid, Error> {
        self.check_pair(batch, head)?;
        self.check_comparable(other)?;
        let (rows, cols) = options.borders(self)?;
        self.grid_minus_between(other, batch, head, rows, cols)
    }

    /// Returns the grid of [`grid_minus`](Self::grid_minus) with the rectangles of
    /// [`grid_between`](Self::grid_between).
    ///
    /// # Errors
    /// Returns the errors of `grid_minus` and `grid_between`.
    pub fn grid_minus_between(
        &self,
        other: &BoundMask,
        batch: usize,
        head: usize,
        queries: Vec<u32>,
        keys: Vec<u32>,
    ) -> Result<Grid, Error> {
        self.check_pair(batch, head)?;
        self.check_comparable(other)?;
        let patterns = (self.pattern_of(batch, head), other.pattern_of(batch, head));
        draw(&self.combined(other, patterns, Ask::OnlyFirst), queries, keys)
    }

    /// Checks that a batch row and a query head are in the shape.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] with the number that is outside the shape.
    pub fn check_pair(&self, batch: usize, head: usize) -> Result<(), Error> {
        let shape = self.shape();
        for (what, at, count) in [("batch row", batch, shape.batch_len()), ("head", head, shape.head_count())] {
            if at >= count {
                return Err(Error::invalid(format!(
                    "picture: {what} {at} does not exist: give a number from 0 to {}",
                    count - 1
                )));
            }
        }
        Ok(())
    }
}

/// Returns `range`, or `0..len` if `range` is `None`. `what` names the range in the error.
///
/// # Errors
/// Returns [`Error::Invalid`] if the range is empty or not within `0..len`.
pub fn checked_range(what: &str, range: &Option<Range<usize>>, len: usize) -> Result<Range<u32>, Error> {
    let range = range.clone().unwrap_or(0..len);
    if range.start >= range.end || range.end > len {
        let Range { start, end } = range;
        return Err(Error::invalid(match start >= end {
            true => format!("picture: the range {start}..{end} of {what} is empty: give a range within 0..{len}"),
            false => format!(
                "picture: the range {start}..{end} of {what} extends beyond the end: give a range within 0..{len}"
            ),
        }));
    }
    Ok(range.start as u32..range.end as u32)
}

/// Cuts `range` into at most `count` parts of nearly equal length. Returns all borders, with both ends of `range`.
fn borders(range: &Range<u32>, count: usize) -> Vec<u32> {
    let len = range.len() as u64;
    let count = len.min(count as u64);
    (0..=count).map(|i| range.start + (i * len / count) as u32).collect()
}

impl GridOptions {
    /// Returns the borders of the rectangles of the grid, with both ends: (of query rows, of keys).
    fn borders(&self, bound: &BoundMask) -> Result<(Vec<u32>, Vec<u32>), Error> {
        if self.max_rows == 0 || self.max_cols == 0 {
            return Err(Error::invalid(format!(
                "picture: a grid of {} x {} has no cells: give at least one row and one column",
                self.max_rows, self.max_cols
            )));
        }
        let queries = checked_range("query rows", &self.queries, bound.shape().q_len())?;
        let keys = checked_range("keys", &self.keys, bound.shape().kv_len())?;
        Ok((borders(&queries, self.max_rows), borders(&keys, self.max_cols)))
    }
}

/// Returns an error if there are fewer than two borders, if they do not ascend, or if one is outside `0..=len`.
fn check_borders(what: &str, borders: &[u32], len: u32) -> Result<(), Error> {
    let last = borders.last().copied().unwrap_or_default();
    if borders.len() < 2 || borders.windows(2).any(|w| w[0] >= w[1]) || last > len {
        return Err(Error::invalid(format!(
            "picture: {} borders of {what} are given, and the last border is {last}: give two or more ascending borders within 0..={len}",
            borders.len()
        )));
    }
    Ok(())
}

fn draw(cells: &Resolved, rows: Vec<u32>, cols: Vec<u32>) -> Result<Grid, Error> {
    check_borders("query rows", &rows, cells.frame.q_len)?;
    check_borders("keys", &cols, cells.frame.kv_len)?;
    let mut covers = Vec::with_capacity((rows.len() - 1) * (cols.len() - 1));
    let mut words = Vec::new();
    let all_rows = rows[0]..rows[rows.len() - 1];
    let all_keys = Interval::new(cols[0], cols[cols.len() - 1]);
    if all_rows.len() as u64 * u64::from(all_keys.len()) <= FEW_CELLS {
        // bounds of few rows may be as long as the whole row, also if only a part of it is requested
        let per_row = row_words(all_keys.len());
        words.resize(all_rows.len() * per_row, 0);
        cells.pattern.fill(&cells.frame, all_rows, all_keys, &mut words);
        let mut strips = words.chunks(per_row);
        for strip in rows.windows(2) {
            let mut seen = vec![Seen::default(); cols.len() - 1];
            for row in strips.by_ref().take((strip[1] - strip[0]) as usize) {
                for (seen, col) in seen.iter_mut().zip(cols.windows(2)) {
                    let (start, end) = (col[0] - all_keys.start, col[1] - all_keys.start);
                    let allowed = ones_between(row, start, end);
                    seen.allowed |= allowed > 0;
                    seen.denied |= allowed < end - start;
                }
            }
            covers.extend(seen.iter().map(|s| s.cover()));
        }
        return Ok(Grid { rows, cols, covers });
    }
    for strip in rows.windows(2) {
        let mut seen = vec![Seen::default(); cols.len() - 1];
        let all: Vec<usize> = (0..seen.len()).collect();
        let mut look = Look { cells, cols: &cols, seen: &mut seen, words: &mut words };
        look.rows(strip[0]..strip[1], &all);
        covers.extend(seen.iter().map(|s| s.cover()));
    }
    Ok(Grid { rows, cols, covers })
}

/// Whether an allowed cell and whether a denied cell was found so far in one rectangle.
#[derive(Clone, Copy, Default)]
struct Seen {
    allowed: bool,
    denied: bool,
}

impl Seen {
    fn both(self) -> bool {
        self.allowed && self.denied
    }

    fn cover(self) -> Cover {
        match (self.allowed, self.denied) {
            (true, true) => Cover::Mixed,
            (true, false) => Cover::Full,
            _ => Cover::Empty,
        }
    }
}

/// The maximum number of cells of a small grid. Small grids are computed from all cells, without bounds.
const FEW_CELLS: u64 = if cfg!(test) { 1 << 9 } else { 1 << 18 };

/// Returns the number of bits of `words` in `start..end` that are 1. The range must not be empty.
fn ones_between(words: &[u64], start: u32, end: u32) -> u32 {
    let (first, last) = ((start / 64) as usize, ((end - 1) / 64) as usize);
    let mask = |word: usize| {
        let below = if word == last { u64::MAX >> (63 - (end - 1) % 64) } else { u64::MAX };
        let above = if word == first { u64::MAX << (start % 64) } else { u64::MAX };
        below & above
    };
    (first..=last).map(|word| (words[word] & mask(word)).count_ones()).sum()
}

/// The maximum number of query rows that are evaluated cell by cell. More query rows are split into halves first.
const EXACT_ROWS: usize = 16;
/// The number of keys that are evaluated first, cell by cell. Usually an allowed and a denied cell are among them. Each
/// later evaluation has twice as many keys, up to `MOST_KEYS`.
const FIRST_KEYS: u32 = 64;
/// The maximum number of keys that are evaluated at once, cell by cell.
const MOST_KEYS: u32 = 4096;

/// The state of the computation of one grid row. For each rectangle, `seen` records whether an allowed and whether a
/// denied cell was found so far.
struct Look<'a> {
    cells: &'a Resolved,
    cols: &'a [u32],
    seen: &'a mut [Seen],
    words: &'a mut Vec<u64>,
}

impl Look<'_> {
    /// Searches the query rows `rows` for allowed and denied cells in the grid columns `open`, and records them in
    /// `seen`. If bounds on the keys do not decide all cells, the rows are split into halves, because bounds for fewer
    /// rows are more exact. Few rows are evaluated cell by cell.
    fn rows(&mut self, rows: Range<u32>, open: &[usize]) {
        let bounds = self.cells.pattern.bounds(&self.cells.frame, rows.clone());
        let mut rest = Vec::new();
        for &col in open {
            let (start, end) = (self.cols[col], self.cols[col + 1]);
            let seen = &mut self.seen[col];
            seen.allowed |= bounds.lower.meets(start, end);
            seen.denied |= !bounds.upper.contains_range(start, end);
            let settled = !bounds.upper.meets(start, end) || bounds.lower.contains_range(start, end);
            if !settled && !seen.both() {
                rest.push(col);
            }
        }
        if rest.is_empty() {
            return;
        }
        if rows.len() <= EXACT_ROWS {
            let open = bounds.upper.minus(&bounds.lower);
            rest.into_iter().for_each(|col| self.bits(rows.clone(), col, &open));
            return;
        }
        let middle = rows.start + (rows.end - rows.start) / 2;
        self.rows(rows.start..middle, &rest);
        rest.retain(|&col| !self.seen[col].both());
        if !rest.is_empty() {
            self.rows(middle..rows.end, &rest);
        }
    }

    /// Evaluates the cells of the query rows `rows` in grid column `col`, until an allowed and a denied cell are found.
    /// Only the keys in `undecided` are evaluated: bounds decide all other keys.
    fn bits(&mut self, rows: Range<u32>, col: usize, undecided: &IntervalSet) {
        let mut step = FIRST_KEYS;
        for part in undecided.within(self.cols[col], self.cols[col + 1]) {
            // one row of random cells usually has both kinds, at a small part of the cost
            self.exact(rows.start..rows.start + 1, Interval::new(part.start, part.end.min(part.start + step)), col);
            let mut start = part.start;
            while start < part.end {
                if self.seen[col].both() {
                    return;
                }
                let keys = Interval::new(start, part.end.min(start.saturating_add(step)));
                self.exact(rows.clone(), keys, col);
                start = keys.end;
                step = (step * 2).min(MOST_KEYS);
            }
        }
    }

    fn exact(&mut self, rows: Range<u32>, keys: Interval, col: usize) {
        self.words.clear();
        self.words.resize(rows.len() * row_words(keys.len()), 0);
        self.cells.pattern.fill(&self.cells.frame, rows.clone(), keys, self.words);
        let allowed = count(self.words);
        self.seen[col].allowed |= allowed > 0;
        self.seen[col].denied |= allowed < rows.len() as u64 * u64::from(keys.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atoms::*;
    use crate::{Facts, Mask, Shape};
    use proptest::prelude::*;
    use std::time::Instant;

    fn brute(rows: Range<usize>, keys: Range<usize>, allowed: impl Fn(usize, usize) -> bool) -> Cover {
        let mut seen = Seen::default();
        for q in rows {
            for k in keys.clone() {
                if allowed(q, k) { seen.allowed = true } else { seen.denied = true }
            }
        }
        seen.cover()
    }

    fn atom() -> impl Strategy<Value = Mask> {
        prop_oneof![
            Just(causal()),
            Just(full()),
            (1..40usize).prop_map(sliding),
            (1..40usize).prop_map(chunk),
            (1..7usize).prop_map(stride),
            (0..50usize, 0..50usize).prop_map(|(a, n)| keys(a..a + n)),
            (0..50usize, 0..50usize).prop_map(|(a, n)| queries(a..a + n)),
            Just(documents()),
            Just(padding()),
            Just(Mask::from_fn(|cell| (cell.query * 7 + cell.key * 3) % 11 < 8)),
            (0.0..1.0f64, 0..9u64).prop_map(|(p, seed)| random(p, seed)),
            (-20..20i64, -20..20i64).prop_map(|(l, r)| window(l, r)),
        ]
    }

    fn expression() -> impl Strategy<Value = Mask> {
        atom().prop_recursive(3, 12, 2, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| a & b),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| a | b),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| a - b),
                inner.prop_map(|a| !a),
            ]
        })
    }

    fn bind(mask: &Mask, past: usize, new: usize) -> BoundMask {
        let all = past + new;
        let facts = Facts::new().lengths([all * 2 / 3]).documents(vec![all / 3, all - all / 3]);
        mask.bind(&Shape::cached(past, new), &facts).expect("a valid mask")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn covers_are_what_the_cells_say(
            (a, b) in (expression(), expression()),
            (past, new) in (0..40usize, 1..90usize),
            (max_rows, max_cols) in (1..20usize, 1..20usize),
            (q0, k0) in (0.0..1.0f64, 0.0..1.0f64),
        ) {
            let (first, second) = (bind(&a, past, new), bind(&b, past, new));
            let (q0, k0) = ((new as f64 * q0) as usize, ((past + new) as f64 * k0) as usize);
            let options = GridOptions { max_rows, max_cols, queries: Some(q0..new), keys: Some(k0..past + new) };
            let grid = first.grid(0, 0, &options).unwrap();
            let minus = first.grid_minus(&second, 0, 0, &options).unwrap();
            prop_assert_eq!(grid.row_count(), max_rows.min(new - q0));
            prop_assert_eq!((grid.queries(0).start, grid.keys(0).start), (q0, k0));
            prop_assert_eq!(grid.queries(grid.row_count() - 1).end, new);
            for row in 0..grid.row_count() {
                for col in 0..grid.col_count() {
                    let (rows, keys) = (grid.queries(row), grid.keys(col));
                    let one = |q, k| first.allowed(0, 0, q, k);
                    let two = |q, k| first.allowed(0, 0, q, k) && !second.allowed(0, 0, q, k);
                    prop_assert_eq!(grid.cover(row, col), brute(rows.clone(), keys.clone(), one));
                    prop_assert_eq!(minus.cover(row, col), brute(rows, keys, two));
                }
            }
        }
    }

    #[test]
    fn a_single_cell_shows() {
        let n = 1 << 20;
        let mask = full() - (queries(777_777..777_778) & keys(123_456..123_457));
        let bound = mask.bind(&Shape::square(n), &Facts::new()).unwrap();
        let grid = bound.grid(0, 0, &GridOptions { max_rows: 100, max_cols: 100, ..Default::default() }).unwrap();
        let mixed: Vec<_> = (0..10_000).filter(|&i| grid.covers()[i] == Cover::Mixed).collect();
        assert_eq!(mixed.len(), 1);
        assert!(grid.queries(mixed[0] / 100).contains(&777_777) && grid.keys(mixed[0] % 100).contains(&123_456));
        assert_eq!(grid.covers().iter().filter(|c| **c == Cover::Full).count(), 9_999);
    }

    #[test]
    fn a_million_tokens_are_quick() {
        let n = 1usize << 20;
        let uneven: Vec<usize> = (0..1000).map(|i| 500 + i).collect();
        let last = n - uneven[..999].iter().sum::<usize>();
        let uneven: Vec<usize> = uneven[..999].iter().copied().chain([last]).collect();
        let facts = Facts::new().documents(uneven);
        let masks = [
            causal(),
            sliding(4096) | (causal() & keys(0..4)),
            causal() & documents(),
            neighborhood([1024, 1024], [13, 13]),
            stride(128) | sliding(128),
            random(0.5, 7),
        ];
        for mask in masks {
            let bound = mask.bind(&Shape::square(n), &facts).unwrap();
            let start = Instant::now();
            let grid = bound.grid(0, 0, &GridOptions { max_rows: 100, max_cols: 100, ..Default::default() }).unwrap();
            let count = |c| grid.covers().iter().filter(|x| **x == c).count();
            println!("{:?} {mask}: {} mixed, {} full", start.elapsed(), count(Cover::Mixed), count(Cover::Full));
            assert!(start.elapsed().as_secs() < 20, "{mask}");
        }
    }

    #[test]
    fn wrong_questions_are_refused() {
        let bound = causal().bind(&Shape::square(8).heads(4), &Facts::new()).unwrap();
        let ask = |batch, head, options: &GridOptions| bound.grid(batch, head, options).unwrap_err().to_string();
        let all = GridOptions::default();
        assert_eq!(ask(0, 4, &all), "picture: head 4 does not exist: give a number from 0 to 3");
        assert_eq!(ask(1, 0, &all), "picture: batch row 1 does not exist: give a number from 0 to 0");
        let zoom = GridOptions { queries: Some(4..9), ..all.clone() };
        assert_eq!(
            ask(0, 0, &zoom),
            "picture: the range 4..9 of query rows extends beyond the end: give a range within 0..8"
        );
        let zoom = GridOptions { keys: Some(3..3), ..all.clone() };
        assert_eq!(ask(0, 0, &zoom), "picture: the range 3..3 of keys is empty: give a range within 0..8");
        assert!(ask(0, 0, &GridOptions { max_rows: 0, ..all.clone() }).contains("give at least one row"));
        let other = causal().bind(&Shape::square(9), &Facts::new()).unwrap();
        assert!(bound.grid_minus(&other, 0, 0, &all).unwrap_err().to_string().starts_with("cannot compare"));
    }
}
