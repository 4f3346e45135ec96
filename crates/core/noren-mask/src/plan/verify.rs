//! Checks that a plan computes exactly the cells that its mask allows.
//!
//! There are three checks, at different times. A tile here is a group of query rows with the ranges of keys (spans)
//! that they read. Each check also checks that every query row is in exactly one tile, and that the spans of each tile
//! are ascending and disjoint.
//!
//! * **[`Plan::verify`]** compares a plan with the definition, [`BoundMask::allowed`](crate::BoundMask::allowed), at any time that the caller
//!   chooses. The caller also sets the number of cells up to which a pattern is compared completely.
//! * **Debug builds and tests** compare every new plan with the definition. In a pattern of at most
//!   [`Plan::CHECKED_CELLS`] cells, every cell is compared. In a larger pattern, sampled cells are compared. If a cell
//!   differs, the program panics with a message that contains the mask.
//! * **Release builds** check each new plan that is reordered. In each compared query row, the plan must read the same
//!   keys as a plan without reordering. If it does not, the plan without reordering is used instead, which is exact but
//!   slower. The number of compared rows depends on the size of the pattern:
//!   * In a pattern of at most 2,097,152 cells, all rows are compared.
//!   * In a larger pattern, the compared rows are from evenly distributed tiles. In addition, up to 8,192 cells of
//!     gathered keys (keys that the plan moves to the start of its order) are compared.
//!   * In a row of more than 2,097,152 keys, only sampled cells are compared.

use crate::Error;
use crate::bind::Resolved;
use crate::mask::Mask;
use crate::plan::{PatternPlan, Plan, SpanKind, Tile};
use crate::sets::bits::{bit, count, row_words, runs, set_bit, set_range};
use crate::sets::interval::Interval;
use crate::sets::order::Order;
use std::ops::Range;

/// The number of cells that the check of a reordered plan may compare. The number of query rows that are compared
/// completely is this number divided by the number of keys, but at least 2. If a row has more keys than this number,
/// only sampled cells are compared.
const GUARDED_CELLS: usize = 1 << 21;
/// The maximum number of cells of gathered keys that the check of a reordered plan compares one by one, in addition to
/// complete rows. Gathered keys are keys that a reordering put next to one another.
const GUARDED_KEYS: usize = 1 << 13;
/// The number of query rows in which cells are sampled, if a pattern (mask of one batch row and head) has too many
/// cells for a complete comparison.
const SAMPLED_ROWS: u32 = 16;
/// The number of random keys that are compared in each sampled query row, and the maximum number of compared keys at
/// the ends of spans.
const SAMPLED_KEYS: u32 = 64;

/// The number of cells that [`Plan::verify`] compared. The plan agreed with the definition in all of these cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// Number of cells that were compared with the definition. If several pairs of batch row and head have equal cells,
    /// these cells are compared and counted once.
    pub cells: u64,
    /// True if every cell was compared. False if only sampled cells were compared in at least one batch row and head.
    pub complete: bool,
}

impl Plan {
    /// The maximum number of cells of a pattern (mask of one batch row and head) for which a debug build compares every
    /// cell of a new plan with the definition.
    pub const CHECKED_CELLS: u64 = 1 << 16;

    /// Compares the cells that a kernel computes from this plan with the definition, [`BoundMask::allowed`](crate::BoundMask::allowed).
    ///
    /// Each distinct pattern (set of cells of a batch row and head) with at most `most_cells` cells is compared
    /// completely. In a larger pattern, sampled cells are compared. A kernel computes all cells of full spans, and in
    /// mixed spans the cells that [`PatternPlan::fill_bits`] sets. The time is proportional to the compared cells. In a
    /// pattern of any size, each query row must be in exactly one tile, and the spans of each tile must be ascending
    /// and disjoint. In a reordered pattern of more than 2,097,152 rows or keys, it is not checked that the order has
    /// each index once.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let plan = (causal() & stride(4)).bind(&Shape::square(64), &Facts::new())?.plan();
    /// let verified = plan.verify(64 * 64)?;
    /// assert!(verified.complete && verified.cells == 64 * 64);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] with the first cell that differs, or with the row or span that is wrong. The cause may
    /// be a function or an atom of the user with wrong bounds. Any other cause is a defect of this crate.
    pub fn verify(&self, most_cells: u64) -> Result<Verified, Error> {
        let mut verified = Verified { cells: 0, complete: true };
        let mut seen = vec![false; self.patterns().len()];
        for (batch, head) in self.shape().batch_heads() {
            let number = self.pattern_of(batch, head);
            if std::mem::replace(&mut seen[number], true) {
                continue;
            }
            let plan = &self.patterns()[number];
            let allowed = |row: u32, key: u32| self.bound().allowed(batch, head, row as usize, key as usize);
            let whole = u64::from(plan.q_len()) * u64::from(plan.kv_len()) <= most_cells;
            plan.check_tiles().map_err(|wrong| wrong.error(self.bound().mask(), batch, head))?;
            let found = if whole { plan.compare(&allowed) } else { plan.compare_samples(&allowed) };
            verified.cells += found.map_err(|wrong| wrong.error(self.bound().mask(), batch, head))?;
            verified.complete &= whole;
        }
        Ok(verified)
    }
}

/// An error in a plan: a cell that differs from the definition, wrong tiles, wrong spans (ranges of keys that a tile
/// reads), or wrong orders of rows or keys.
#[derive(Debug)]
enum Wrong {
    /// A cell that the plan executes although the mask hides it (`executed` is true), or that the plan leaves out
    /// although the mask allows it (`executed` is false).
    Cell { row: u32, key: u32, executed: bool },
    /// Tiles that do not contain every query row exactly once. The first tiles contain the rows before place `end`, and
    /// the next tile begins at place `start`. If there is no next tile, `start` is the number of rows.
    Rows { end: u32, start: u32 },
    /// A wrong span: the span `start..end` of the tile at place `tile` is empty, begins before the end of the previous
    /// span, or ends after the last key.
    Span { tile: u32, start: u32, end: u32 },
    /// An order of query rows or keys that contains one index twice and omits another index. The text is `query rows`
    /// or `keys`.
    Order(&'static str),
    /// A query row that reads the same key twice, at two places. This error is possible only if the order of keys
    /// contains keys twice.
    Twice { row: u32 },
}

impl Wrong {
    fn error(&self, mask: &Mask, batch: usize, head: usize) -> Error {
        let plan = format!("the plan of `{mask}` in batch row {batch}, head {head}");
        let problem = match self {
            Wrong::Cell { row, key, executed } => {
                let cell = [batch, head, *row as usize, *key as usize];
                match executed {
                    true => format!("the plan executes cell {cell:?}, which `{mask}` hides"),
                    false => format!("the plan leaves out cell {cell:?}, which `{mask}` allows"),
                }
            }
            Wrong::Rows { end, start } => format!(
                "{plan} has tiles that do not contain every query row exactly once: the tiles contain the rows \
                 before place {end}, but the next tile begins at place {start}"
            ),
            Wrong::Span { tile, start, end } => format!(
                "{plan} has a wrong span of keys in the tile at place {tile}: {start}..{end} is empty, overlaps another span or is out of order"
            ),
            Wrong::Twice { row } => format!("{plan} reads a key twice in query row {row}"),
            Wrong::Order(what) => {
                format!("{plan} has an order of {what} that contains an index twice or omits an index")
            }
        };
        Error::invalid(format!("plan: {problem}"))
    }
}

impl PatternPlan {
    /// Checks that tiles contain every query row exactly once, and that the spans (ranges of keys) of each tile are
    /// ascending and disjoint.
    fn check_tiles(&self) -> Result<(), Wrong> {
        let mut held = 0;
        for tile in self.tiles() {
            if tile.start != held || tile.end <= tile.start || tile.end > self.q_len() {
                return Err(Wrong::Rows { end: held, start: tile.start });
            }
            held = tile.end;
            let mut read = 0;
            for span in tile.spans {
                if span.start < read || span.end <= span.start || span.end > self.key_places() {
                    return Err(Wrong::Span { tile: tile.start, start: span.start, end: span.end });
                }
                read = span.end;
            }
        }
        if held != self.q_len() {
            return Err(Wrong::Rows { end: held, start: self.q_len() });
        }
        match () {
            () if !self.query_order().is_none_or(|order| holds_each(order, self.q_len())) => {
                Err(Wrong::Order("query rows"))
            }
            // both places of a key are compared with its rows: a key that is read twice or never differs
            () if self.has_copies() => Ok(()),
            () if !self.key_order().is_none_or(|order| holds_each(order, self.kv_len())) => Err(Wrong::Order("keys")),
            () => Ok(()),
        }
    }

    /// Compares each cell of the pattern (the mask of one batch row and head) with the definition: a kernel must
    /// compute a cell if and only if `allowed(row, key)` is true. Returns the number of cells, or the first difference
    /// as an error.
    fn compare(&self, allowed: &impl Fn(u32, u32) -> bool) -> Result<u64, Wrong> {
        let mut read = vec![0; row_words(self.kv_len())];
        for tile in self.tiles() {
            for place in tile.start..tile.end {
                let row = self.query_at(place);
                if !self.executed_row(tile, place, &mut read) {
                    return Err(Wrong::Twice { row });
                }
                for key in 0..self.kv_len() {
                    let executed = bit(&read, key as usize);
                    if executed != allowed(row, key) {
                        return Err(Wrong::Cell { row, key, executed });
                    }
                }
            }
        }
        Ok(u64::from(self.q_len()) * u64::from(self.kv_len()))
    }

    /// Compares some cells of some query rows with the definition `allowed(row, key)`. In each of these rows, it
    /// compares at most [`SAMPLED_KEYS`] keys at the ends of the tile's spans (the first and last key of a span, and
    /// the keys next to them), and [`SAMPLED_KEYS`] keys at random places. Returns the number of compared cells, or the
    /// first difference as an error.
    fn compare_samples(&self, allowed: &impl Fn(u32, u32) -> bool) -> Result<u64, Wrong> {
        let mut compared = 0;
        for (tile, place) in self.sampled_rows(SAMPLED_ROWS as usize) {
            let row = self.query_at(place);
            let borders = tile.spans.iter().flat_map(|s| [s.start.wrapping_sub(1), s.start, s.end - 1, s.end]);
            let others = (0..SAMPLED_KEYS).map(|i| scatter(place, i) % self.key_places());
            for key_place in borders.take(SAMPLED_KEYS as usize).chain(others).filter(|p| *p < self.key_places()) {
                let key = self.key_at(key_place);
                let executed = match self.second_place(key) {
                    None => self.executes(tile, place, key_place),
                    Some(second) => self.executes(tile, place, key) || self.executes(tile, place, second),
                };
                if executed != allowed(row, key) {
                    return Err(Wrong::Cell { row, key, executed });
                }
                compared += 1;
            }
        }
        Ok(compared)
    }

    /// Returns about `rows` query rows as pairs (tile, place of the row). The tiles of these rows are evenly
    /// distributed over the plan, and the rows within a tile are pseudo-random. Returns all query rows if the plan has
    /// at most `rows` rows.
    fn sampled_rows(&self, rows: usize) -> impl Iterator<Item = (Tile<'_>, u32)> {
        let (tiles, rows) = (self.tile_count(), rows.clamp(1, (self.q_len() as usize).max(1)));
        let chosen = rows.min(tiles);
        let all = rows >= self.q_len() as usize;
        let per_tile = if all { u32::MAX } else { rows.div_ceil(chosen.max(1)) as u32 };
        (0..chosen).flat_map(move |i| {
            // the samples include the first and the last tile
            let tile = self.tile(if chosen > 1 { i * (tiles - 1) / (chosen - 1) } else { 0 });
            let first = scatter(tile.start, tiles as u32);
            (0..per_tile.min(tile.rows())).map(move |j| (tile, tile.start + first.wrapping_add(j) % tile.rows()))
        })
    }

    /// Sets bit `i` in `read` if a kernel reads the key with index `i` for the query at place `place`, which is in
    /// `tile`. All other bits become 0. Returns false if the kernel reads a key twice, otherwise true.
    fn executed_row(&self, tile: Tile<'_>, place: u32, read: &mut [u64]) -> bool {
        read.fill(0);
        let (mut words, mut reads) = (Vec::new(), 0);
        for span in tile.spans {
            if span.kind == SpanKind::Full {
                reads += u64::from(span.keys());
                self.set_places(span.start..span.end, read);
                continue;
            }
            words.clear();
            words.resize(row_words(span.keys()), 0);
            self.fill_bits(place..place + 1, span.start..span.end, &mut words);
            runs(&words, 0, span.keys(), |a, z| {
                reads += u64::from(z - a);
                self.set_places(span.start + a..span.start + z, read);
            });
        }
        reads == count(read)
    }

    /// Sets one bit in `read` for each key at the places `places`: bit `i` for the key with index `i`.
    fn set_places(&self, places: Range<u32>, read: &mut [u64]) {
        let Some(order) = self.key_order() else {
            return set_range(read, places.start as usize, places.end as usize);
        };
        for indices in order.indices(places) {
            match indices.adjacent() {
                true => set_range(read, indices.start as usize, indices.last() as usize + 1),
                false => (0..indices.len).for_each(|i| set_bit(read, indices.at(i) as usize)),
            }
        }
    }

    /// Returns whether a kernel reads the key at place `key` for the query at place `place`, which is in `tile`.
    fn executes(&self, tile: Tile<'_>, place: u32, key: u32) -> bool {
        let span = tile.spans.iter().find(|s| (s.start..s.end).contains(&key));
        span.is_some_and(|span| {
            let mut word = [0];
            span.kind == SpanKind::Full || {
                self.fill_bits(place..place + 1, key..key + 1, &mut word);
                word[0] == 1
            }
        })
    }

    /// Returns true if a reordered plan passes the check of release builds. Every query row must be in one tile, and
    /// spans must be disjoint. In each compared row, the plan must read the same keys as without reordering. In
    /// addition, keys that the reordering put next to one another (gathered keys) are compared in query rows of many
    /// tiles. If there are more than [`GUARDED_CELLS`] keys, only sampled cells are compared.
    pub(crate) fn agrees_with_rows(&self) -> bool {
        if self.check_tiles().is_err() {
            return false;
        }
        let Resolved { frame, pattern } = self.resolved();
        let kv_len = self.kv_len();
        if kv_len as usize > GUARDED_CELLS {
            let allowed = |row: u32, key: u32| {
                let mut word = [0];
                pattern.fill(frame, row..row + 1, Interval::new(key, key + 1), &mut word);
                word[0] == 1
            };
            return self.compare_samples(&allowed).is_ok();
        }
        let (mut read, mut meant) = (vec![0; row_words(kv_len)], vec![0; row_words(kv_len)]);
        let rows = (GUARDED_CELLS / kv_len.max(1) as usize).max(2);
        let same_keys = self.sampled_rows(rows).all(|(tile, place)| {
            let row = self.query_at(place);
            let once = self.executed_row(tile, place, &mut read);
            pattern.fill(frame, row..row + 1, Interval::new(0, kv_len), &mut meant);
            once && read == meant
        });
        let gathered = self.gathered_keys(GUARDED_KEYS / 8);
        let tiles = GUARDED_KEYS / gathered.len().max(1);
        let mut word = [0];
        same_keys
            && self.sampled_rows(tiles).all(|(tile, place)| {
                let row = self.query_at(place);
                gathered.iter().all(|&key_place| {
                    let key = self.key_at(key_place);
                    pattern.fill(frame, row..row + 1, Interval::new(key, key + 1), &mut word);
                    self.executes(tile, place, key_place) == (word[0] == 1)
                })
            })
    }

    /// Returns the second place of key `key` in an order that contains each key twice
    /// ([`Reorder::Copies`](crate::Reorder)). Returns the only place of a key that such an order contains once, and
    /// `None` for an order without copies.
    fn second_place(&self, key: u32) -> Option<u32> {
        if !self.has_copies() {
            return None;
        }
        let order = self.key_order()?;
        let position = self.resolved().frame.key(key);
        let class = position.rem_euclid(i64::from(order.modulus())) as u32;
        order.class(class).filter(|_| position >= 0).map(|group| order.place(&order.groups()[group], key)).or(Some(key))
    }

    /// Returns the places of gathered keys: keys, such as those of `global(..)`, that the order of keys puts next to
    /// one another. If there are at most `most` gathered keys, returns all of their places; otherwise about `most` of
    /// these places, evenly distributed.
    fn gathered_keys(&self, most: usize) -> Vec<u32> {
        let groups = || self.key_groups().iter().filter(|group| group.class.is_none() && !self.has_copies());
        let total: usize = groups().map(|group| (group.end - group.start) as usize).sum();
        groups().flat_map(|group| (group.start..group.end).step_by(total.div_ceil(most).max(1))).collect()
    }
}

/// Returns whether `order` contains each index below `len` exactly once. If `len` is more than [`GUARDED_CELLS`], the
/// order is not checked, and the result is true.
fn holds_each(order: &Order, len: u32) -> bool {
    if len as usize > GUARDED_CELLS {
        return true;
    }
    let mut seen = vec![0; row_words(len)];
    let mut held = 0;
    for (first, step, count) in order.runs() {
        for i in 0..u64::from(count) {
            let index = u64::from(first) + i * u64::from(step);
            if index >= u64::from(len) || bit(&seen, index as usize) {
                return false;
            }
            set_bit(&mut seen, index as usize);
            held += 1;
        }
    }
    held == len
}

/// Returns a pseudo-random number that depends only on `a` and `b`.
fn scatter(a: u32, b: u32) -> u32 {
    let mixed = (u64::from(a) << 32 | u64::from(b)).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as u32
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{BoundMask, Facts, PlanOptions, Reorder, Shape, TileSpan};

    /// Returns a bound mask, options and a wrong plan of this mask, for tests of the checks. The plan has residue
    /// classes and gathered keys (keys that the reordering put next to one another). Its error is in a span that
    /// contains a gathered key.
    pub(crate) fn planted() -> (BoundMask, PlanOptions, PatternPlan) {
        let mask: Mask =
            "neighborhood(grid=[96], size=[7], dilation=[4]) | global([5, 8, 12, 30, 38])".parse().unwrap();
        let bound = mask.bind(&Shape::square(96), &Facts::new()).unwrap();
        let options = PlanOptions { block_q: 16, reorder: Reorder::Always, ..PlanOptions::default() };
        let mut plan = PatternPlan::new(&bound.resolved()[0], &options);
        plan.plant(|span: &mut TileSpan| span.kind = SpanKind::Full);
        (bound, options, plan)
    }

    #[test]
    fn a_planted_error_is_named_by_its_cell() {
        let (bound, _, plan) = planted();
        let wrong = plan.compare(&|row, key| bound.allowed(0, 0, row as usize, key as usize)).unwrap_err();
        let text = wrong.error(bound.mask(), 0, 0).to_string();
        assert!(text.starts_with("plan: the plan executes cell [0, 0, "), "{text}");
        let Wrong::Cell { row, key, executed: true } = wrong else { panic!("{text}") };
        assert!(!bound.allowed(0, 0, row as usize, key as usize));
    }

    #[test]
    fn rows_that_no_tile_holds_and_overlapping_spans_are_refused() {
        let (reordered, _, _) = planted();
        let causal: Mask = "causal".parse().unwrap();
        let causal = causal.bind(&Shape::square(96), &Facts::new()).unwrap();
        for (bound, reorder) in [(causal, Reorder::Never), (reordered, Reorder::Always)] {
            let options = PlanOptions { block_q: 16, reorder, ..PlanOptions::default() };
            let sound = PatternPlan::new(&bound.resolved()[0], &options);
            assert!(sound.check_tiles().is_ok() && sound.agrees_with_rows());
            let text = |plan: &PatternPlan| plan.check_tiles().unwrap_err().error(bound.mask(), 0, 0).to_string();
            let mut plan = sound.clone();
            plan.plant_rows(|rows| rows.truncate(rows.len() - 1));
            assert!(text(&plan).contains("do not contain every query row exactly once"), "{}", text(&plan));
            assert!(!plan.agrees_with_rows());
            let mut plan = sound.clone();
            plan.plant_rows(|rows| rows[0] = 1);
            assert!(text(&plan).contains("begins at place 1"), "{}", text(&plan));
            // the keys of the previous span are read twice
            let mut plan = sound.clone();
            plan.plant(|span: &mut TileSpan| span.start = span.start.saturating_sub(40));
            assert!(text(&plan).contains("overlaps another"), "{}", text(&plan));
            assert!(!plan.agrees_with_rows());
            let mut plan = sound.clone();
            plan.plant(|span: &mut TileSpan| span.end = span.start);
            assert!(text(&plan).contains("is empty"), "{}", text(&plan));
        }
    }

    #[test]
    fn rows_of_many_keys_are_compared_in_samples() {
        let mask: Mask = "stride(3) | window(left=1, right=5)".parse().unwrap();
        let bound = mask.bind(&Shape::new(11, 777_777_112, 0), &Facts::new()).unwrap();
        let options = PlanOptions { block_q: 4, reorder: Reorder::Residues(7), ..PlanOptions::default() };
        let mut plan = PatternPlan::new(&bound.resolved()[0], &options);
        assert!(plan.reordered().is_some() && plan.agrees_with_rows());
        plan.plant(|span: &mut TileSpan| span.kind = SpanKind::Full);
        assert!(!plan.agrees_with_rows());
    }

    #[test]
    fn samples_reach_the_first_and_the_last_tile() {
        let bound = "causal & stride(3)".parse::<Mask>().unwrap().bind(&Shape::square(1000), &Facts::new()).unwrap();
        let plan = bound.plan();
        for rows in [1, 2, 7, 1000, 5000] {
            let sampled: Vec<u32> = plan.patterns()[0].sampled_rows(rows).map(|(tile, _)| tile.start).collect();
            assert!(!sampled.is_empty() && sampled.len() <= 2 * rows, "{rows}");
            assert!(rows < 1000 || sampled.len() == 1000, "{rows}: {}", sampled.len());
            assert!(rows < 2 || sampled.contains(&0) && sampled.last().unwrap() + 96 > 900, "{rows}: {sampled:?}");
        }
        assert!(plan.verify(0).is_ok_and(|found| !found.complete && found.cells > 1000));
    }
}
