//! The comparison of two terms column by column, over finitely many cells. A term is one mask in one batch row and
//! head, as a combination of atoms.
//!
//! Five sets of numbers determine where the cells of the terms change: the listed positions `T` of queries and `U` of
//! keys, the ends `D` of windows (where a condition on `q - k` changes), the sizes `C` of chunks and the steps `S` of
//! strides. Take one key `k`. The queries at which the value of a term may change along its column are called places:
//! the positions of `T`, `k + d` for `d` in `D`, and the ends of the chunk that contains `k`. A piece is the range of
//! queries between two neighboring places. In a piece, only strides vary. Their period is `s = lcm(S)`, so the first
//! `s` queries of a piece represent the others and include the first difference.
//!
//! The pieces of `k` and of `k + p` with `p = lcm(C, S)` have the same values under three conditions:
//!
//! - (1) No position of `U` is between `k` and `k + p`.
//! - (2) The places that move with `k` keep their order among the positions of `T`.
//! - (3) No piece between a place of `T` and a place that moves with `k` is shorter than `s`.
//!
//! (2) and (3) fail only for `k` within `max(C) + s` of a number `v = t - d`, with `t` in `T` or 0 and `d` in `D` or 0.
//! So it is enough to visit the keys from `v - max(C) - s` to `v + max(C) + s + p`, for each of these finitely many `v`
//! and each `v` in `U`. Places that move with `k` move away from 0, so the first of these keys has the shortest length.

use super::range::{Lengths, least_common_multiple};
use super::term::{Differ, Term, Terms};
use crate::mask::basis::{Places, Runs};
use std::collections::BTreeSet;

/// A cell in which two masks differ, and the shortest length of a sequence that contains the cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Candidate {
    /// The shortest sequence length that contains the cell and at which both masks can be bound.
    pub(super) len: usize,
    /// The position of the query.
    pub(super) q: i64,
    /// The position of the key.
    pub(super) k: i64,
}

/// The result of a comparison of two terms (two masks in one batch row and head).
#[derive(Default)]
pub(super) struct Outcome {
    /// The number of cells in which the two terms were compared.
    pub(super) compared: usize,
    /// A cell in which the two masks differ for all values of the unknowns (atoms that read facts or are random). Of
    /// all such cells, it has the shortest sequence length.
    pub(super) certain: Option<Candidate>,
    /// The cells in which the two masks differ for some values of the unknowns (atoms that read facts or are random)
    /// and agree for other values. If there are many such cells, only the cells of the shortest sequence lengths are
    /// stored.
    pub(super) open: BTreeSet<Candidate>,
}

/// The maximum number of cells in `Outcome::open`.
const OPEN: usize = 64;
/// The maximum number of listed positions in two compared masks together: the starts and ends of spans, and each
/// position of trees and neighborhoods. For more positions, the comparison returns an error.
const MAX_PLACES: usize = 1 << 20;

/// A prepared comparison of two terms (two masks in one batch row and head). Its cost is within the budget.
pub(super) struct Columns<'a> {
    terms: &'a Terms,
    lengths: Lengths,
    places: Places,
    /// The least common multiple of the steps of all strides in both terms.
    step: i64,
    /// Ranges `(start, end)` of keys, `end` excluded, that represent all other keys.
    keys: Vec<(i64, i64)>,
}

impl<'a> Columns<'a> {
    /// Prepares the comparison of two terms (two masks in one batch row and head).
    ///
    /// # Errors
    /// Returns the reason as text if the comparison takes more than `budget` steps.
    pub(super) fn new(terms: &'a Terms, lengths: Lengths, budget: usize) -> Result<Self, String> {
        let mut places = Places::default();
        let mut listed = 0usize;
        for term in &terms.pair {
            term.places(&mut |places| listed = listed.saturating_add(places.listed));
        }
        if listed > MAX_PLACES {
            return Err(format!(
                "the masks contain {listed} listed positions, but at most {MAX_PLACES} can be compared"
            ));
        }
        terms.pair.iter().for_each(|term| term.places(&mut |atom| places.add(atom)));
        let multiple = |numbers: &BTreeSet<i64>, first: usize| {
            numbers.iter().try_fold(first, |n, x| least_common_multiple(n, *x as usize))
        };
        let too_long = || {
            "the common period of the chunks and strides is more than 2^32 positions, too long to compare".to_string()
        };
        let step = multiple(&places.steps, 1).ok_or_else(too_long)?;
        let period = multiple(&places.chunks, step).ok_or_else(too_long)?;
        let keys = places.key_ranges(step as i64, period as i64, lengths.last as i64)?;
        let columns = Columns { terms, lengths, places, step: step as i64, keys };
        match columns.cost() {
            cost if cost > budget as f64 => {
                Err(format!("the comparison would take {cost:.1e} steps, but at most {budget} are allowed"))
            }
            _ => Ok(columns),
        }
    }

    /// Returns an upper limit for the number of steps of the whole comparison.
    pub(super) fn cost(&self) -> f64 {
        let keys: f64 = self.keys.iter().map(|(start, end)| (end - start) as f64).sum();
        let pieces = self.places.queries.len() + self.places.distances.len() + 2 * self.places.chunks.len() + 1;
        let price: usize = self.terms.pair.iter().map(Term::price).sum();
        keys * pieces as f64 * self.step as f64 * (self.terms.words() * price) as f64
    }

    /// Compares the two masks in the cells that represent all other cells. `best` is the sequence length of a
    /// difference that is already known: longer sequences are not compared. `None` means that no difference is known.
    pub(super) fn compare(&self, best: Option<usize>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut borders = Vec::new();
        for k in self.keys.iter().flat_map(|(start, end)| *start..*end) {
            let shortest = outcome.certain.map(|c| c.len).into_iter().chain(best).min();
            if shortest.is_some_and(|len| len < k as usize + 1) {
                break;
            }
            self.borders(k, &mut borders);
            for piece in borders.windows(2) {
                for q in piece[0]..piece[1].min(piece[0] + self.step) {
                    outcome.compared += 1;
                    let len = (q.max(k) as usize + 1).max(self.lengths.first);
                    let candidate = Candidate { len, q, k };
                    match self.terms.differ(q, k) {
                        Differ::Never => {}
                        Differ::Always => {
                            let first = outcome.certain.map_or(candidate, |c| c.min(candidate));
                            outcome.certain = Some(first);
                        }
                        Differ::Sometimes => {
                            outcome.open.insert(candidate);
                            if outcome.open.len() > OPEN {
                                outcome.open.pop_last();
                            }
                        }
                    }
                }
            }
        }
        outcome
    }

    /// Writes query positions, from 0 to the longest sequence length, to `borders`: those at which cells of the column
    /// of key `k` may change from allowed to denied or back.
    fn borders(&self, k: i64, borders: &mut Vec<i64>) {
        let last = self.lengths.last as i64;
        borders.clear();
        borders.extend([0, last]);
        borders.extend(&self.places.queries);
        borders.extend(self.places.distances.iter().map(|d| k + d));
        borders.extend(self.places.chunks.iter().flat_map(|c| [k - k % c, k - k % c + c]));
        borders.retain(|q| (0..=last).contains(q));
        borders.sort_unstable();
        borders.dedup();
    }
}

impl Places {
    fn add(&mut self, atom: &Places) {
        self.queries.extend(&atom.queries);
        self.keys.extend(&atom.keys);
        self.distances.extend(&atom.distances);
        self.chunks.extend(&atom.chunks);
        self.steps.extend(&atom.steps);
        if let Some(each) = &atom.each {
            // each position is a range
            self.keys.extend(each.start..=each.end);
            self.queries.extend(each.start..=each.end);
        }
    }

    /// Returns ranges `(start, end)` of keys below `last`, `end` excluded, that represent all other keys. `step` is the
    /// least common multiple of the steps of strides. `period` is the least common multiple of `step` and the sizes of
    /// chunks.
    fn key_ranges(&self, step: i64, period: i64, last: i64) -> Result<Vec<(i64, i64)>, String> {
        let critical = (self.queries.len() + 1).saturating_mul(self.distances.len() + 1);
        if critical > 8 * MAX_PLACES {
            return Err(format!(
                "the listed positions and windows of the masks give {critical} combinations, but at most {} can be compared",
                8 * MAX_PLACES
            ));
        }
        let reach = self.chunks.last().copied().unwrap_or(0) + step;
        let mut values: BTreeSet<i64> = self.keys.clone();
        for t in self.queries.iter().chain([&0]) {
            values.extend(self.distances.iter().chain([&0]).map(|d| t - d));
        }
        // every key passes a place before position 0, so a range begins at key 0 too
        let ranges = [0].into_iter().chain(values).map(|v| {
            let (start, end) = ((v - reach).clamp(0, last), (v + reach + period).clamp(0, last));
            (start, end - 1)
        });
        Ok(Runs::of(ranges).as_slice().iter().map(|(first, last)| (*first, last + 1)).collect())
    }
}
