//! Counts the positions of each batch row. An atom that lists positions, such as document lengths, must list this many.

use crate::Error;
use crate::facts::{Facts, RealTokens};
use crate::scalar::Side;
use crate::shape::Shape;
use std::fmt::Display;

/// Returns the first position after the last query of batch row `row`, at least 0.
pub(crate) fn queries_end(shape: &Shape, row: usize) -> u64 {
    (shape.query_offset(row) + shape.q_len() as i64).max(0) as u64
}

/// Returns the first position after the last query of batch row `row` that the facts do not mark as padding on the
/// right.
fn real_queries_end(shape: &Shape, facts: &Facts, row: usize) -> u64 {
    let lengths = facts.query_lengths.as_ref().filter(|_| facts.padding_side() == Side::Right);
    let count = lengths.map_or(shape.q_len(), |lengths| shape.q_len().min(lengths[row] as usize));
    (shape.query_offset(row) + count as i64).max(0) as u64
}

/// The number of positions of a batch row. If an atom lists positions, the list must have at least `real` and at most
/// `all` positions.
pub(crate) struct Extent {
    /// Number of positions without padding on the right.
    pub(crate) real: u64,
    /// Number of positions including padding on the right, in the longest batch row: batch rows of different lengths
    /// may share one list.
    pub(crate) all: u64,
}

impl Extent {
    /// Returns the number of positions of each batch row.
    pub(crate) fn rows(shape: &Shape, facts: &Facts) -> Vec<Self> {
        let batch = shape.batch_len();
        let keys_end = |row| facts.keys_end(row).map_or(shape.kv_len() as u64, |end| end.max(0) as u64);
        let keys: Vec<u64> = (0..batch).map(keys_end).collect();
        let queries = |row| queries_end(shape, row);
        let all = keys.iter().enumerate().map(|(row, keys)| (*keys).max(queries(row))).fold(0, u64::max);
        let real_keys = |row: usize| match &facts.real {
            _ if facts.place_keys() => keys[row],
            Some(RealTokens::Lengths { lengths, side: Side::Right }) => lengths[row],
            Some(RealTokens::Keys(keys)) => keys[row].covering_range().map_or(0, |h| u64::from(h.end)),
            _ => keys[row],
        };
        // queries after the last key are not padding
        let real = |row| match real_queries_end(shape, facts, row) {
            end if end > keys[row] => end,
            _ => real_keys(row),
        };
        (0..batch).map(|row| Extent { real: real(row), all }).collect()
    }

    /// Returns an error if `atom` lists `given` positions, and batch row `row` needs another number of positions.
    /// `what` names the list in the error.
    pub(crate) fn check(&self, atom: &dyn Display, what: &str, given: u64, row: usize) -> Result<(), Error> {
        let Extent { real, all } = *self;
        if (real..=all).contains(&given) {
            return Ok(());
        }
        let fix = match real < all {
            true => format!("the number must be from {real} (only the non-padding tokens) to {all}"),
            false if given < all => {
                format!("the number must be {all}, or `lengths` must mark the other positions as padding on the right")
            }
            false => format!("the number must be {all}"),
        };
        Err(Error::atom(atom, format!("{what} {given} of the {all} positions of batch row {row}: {fix}")))
    }
}
