//! Counts of the cells and empty rows of a rectangle in which the cells depend only on the distance.

use super::distances::{Distances, Residues};
use crate::Error;
use crate::bind::budget::Meter;
use crate::sets::interval::IntervalSet;
use std::ops::Range;

/// A rectangle of cells: the queries at positions `queries` and the keys at positions `keys`. Both ranges have at least
/// one position.
#[derive(Clone, Debug)]
pub(super) struct Rectangle {
    pub(super) queries: Range<i64>,
    pub(super) keys: Range<i64>,
}

impl Rectangle {
    /// Returns the number of cells whose distance is in `distances`.
    pub(super) fn count(&self, distances: &Distances) -> u64 {
        let Rectangle { queries, keys } = self;
        if distances.is_always() {
            return (queries.end - queries.start) as u64 * (keys.end - keys.start) as u64;
        }
        let (least, most) = (keys.start - queries.end + 1, keys.end - queries.start);
        let mut count = 0i128;
        for (from, to, residues) in distances.parts() {
            let (from, to) = (from.max(least), to.min(most));
            if from < to {
                let terms = residues.terms().iter();
                count += terms
                    .map(|&(modulus, factor)| i128::from(factor) * self.multiples(modulus, from, to))
                    .sum::<i128>();
            }
        }
        count as u64
    }

    /// Returns the number of cells of the rectangle whose distance is a multiple of `modulus` in `from..to`.
    ///
    /// The number of cells with distance `d` is a function of `d` that rises, stays equal and falls again, as in a
    /// trapezoid. The function is the sum of four functions, one for each corner of the rectangle. Each of them is 0 up
    /// to the distance of its corner, and then plus or minus (`d` - distance of the corner).
    fn multiples(&self, modulus: i64, from: i64, to: i64) -> i128 {
        let Rectangle { queries, keys } = self;
        let ramp = |corner: i64| ramp_sum(corner, modulus, to) - ramp_sum(corner, modulus, from);
        ramp(keys.start - queries.end) - ramp(keys.start - queries.start) - ramp(keys.end - queries.end)
            + ramp(keys.end - queries.start)
    }

    /// Adds query rows to `out`, numbered from 0 at the first row of the rectangle. Rows that certainly read a key at
    /// one of the `distances` go to `out.reading`, and rows that may read a key go to `out.unclear`. `gap` returns the
    /// result of [`Residues::gap`].
    pub(super) fn readers(
        &self,
        distances: &Distances,
        gap: &mut impl FnMut(&Residues) -> Option<i64>,
        out: &mut Readers,
    ) {
        let Rectangle { queries, keys } = self;
        let push = |into: &mut Vec<Range<u32>>, from: i64, to: i64| {
            let (from, to) = (from.max(queries.start), to.min(queries.end));
            if from < to {
                into.push((from - queries.start) as u32..(to - queries.start) as u32);
            }
        };
        for (from, to, residues) in distances.parts() {
            // row q has the distances of from..to that are in keys.start - q..keys.end - q
            let gap = if *residues == Residues::Always { Some(1) } else { gap(residues) };
            if let Some(gap) = gap.filter(|gap| to - from >= *gap && keys.end - keys.start >= *gap) {
                push(&mut out.reading, keys.start + gap - to, keys.end - from - gap + 1);
            }
            if *residues != Residues::Always {
                push(&mut out.unclear, keys.start + 1 - to, keys.end - from);
            }
        }
    }

    /// Returns whether the query at position `query` reads a key at one of the `distances`.
    pub(super) fn reads(&self, query: i64, distances: &Distances, meter: &mut Meter<'_>) -> Result<bool, Error> {
        for (from, to, residues) in distances.parts() {
            let (from, to) = (from.max(self.keys.start - query), to.min(self.keys.end - query));
            let step = residues.common().max(1);
            let mut distance = from + (-from).rem_euclid(step);
            while distance < to {
                meter.step(1)?;
                if residues.holds(distance) {
                    return Ok(true);
                }
                distance += step;
            }
        }
        Ok(false)
    }
}

/// Some query rows of a rectangle of cells. The rows are numbered from 0 at the first row of the rectangle.
#[derive(Default)]
pub(super) struct Readers {
    /// The query rows that certainly read a key.
    pub(super) reading: Vec<Range<u32>>,
    /// The query rows that may read a key.
    pub(super) unclear: Vec<Range<u32>>,
}

impl Readers {
    /// Returns two sets of the query rows `0..rows`: the rows outside `reading`, and the rows outside `reading` that
    /// are in `unclear`. Rows that are only in the first set read no key.
    pub(super) fn open(self, rows: u32) -> (IntervalSet, IntervalSet) {
        let reading: IntervalSet = self.reading.into_iter().collect();
        let rest = reading.complement(rows);
        let unclear: IntervalSet = self.unclear.into_iter().collect();
        let unclear = rest.intersect(&unclear);
        (rest, unclear)
    }
}

/// Returns the sum of `d - corner` over all distances `d` with `corner < d < end` that are multiples of `modulus`.
fn ramp_sum(corner: i64, modulus: i64, end: i64) -> i128 {
    let first = corner.div_euclid(modulus) + 1;
    let last = (end - 1).div_euclid(modulus);
    if last < first {
        return 0;
    }
    let (first, last) = (i128::from(first), i128::from(last));
    let n = last - first + 1;
    i128::from(modulus) * ((first + last) * n / 2) - i128::from(corner) * n
}
