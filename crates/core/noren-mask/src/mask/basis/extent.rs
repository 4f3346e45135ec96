//! The number of positions of each batch row. An atom that has a list for positions, such as document lengths, is
//! checked against this number.

use crate::Error;
use crate::facts::shape::Shape;
use crate::facts::{Facts, RealTokens};
use crate::sets::scalar::Side;
use std::fmt::Display;

/// Returns the first position after the last query of batch row `row`, at least 0.
pub(crate) fn queries_end(shape: &Shape, row: usize) -> usize {
    (shape.query_offset(row) + shape.q_len() as i64).max(0) as usize
}

/// Returns the first position after the last non-padding query of batch row `row`, at least 0. Only padding on the
/// right is considered.
fn real_queries_end(shape: &Shape, facts: &Facts, row: usize) -> usize {
    let lengths = facts.query_lengths.as_ref().filter(|_| facts.padding_side() == Side::Right);
    let count = lengths.map_or(shape.q_len(), |lengths| shape.q_len().min(lengths[row]));
    (shape.query_offset(row) + count as i64).max(0) as usize
}

/// The accepted numbers of positions that a list of an atom may cover in one batch row: at least `real`, the number
/// without padding on the right, and at most `all`, the number with this padding.
pub(crate) struct Extent {
    /// Number of positions without padding on the right.
    pub(crate) real: usize,
    /// Number of positions of the longest batch row, including padding on the right. The longest batch row is the limit
    /// because one list, such as document lengths, may apply to batch rows of different lengths.
    pub(crate) all: usize,
}

impl Extent {
    /// Returns the accepted numbers of positions of each batch row.
    pub(crate) fn rows(shape: &Shape, facts: &Facts) -> Vec<Self> {
        let batch = shape.batch_len();
        let keys_end = |row| facts.keys_end(row).map_or(shape.kv_len(), |end| end.max(0) as usize);
        let keys: Vec<usize> = (0..batch).map(keys_end).collect();
        let queries = |row| queries_end(shape, row);
        let all = keys.iter().enumerate().map(|(row, keys)| (*keys).max(queries(row))).fold(0, usize::max);
        let real_keys = |row: usize| match &facts.real {
            _ if facts.place_keys() => keys[row],
            Some(RealTokens::Lengths { lengths, side: Side::Right }) => lengths[row],
            Some(RealTokens::Keys(keys)) => keys[row].covering_range().map_or(0, |h| h.end as usize),
            _ => keys[row],
        };
        // queries after the last key are not padding
        let real = |row| match real_queries_end(shape, facts, row) {
            end if end > keys[row] => end,
            _ => real_keys(row),
        };
        (0..batch).map(|row| Extent { real: real(row), all }).collect()
    }

    /// Returns an error unless `given`, the number of positions that a list of `atom` covers, is from `real` to `all`.
    /// `what` names the list and `row` the batch row in the error.
    pub(crate) fn check(&self, atom: &dyn Display, what: &str, given: usize, row: usize) -> Result<(), Error> {
        let Extent { real, all } = *self;
        if (real..=all).contains(&given) {
            return Ok(());
        }
        let fix = match real < all {
            true => format!("cover from {real} (only the non-padding tokens) to {all} positions"),
            false if given < all => {
                format!("cover exactly {all} positions, or mark the others as padding on the right with `lengths`")
            }
            false => {
                let fix =
                    format!("cover exactly {all} positions, by shortening the list or the data from which it was made");
                let problem =
                    format!("the {what} cover {given} positions, but batch row {row} has {all} positions: {fix}");
                return Err(Error::atom(atom, problem));
            }
        };
        Err(Error::atom(atom, format!("the {what} cover {given} of the {all} positions of batch row {row}: {fix}")))
    }
}
