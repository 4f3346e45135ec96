//! [`verify`]: compares the rows, bounds, text and simplified form that an atom returns with
//! [`Atom::allows`](crate::atom::Atom::allows), which decides single cells.

use crate::Error;
use crate::atoms::foreign;
use crate::bind::BoundMask;
use crate::bind::lower::lower;
use crate::facts::Facts;
use crate::facts::shape::Shape;
use crate::mask::Mask;
use crate::mask::basis::{Pair, Site};
use crate::mask::pattern::Pattern;
use crate::sets::bits::row_words;
use crate::sets::interval::{Interval, IntervalSet};
use std::sync::Arc;

/// Checks that the results of a mask's atoms agree, cell by cell, for one shape and one set of facts. The reference is
/// [`Atom::allows`](crate::atom::Atom::allows), which decides a single cell. The results that are compared with it are
/// the ranges of keys in each row, the bounds of ranges of rows, the rows at which keys change, the simplified form and
/// the text.
///
/// Use this function in the tests of an atom, with small shapes: the time is proportional to the number of cells.
/// Shapes with a query offset, several batch rows and heads, and facts with key positions find more errors than square
/// shapes. The documentation of [the module](crate::atom) has an example.
///
/// # Errors
/// Returns an error if [`bind`](Mask::bind) fails, and [`Error::Atom`] with the first result that contradicts
/// `Atom::allows`.
pub fn verify(mask: &Mask, shape: &Shape, facts: &Facts) -> Result<(), Error> {
    let bound = mask.bind(shape, facts)?;
    let fail = |problem: String| Err(Error::atom(mask, problem));
    if foreign(mask).is_none() && mask.to_string().parse::<Mask>().as_ref() != Ok(mask) {
        return fail("the text of the mask cannot be parsed, or it parses to another mask".into());
    }
    let shared = Arc::new(facts.clone());
    for (batch, head) in shape.batch_heads() {
        let site = Site { row: bound.row_facts(batch), shared: &shared, head };
        for (form, mask) in [("the mask", mask.clone()), ("the simplified form of the mask", mask.simplify())] {
            let pattern = lower(&mask, site);
            let check = Check { bound: &bound, pattern: &pattern, batch, head };
            check.all().or_else(|problem| fail(format!("{form}: batch row {batch}, head {head}: {problem}")))?;
        }
    }
    Ok(())
}

/// A check of one batch row and head: the cells of `pattern` (the mask as prepared for planning) are compared with
/// those of the bound mask.
struct Check<'a> {
    bound: &'a BoundMask,
    pattern: &'a Pattern,
    batch: usize,
    head: usize,
}

impl Check<'_> {
    fn all(&self) -> Result<(), String> {
        let rows: Vec<IntervalSet> = (0..self.bound.shape().q_len()).map(|row| self.row(row)).collect();
        self.cells(&rows)?;
        self.changes(&rows)?;
        self.bounds(&rows)?;
        self.scattered(rows.len())
    }

    /// Returns the keys that query row `row` reads, computed cell by cell with
    /// [`Atom::allows`](crate::atom::Atom::allows).
    fn row(&self, row: usize) -> IntervalSet {
        let keys = (0..self.bound.shape().kv_len()).filter(|key| self.bound.allowed(self.batch, self.head, row, *key));
        keys.map(|key| key as u32..key as u32 + 1).collect()
    }

    /// Returns a description of query row `row` with its position, for messages.
    fn name(&self, row: usize) -> String {
        let Pair { q, .. } = self.bound.pair_at([self.batch, self.head, row, 0]);
        format!("query row {row} at position {q}")
    }

    fn cells(&self, rows: &[IntervalSet]) -> Result<(), String> {
        let frame = self.bound.frame(self.batch);
        let kv_len = frame.kv_len;
        // whole rows, and windows that begin or end inside of runs
        let windows = [(0, kv_len), (kv_len / 3, kv_len - kv_len / 3), (kv_len / 2, (kv_len / 2 + 1).min(kv_len))];
        for (row, allowed) in rows.iter().enumerate() {
            for (start, end) in windows.into_iter().filter(|(start, end)| start < end) {
                let mut words = vec![0; row_words(end - start)];
                self.pattern.fill(frame, row as u32..row as u32 + 1, Interval::new(start, end), &mut words);
                for key in start..end {
                    let at = key - start;
                    let found = words[at as usize / 64] >> (at % 64) & 1 == 1;
                    if found != allowed.contains(key) {
                        let name = self.name(row);
                        return Err(match found {
                            true => format!("the runs of {name} contain key {key}, but `Atom::allows` denies this key"),
                            false => {
                                format!("the runs of {name} leave out key {key}, but `Atom::allows` allows this key")
                            }
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the query rows at which each atom of the pattern reports a change of keys. All query rows from one of
    /// these rows up to the next must read the same keys. `rows` has the keys of each query row.
    fn changes(&self, rows: &[IntervalSet]) -> Result<(), String> {
        let frame = self.bound.frame(self.batch);
        for leaf in self.pattern.leaves() {
            let keys = |row: usize| {
                let mut words = vec![0; row_words(frame.kv_len)];
                leaf.fill(frame, row as u32..row as u32 + 1, Interval::new(0, frame.kv_len), &mut words);
                words
            };
            let mut row = 0;
            while row < rows.len() {
                let next = leaf.equal_until(frame, row as u32) as usize;
                let first = keys(row);
                if let Some(other) = (row + 1..next.min(rows.len())).find(|other| keys(*other) != first) {
                    return Err(format!(
                        "{} reads other keys than {}, but the atom reports that these query rows read the same keys",
                        self.name(other),
                        self.name(row)
                    ));
                }
                row = next;
            }
        }
        Ok(())
    }

    fn bounds(&self, rows: &[IntervalSet]) -> Result<(), String> {
        let frame = self.bound.frame(self.batch);
        for len in [1, 2, 3, 7, 16, rows.len()] {
            for start in (0..rows.len()).step_by(1 + len / 3) {
                let end = (start + len).min(rows.len());
                let bounds = self.pattern.bounds(frame, start as u32..end as u32);
                for (row, allowed) in rows.iter().enumerate().take(end).skip(start) {
                    let range = format!("query rows {start}..{end}");
                    if let Some(key) = allowed.minus(&bounds.upper).covering_range() {
                        return Err(format!(
                            "the upper bound of {range} leaves out key {}, which {} reads",
                            key.start,
                            self.name(row)
                        ));
                    }
                    if let Some(key) = bounds.lower.minus(allowed).covering_range() {
                        return Err(format!(
                            "the lower bound of {range} contains key {}, but {} does not read this key",
                            key.start,
                            self.name(row)
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the key bounds that atoms return for query rows that are not consecutive, such as every third row. `rows`
    /// is the number of query rows.
    fn scattered(&self, rows: usize) -> Result<(), String> {
        let frame = self.bound.frame(self.batch);
        for leaf in self.pattern.leaves() {
            let Pattern::Atom(atom) = leaf else { continue };
            for (first, step) in [(0, 2), (1, 3), (2, 7)] {
                let chosen = || (first..rows as u32).step_by(step);
                let Some(bounds) = atom.bounds_of(frame, chosen()).filter(|_| chosen().next().is_some()) else {
                    continue;
                };
                for row in chosen() {
                    let mut runs = Vec::new();
                    leaf.row(frame, row, (0, frame.kv_len), &mut |start, end| runs.push(start..end));
                    let read: IntervalSet = runs.into_iter().collect();
                    if !read.minus(&bounds.upper).is_empty() || !bounds.lower.minus(&read).is_empty() {
                        return Err(format!(
                            "the key bounds of every {step}th query row, beginning with row {first}, are wrong for {}",
                            self.name(row as usize)
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
