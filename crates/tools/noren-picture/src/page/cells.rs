//! [`Cells`]: the cells of masks as bytes, row by row, each row as its differences from the row before it.
//!
//! A row is stored as its borders: the keys at which runs of allowed keys begin and end. In most masks, a border equals
//! the border in the row before, or that border plus 1. Consecutive rows with equal differences form a group, which is
//! stored once:
//!
//! ```text
//! rows, borders, then until all borders are given: (difference, number of borders with this difference)
//! ```
//!
//! For scattered cells, such as those of `random`, this form is long. If a rule gives the same cells, the page contains
//! the rule instead of the rows. A rule is JSON; in the table, `set` is the number of another set of cells:
//!
//! ```text
//! ["&", set, ...] ["|", set, ...] ["-", set, set] ["!", set]    intersection, union, difference, complement
//! ["random", limit, low, high, table, table]                    the cells of `random`: the limit below which the random
//!                                                               number of a cell must be, the two halves of the seed,
//!                                                               and the tables of positions of queries and of keys
//! ```
//!
//! All numbers in bytes are LEB128; differences are in zigzag form (0, -1, 1, -2, ...). The difference of a border is
//! the border minus the border with the same index in the row before. If that row has fewer borders, the difference is
//! the border minus the previous border of the same row, or minus 0 for the first border.

use super::limit::{MOST_BORDERS, MOST_BYTES, MOST_CELLS, too_large};
use noren_mask::interval::Interval;
use noren_mask::{BoundMask, Error, bits};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;

/// The number of rows whose cells are computed in one step.
const STEP: u32 = 64;

/// The distinct sets of cells that a page needs, all for the same query rows and keys. A set has the cells of one
/// pattern of one mask.
pub(super) struct Cells {
    queries: Range<u32>,
    keys: Range<u32>,
    /// The number of each set of cells, by its rule as JSON and its rows.
    numbers: HashMap<(String, Vec<u8>), usize>,
    /// All sets of cells as (rule, rows); the index of a set is its number. A set is either rows as bytes, with null as its rule, or a rule,
    /// without bytes.
    sets: Vec<(Value, Vec<u8>)>,
    bytes: usize,
    computed: u64,
    borders: usize,
}

impl Cells {
    pub(super) fn new(queries: Range<u32>, keys: Range<u32>) -> Self {
        Cells { queries, keys, numbers: HashMap::new(), sets: Vec::new(), bytes: 0, computed: 0, borders: 0 }
    }

    /// Adds the number of cells in one pattern (the set of cells of a batch row and head) to the number of computed
    /// cells.
    ///
    /// # Errors
    /// Returns an error if all counted cells together exceed a limit.
    pub(super) fn count(&mut self) -> Result<(), Error> {
        let cells = self.queries.len() as u64 * self.keys.len() as u64;
        self.computed = self.computed.saturating_add(cells);
        match self.computed > MOST_CELLS {
            true => {
                Err(too_large(format!("its batch rows and heads that differ have more than {MOST_CELLS} cells in all")))
            }
            false => Ok(()),
        }
    }

    /// Adds the cells of the pattern with index `pattern` of `bound`, as rows, and returns the number of this set. If
    /// an equal set exists, returns its number. If the rows take more than `most` bytes, adds nothing and returns
    /// `None`.
    ///
    /// # Errors
    /// Returns an error if all sets together exceed a limit.
    pub(super) fn add(&mut self, bound: &BoundMask, pattern: usize, most: usize) -> Result<Option<usize>, Error> {
        let mut rows = Rows::default();
        let mut borders = Vec::new();
        for block in self.blocks() {
            for row in self.fill(bound, pattern, &block).chunks(self.words()) {
                borders.clear();
                bits::runs(row, 0, self.keys.len() as u32, |first, last| borders.extend([first, last]));
                rows.push(&borders);
            }
            let length = rows.bytes.len() + rows.group.len();
            if length > most {
                return Ok(None);
            }
            if self.bytes + length > MOST_BYTES || self.borders + rows.borders > MOST_BORDERS {
                return Err(too_many());
            }
        }
        let borders = rows.borders;
        Ok(Some(self.number(Value::Null, rows.end(), borders)))
    }

    /// Returns the number of a set of cells with this number of borders; adds the set first if there is no equal set.
    fn number(&mut self, rule: Value, rows: Vec<u8>, borders: usize) -> usize {
        *self.numbers.entry((rule.to_string(), rows)).or_insert_with_key(|(_, rows)| {
            self.bytes += rows.len();
            self.borders += borders;
            self.sets.push((rule, rows.clone()));
            self.sets.len() - 1
        })
    }

    /// Adds the set of cells that a rule computes, and returns its number. `fill(rows)` computes the cells of some rows
    /// by this rule, as bits in the form of [`Cells::fill`]. If these cells differ from the cells of pattern `pattern`
    /// of `bound`, adds nothing and returns `None`.
    ///
    /// # Errors
    /// Returns an error if all sets together exceed a limit.
    pub(super) fn compute(
        &mut self,
        bound: &BoundMask,
        pattern: usize,
        rule: Value,
        fill: impl Fn(&Self, &Range<u32>) -> Vec<u64>,
    ) -> Result<Option<usize>, Error> {
        let mut borders = 0;
        for block in self.blocks() {
            let cells = self.fill(bound, pattern, &block);
            if fill(self, &block) != cells {
                return Ok(None);
            }
            for row in cells.chunks(self.words()) {
                bits::runs(row, 0, self.keys.len() as u32, |_, _| borders += 2);
            }
            if self.borders + borders > MOST_BORDERS {
                return Err(too_many());
            }
        }
        Ok(Some(self.number(rule, Vec::new(), borders)))
    }

    /// Returns the ranges of query rows whose cells are computed in one step.
    fn blocks(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let end = self.queries.end;
        self.queries.clone().step_by(STEP as usize).map(move |start| start..end.min(start + STEP))
    }

    /// Returns the keys whose cells are computed.
    pub(super) fn keys(&self) -> Range<u32> {
        self.keys.clone()
    }

    /// Returns the number of 64-bit words that hold the bits of one row.
    pub(super) fn words(&self) -> usize {
        bits::row_words(self.keys.len() as u32)
    }

    /// Returns the cells of pattern `pattern` of `bound` in the query rows `rows` as bits: [`words`](Self::words) words
    /// for each row.
    pub(super) fn fill(&self, bound: &BoundMask, pattern: usize, rows: &Range<u32>) -> Vec<u64> {
        let mut block = vec![0; self.words() * rows.len()];
        bound.fill_bits(pattern, rows.clone(), Interval::new(self.keys.start, self.keys.end), &mut block);
        block
    }

    /// Returns (rules, rows) of all sets of cells in the order of their numbers.
    pub(super) fn into_sets(self) -> (Vec<Value>, Vec<Vec<u8>>) {
        self.sets.into_iter().unzip()
    }
}

/// Returns the error that the rows of a mask have too many borders or bytes.
fn too_many() -> Error {
    too_large("its rows differ too much from each other".into())
}

/// The rows of one set of cells as bytes.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    /// The borders of the last row that was added.
    last: Vec<u32>,
    /// The differences that all rows of the current group have, as bytes. `repeats` is the number of these rows.
    group: Vec<u8>,
    repeats: u64,
    /// The number of borders that a reader must store: the borders of all rows that are not equal to the row before.
    borders: usize,
}

impl Rows {
    fn push(&mut self, borders: &[u32]) {
        let group = self.differences(borders);
        if self.repeats > 0 && group == self.group {
            self.repeats += 1;
        } else {
            self.close();
            (self.group, self.repeats) = (group, 1);
        }
        if self.last != borders {
            self.borders += borders.len();
            self.last.clear();
            self.last.extend_from_slice(borders);
        }
    }

    fn differences(&self, borders: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        write_number(&mut out, borders.len() as u64);
        let mut run: Option<(u64, u64)> = None;
        for (index, &border) in borders.iter().enumerate() {
            let before = self.last.get(index).or_else(|| borders.get(index.wrapping_sub(1))).copied().unwrap_or(0);
            let difference = i64::from(border) - i64::from(before);
            let zigzag = (difference << 1 ^ difference >> 63) as u64;
            match &mut run {
                Some((value, count)) if *value == zigzag => *count += 1,
                _ => {
                    write_run(&mut out, run);
                    run = Some((zigzag, 1));
                }
            }
        }
        write_run(&mut out, run);
        out
    }

    fn close(&mut self) {
        if self.repeats > 0 {
            write_number(&mut self.bytes, self.repeats);
            self.bytes.append(&mut self.group);
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.close();
        self.bytes
    }
}

fn write_run(out: &mut Vec<u8>, run: Option<(u64, u64)>) {
    if let Some((value, count)) = run {
        write_number(out, value);
        write_number(out, count);
    }
}

/// Appends a number in LEB128: each byte has seven bits of the number, beginning with the lowest; bit 7 is set in all
/// bytes except the last.
pub(super) fn write_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use noren_mask::{Facts, Mask, Shape};

    fn sets(mask: &str, len: usize) -> Vec<Vec<u8>> {
        let bound = mask.parse::<Mask>().unwrap().bind(&Shape::square(len), &Facts::new()).unwrap();
        let mut cells = Cells::new(0..len as u32, 0..len as u32);
        cells.add(&bound, 0, usize::MAX).unwrap();
        cells.into_sets().1
    }

    #[test]
    fn rows_that_move_by_one_are_one_group() {
        // 300 rows with 2 borders: the first stays at 0, the second is 1 (2 in zigzag form) after the first and then moves by 1
        assert_eq!(sets("causal", 300), [[0xac, 2, 2, 0, 1, 2, 1]]);
        assert!(sets("sliding(64)", 4096)[0].len() < 40);
        assert!(sets("none", 4096)[0].len() < 8);
    }
}
