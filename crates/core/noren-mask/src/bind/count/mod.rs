//! Exact counts by arithmetic: allowed cells and empty rows, without a visit of every cell.
//!
//! Query rows are split into zones. In a zone, each atom that depends on content (documents, chunks, sets of keys, ...)
//! allows the same keys for all rows. Each other atom (bands, strides) depends only on the distance `key position -
//! query position`. So the zone consists of a few rectangles, each with a set of allowed distances: intervals of
//! distances, with residues for strides. The number of cells with distance `d` in a rectangle is a function of `d` with
//! the form of a trapezoid. The number of allowed cells is a sum of this function over multiples of a number in an
//! interval, which is an arithmetic series.
//!
//! The cost is proportional to the number of rectangles of all zones. Atoms that decide single cells (random cells,
//! functions, dense arrays) have no rectangles. Their cells are computed as bits and counted, but only in spans of the
//! plan that have both allowed and denied cells.

mod distances;
mod rectangle;
mod segments;

use crate::Error;
use crate::bind::Resolved;
use crate::bind::budget::Meter;
use crate::mask::pattern::Pattern;
use crate::sets::frame::Frame;
use distances::Residues;
use rectangle::{Readers, Rectangle};
use segments::{Segment, Zone, Zones};
use std::collections::HashMap;
use std::ops::Range;

/// Exact counts of the cells of one batch row and head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cells {
    /// Number of allowed cells.
    pub(crate) allowed: u64,
    /// Number of query rows without an allowed key.
    pub(crate) empty_rows: u64,
}

/// Counts the cells of a pattern (the mask of one batch row and head, with its map from indices to positions).
///
/// # Errors
/// Returns an error if the budget is spent or its watch function cancels.
pub(crate) fn count(resolved: &Resolved, meter: &mut Meter<'_>) -> Result<Cells, Error> {
    count_rows(resolved, 0..resolved.frame.q_len, meter)
}

/// Counts the cells of some query rows of a pattern, as [`count`] does.
///
/// # Errors
/// Returns the errors of [`count`].
pub(crate) fn count_rows(resolved: &Resolved, rows: Range<u32>, meter: &mut Meter<'_>) -> Result<Cells, Error> {
    let Resolved { frame, pattern } = resolved;
    let mut counting = Counting { frame, gaps: HashMap::new(), cells: Cells::default() };
    let mut zones = Zones::new(pattern);
    let mut row = rows.start;
    while row < rows.end {
        let Zone { segments, end } = zones.at(frame, row, (0, frame.kv_len), meter)?;
        let end = end.clamp(row + 1, rows.end);
        counting.zone(row, end, &segments, meter)?;
        meter.done(u64::from(end - row));
        row = end;
    }
    Ok(counting.cells)
}

struct Counting<'a> {
    frame: &'a Frame,
    /// The results of [`Residues::gap`] that are already computed, by the residues.
    gaps: HashMap<Residues, Option<i64>>,
    cells: Cells,
}

impl Counting<'_> {
    fn zone(&mut self, row: u32, end: u32, segments: &[Segment], meter: &mut Meter<'_>) -> Result<(), Error> {
        meter.step(segments.len() as u64 + 1)?;
        let mut every = false;
        for segment in segments {
            self.cells.allowed += match segment.distances.is_always() {
                true => {
                    every = true;
                    u64::from(segment.end - segment.start) * u64::from(end - row)
                }
                false => {
                    meter.step(4 * segment.distances.size() as u64)?;
                    let mut count = 0;
                    self.rectangles(row, end, segment, &mut |rectangle| count += rectangle.count(&segment.distances));
                    count
                }
            };
        }
        match every {
            true => Ok(()),
            false => self.empty(row, end, segments, meter),
        }
    }

    /// Calls `each` with the rectangles of a segment (consecutive keys with one set of allowed distances) for the query
    /// rows `row..end`. Rectangles are in positions of queries and keys. The segment has one rectangle for each run of
    /// keys with consecutive positions.
    fn rectangles(&self, row: u32, end: u32, segment: &Segment, each: &mut impl FnMut(Rectangle)) {
        let queries = self.frame.query(row)..self.frame.query(end);
        self.frame.pieces((segment.start, segment.end), &mut |first, last, shift| {
            let keys = i64::from(first) + shift..i64::from(last) + shift;
            each(Rectangle { queries: queries.clone(), keys });
        });
    }

    /// Adds the number of query rows of `row..end` that read no key to the count of empty rows. The rows are in one
    /// zone, whose keys are those of `segments`.
    fn empty(&mut self, row: u32, end: u32, segments: &[Segment], meter: &mut Meter<'_>) -> Result<(), Error> {
        let mut readers = Readers::default();
        let mut gaps = std::mem::take(&mut self.gaps);
        let mut gap = |residues: &Residues| match gaps.get(residues) {
            Some(gap) => *gap,
            None => *gaps.entry(residues.clone()).or_insert(residues.gap()),
        };
        for segment in segments {
            self.rectangles(row, end, segment, &mut |rectangle| {
                rectangle.readers(&segment.distances, &mut gap, &mut readers);
            });
        }
        self.gaps = gaps;
        let (rest, unclear) = readers.open(end - row);
        self.cells.empty_rows += rest.count();
        for place in unclear.iter().flat_map(|run| run.start..run.end) {
            if self.reads(row + place, segments, meter)? {
                self.cells.empty_rows -= 1;
            }
        }
        Ok(())
    }

    fn reads(&self, row: u32, segments: &[Segment], meter: &mut Meter<'_>) -> Result<bool, Error> {
        let mut found = Ok(false);
        for segment in segments {
            self.rectangles(row, row + 1, segment, &mut |rectangle| {
                if let Ok(false) = found {
                    found = rectangle.reads(self.frame.query(row), &segment.distances, meter);
                }
            });
            if !matches!(found, Ok(false)) {
                return found;
            }
        }
        Ok(false)
    }
}

/// The form in which the atoms of a pattern (the mask of one batch row and head) give their allowed cells. The variants
/// are ordered by cost, the cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Listed {
    /// No atom has to be evaluated cell by cell. All atoms are ranges of keys, ranges of distances, or short lists of
    /// positions.
    No,
    /// At least one atom gives its cells as words of 64 bits, one bit for each of 64 consecutive keys.
    Words,
    /// At least one atom, such as a function, has to be called once for each cell.
    Cells,
}

/// Returns the most costly form in which an atom of `pattern` (the mask of one batch row and head) gives its cells.
pub(crate) fn listed(pattern: &Pattern) -> Listed {
    let of_leaf = |leaf: &Pattern| match leaf {
        leaf if leaf.looks_at_every_key() => Listed::Cells,
        Pattern::Array(array, slice) if array.0.slice(*slice).is_dense() => Listed::Words,
        Pattern::Selected(_, part) => listed(part),
        _ => Listed::No,
    };
    pattern.leaves().into_iter().map(of_leaf).max().unwrap_or(Listed::No)
}
