//! Bounds on declared sizes, checked before anything is allocated.

use super::align::Alignment;
use super::context::{Context, Redaction};
use super::values::Values;
use noren_mask::Error;

/// Cells that a diagnosis may hold beyond those of the array itself.
const MOST_CELLS: u128 = 1 << 30;

/// Pairs of batch row and head that a diagnosis may hold beyond those of the array itself: each is looked at by itself.
const MOST_PAIRS: u128 = 1 << 16;

/// Refuses sizes whose cells would not fit memory, and redactions of cells that do not exist, before anything is allocated.
pub(super) fn check_sizes(mask: &Values, alignment: &Alignment, context: &Context) -> Result<(), Error> {
    let limit = MOST_CELLS.max(mask.len() as u128);
    for sizes in [Some(alignment.sizes), alignment.wanted].into_iter().flatten() {
        let all = [sizes.batch, alignment.dims[1], sizes.q_len, sizes.kv_len];
        let cells: u128 = all.iter().map(|&n| n as u128).product();
        let (pairs, most) = (sizes.batch as u128 * alignment.dims[1] as u128, MOST_PAIRS.max(mask.len() as u128));
        if pairs > most {
            let text = format!(
                "the declared sizes make {pairs} pairs of batch row and head; at most {most} are held: check batch and heads"
            );
            return Err(Error::fact("context", text));
        }
        if cells > limit {
            return Err(Error::fact(
                "context",
                format!(
                    "the declared sizes make a mask of {all:?} (batch, heads, q_len, kv_len), which has {cells} cells; at most {limit} are \
                     held beside an array of shape {:?}: check batch, q_len, kv_len and past_len",
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
            let text = format!("`{name}` holds {at}, but the mask has {count} of them: give 0 to {}", count - 1);
            return Err(Error::fact("context: redactions", text));
        }
    }
    Ok(())
}
