//! The shape: the numbers of batch rows, heads, queries and keys, and the position of the first query in each batch
//! row.

use crate::read::json::At;
use crate::read::refusal::{Result, beyond, wrong};

/// The largest accepted length, position and query offset: 2^31 - 1.
pub(crate) const MOST: i64 = (u32::MAX / 2) as i64;

/// The maximum number of batch rows times the number of heads. A shape with a larger product is refused.
const MOST_HEADS: i64 = 1 << 16;

/// The sizes of a mask, and the position of the first query of each batch row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) q_len: i64,
    pub(crate) kv_len: i64,
    /// The position of the first query, one entry for each batch row.
    pub(crate) offsets: Vec<i64>,
}

impl Shape {
    pub(crate) fn read(at: &At<'_>) -> Result<Self> {
        let fields = at.object(&["batch", "heads", "kv_heads", "q_len", "kv_len", "query_offset"])?;
        let size = |key: &str, other: Option<i64>| match (fields.get(key), other) {
            (Some(at), _) => at.int(1, MOST),
            (None, Some(other)) => Ok(other),
            (None, None) => fields.need(key).and_then(|at| at.int(1, MOST)),
        };
        let (batch, heads) = (size("batch", Some(1))?, size("heads", Some(1))?);
        let (q_len, kv_len) = (size("q_len", None)?, size("kv_len", None)?);
        let kv_heads = size("kv_heads", Some(heads))?;
        if heads % kv_heads != 0 {
            return Err(wrong(
                format!("{}.kv_heads", at.path),
                kv_heads.to_string(),
                format!("a divisor of {heads}, the number of heads"),
            ));
        }
        if batch.saturating_mul(heads) > MOST_HEADS {
            return Err(beyond(
                format!("{batch} batch rows with {heads} heads each"),
                format!("the verifier checks at most {MOST_HEADS} pairs of batch row and head"),
            ));
        }
        let rows = batch as usize;
        let offsets = match fields.get("query_offset") {
            None if q_len == kv_len => vec![0; rows],
            None => return Err(fields.need("query_offset").err().unwrap_or_else(|| at.refuse("query_offset"))),
            Some(at) => match at.int(-MOST, MOST) {
                Ok(offset) => vec![offset; rows],
                Err(_) => {
                    let list = at.ints(-MOST, MOST)?;
                    if list.len() != 1 && list.len() != rows {
                        return Err(at.refuse(format!("one number, or one number for each of the {rows} batch rows")));
                    }
                    if list.len() == 1 { vec![list[0]; rows] } else { list }
                }
            },
        };
        Ok(Self { batch: rows, heads: heads as usize, kv_heads: kv_heads as usize, q_len, kv_len, offsets })
    }
}
