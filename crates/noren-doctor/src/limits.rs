//! Limits on declared sizes, checked before memory is allocated.

use super::align::Alignment;
use super::context::Context;
use super::kinds::Redaction;
use super::values::Values;
use noren_mask::Error;

/// Maximum number of cells of a mask with the declared sizes. A given array that has more cells raises this limit to its own number of cells.
const MOST_CELLS: u128 = 1 << 28;

/// For an array with one row of keys per batch row, the limit `MOST_CELLS` is raised to the number of keys squared (the
/// cells of a square mask), but at most to this number.
const MOST_JOINED: u128 = 1 << 30;

/// Maximum number of pairs of batch row and head, because each pair is checked separately. A given array with more cells raises this limit to its
/// number of cells.
const MOST_PAIRS: u128 = 1 << 16;

/// Maximum number of cells of a declared mask that is computed although the array has another number of keys.
pub(super) const MOST_BUILT: u128 = 1 << 24;

/// Returns an error if the declared numbers of batch rows and heads are too large for an array of `len` cells. `least`
/// is the numbers `[batch rows, heads]` of the array. A smaller or missing declared number is replaced by the number in
/// `least`.
pub(super) fn check_pairs(context: &Context, least: [usize; 2], len: usize) -> Result<(), Error> {
    let declared = [context.batch, context.heads];
    let [batch, heads] = [0, 1].map(|at| declared[at].unwrap_or(1).max(least[at]) as u128);
    let (pairs, most) = (batch * heads, MOST_PAIRS.max(len as u128));
    if pairs > most {
        let text = format!(
            "the declared sizes give {pairs} pairs of batch row and head; the maximum is {most}: check batch and heads"
        );
        return Err(Error::fact("context", text));
    }
    Ok(())
}

/// Returns an error if the declared sizes give too many cells or too many pairs of batch row and head, or if a declared redaction names a batch row,
/// key or query outside of the mask.
pub(super) fn check_sizes(mask: &Values, alignment: &Alignment, context: &Context) -> Result<(), Error> {
    check_pairs(context, [alignment.sizes.batch, alignment.dims[1]], mask.len())?;
    // A row of keys becomes a square mask, with as many queries as keys.
    let square = if alignment.keys_only { (alignment.dims[3] as u128).pow(2).min(MOST_JOINED) } else { 0 };
    let limit = MOST_CELLS.max(mask.len() as u128).max(square);
    for sizes in [Some(alignment.sizes), alignment.wanted].into_iter().flatten() {
        let all = [sizes.batch, alignment.dims[1], sizes.q_len, sizes.kv_len];
        let cells: u128 = all.iter().map(|&n| n as u128).product();
        if cells > limit {
            return Err(Error::fact(
                "context",
                format!(
                    "the declared sizes give a mask of {all:?} (batch, heads, q_len, kv_len), which has {cells} cells; the maximum is {limit} for an array of shape {:?}: check batch, q_len, kv_len and past_len",
                    mask.shape()
                ),
            ));
        }
    }
    let sizes = alignment.wanted.unwrap_or(alignment.sizes);
    let places = [
        ("batch", sizes.batch, &(|r: &Redaction| r.batch.clone()) as &dyn Fn(&Redaction) -> Vec<usize>),
        ("keys", sizes.kv_len, &|r: &Redaction| r.keys.clone()),
        ("queries", sizes.q_len, &|r: &Redaction| r.queries.clone()),
    ];
    for (name, count, of) in places {
        let beyond = context.redactions.iter().flat_map(of).find(|at| *at >= count);
        if let Some(at) = beyond {
            let text = format!(
                "`{name}` holds the index {at}, but the mask has only {count} indices for this list: give indices from 0 to {}",
                count - 1
            );
            return Err(Error::fact("context: redactions", text));
        }
    }
    Ok(())
}
