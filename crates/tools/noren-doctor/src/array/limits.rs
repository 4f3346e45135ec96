//! Limits on declared sizes, checked before memory is allocated.

use crate::array::align::Alignment;
use crate::read::context::Context;
use crate::read::kinds::Redaction;
use crate::read::values::Values;
use noren_mask::Error;

/// Maximum number of cells of a mask with the declared sizes. If the given array has more cells than this, its number
/// of cells is the maximum.
const MOST_CELLS: u128 = 1 << 28;

/// An array with one row of keys per batch row is expanded to a square mask. For such an array, the maximum
/// `MOST_CELLS` is raised to the number of keys squared, but at most to this number.
const MOST_JOINED: u128 = 1 << 30;

/// Maximum number of pairs (batch row, head), each of which is checked separately. If the given array has more cells
/// than this, its number of cells is the maximum.
const MOST_PAIRS: u128 = 1 << 16;

/// Maximum number of cells of a declared mask whose number of keys differs from that of the array. Cells of a larger
/// mask are not computed.
pub(crate) const MOST_BUILT: u128 = 1 << 24;

/// Returns an error if the declared numbers of batch rows and heads give too many pairs for an array of `len` cells.
/// `least` has the numbers `[batch rows, heads]` of the array. If a declared number is missing or smaller, the number
/// in `least` is used.
pub(crate) fn check_pairs(context: &Context, least: [usize; 2], len: usize) -> Result<(), Error> {
    let declared = [context.batch, context.heads];
    let [batch, heads] = [0, 1].map(|at| declared[at].unwrap_or(1).max(least[at]) as u128);
    let (pairs, most) = (batch * heads, MOST_PAIRS.max(len as u128));
    if pairs > most {
        let text = format!(
            "the declared sizes give {pairs} pairs of batch row and head; the maximum is {most}: check batch and heads"
        );
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Returns an error if the declared sizes give too many cells or too many pairs (batch row, head), if the array has another number of
/// batch rows than declared, or if a batch row, key or query of a declared redaction is outside of the mask.
pub(crate) fn check_sizes(mask: &Values, alignment: &Alignment, context: &Context) -> Result<(), Error> {
    check_pairs(context, [alignment.sizes.batch, alignment.dims[1]], mask.len())?;
    // A row of keys becomes a square mask, with as many queries as keys.
    let square = if alignment.keys_only { (alignment.dims[3] as u128).pow(2).min(MOST_JOINED) } else { 0 };
    let limit = MOST_CELLS.max(mask.len() as u128).max(square);
    for sizes in [Some(alignment.sizes), alignment.wanted].into_iter().flatten() {
        let all = [sizes.batch, alignment.dims[1], sizes.q_len, sizes.kv_len];
        let cells: u128 = all.iter().map(|&n| n as u128).product();
        if cells > limit {
            return Err(Error::invalid(format!(
                "the declared sizes give a mask of {all:?} (batch, heads, q_len, kv_len), which has {cells} cells; the maximum is {limit} for an array of shape {:?}: check batch, q_len, kv_len and past_len",
                mask.shape()
            )));
        }
    }
    if let Some(batch) = context.batch.filter(|batch| alignment.dims[0] > 1 && *batch != alignment.dims[0]) {
        let text = format!(
            "batch={batch} is declared, but the array of shape {:?} has {} batch rows: declare the batch size of the array",
            mask.shape(),
            alignment.dims[0]
        );
        return Err(Error::invalid(text));
    }
    let sizes = alignment.wanted.unwrap_or(alignment.sizes);
    let lists = [
        ("lengths", &context.lengths),
        ("kv_written", &context.written),
        ("past_len", &context.past),
        ("prefix_len", &context.prefix),
        ("prompt_len", &context.prompt),
    ];
    if let Some((name, list)) = lists.into_iter().find(|(_, list)| list.len() > 1 && list.len() != sizes.batch) {
        let text = format!("`{name}` has {} numbers, expected 1 or {} (batch rows)", list.len(), sizes.batch);
        return Err(Error::invalid(text));
    }
    let places = [
        ("batch", sizes.batch, &(|r: &Redaction| r.batch.clone()) as &dyn Fn(&Redaction) -> Vec<usize>),
        ("keys", sizes.kv_len, &|r: &Redaction| r.keys.clone()),
        ("queries", sizes.q_len, &|r: &Redaction| r.queries.clone()),
    ];
    for (name, count, of) in places {
        let beyond = context.redactions.iter().flat_map(of).find(|at| *at >= count);
        if let Some(at) = beyond {
            let text = format!(
                "a redaction has the index {at} in `{name}`, but the indices of `{name}` in this mask are smaller than {count}: give indices from 0 to {}",
                count - 1
            );
            return Err(Error::invalid(text));
        }
    }
    Ok(())
}
