//! [`Shape`]: the numbers of batch rows, heads, queries and keys, and the positions of the queries.

#[cfg(feature = "serde")]
mod json;

use crate::Error;
use crate::sets::scalar::Offset;

/// The shape of a bound mask: numbers of batch rows, heads, queries and keys, and the position of the first query.
///
/// Query row `i` has position `i + query_offset`, and key `j` has position `j` unless the facts give positions of keys.
/// The caller always chooses the alignment of queries and keys; no constructor guesses it:
///
/// ```
/// use noren_mask::Shape;
/// let training = Shape::square(128).batch(4).heads(8).kv_heads(2);
/// let decoding = Shape::cached(100, 1);   // 100 keys in the cache, one new token: its position is 100
/// let cross    = Shape::cross(9, 30);     // decoder queries over encoder keys, both counted from 0
/// assert_eq!((decoding.q_len(), decoding.kv_len(), decoding.query_offset(0)), (1, 101, 100));
/// assert_eq!(cross.query_offset(0), 0);
/// # let _ = training;
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    q_len: usize,
    kv_len: usize,
    /// The position of the first query in each batch row. A list with a single entry applies to all batch rows.
    query_offsets: Vec<i64>,
}

impl Shape {
    /// The maximum number of queries, number of keys and query offset. The limit exists because plans store positions
    /// as 32-bit numbers.
    pub const MAX_LEN: usize = (u32::MAX / 2) as usize;

    /// The maximum number of pairs of batch row and head. The limit exists because a plan stores one number for each
    /// pair.
    const MAX_PAIRS: usize = 1 << 22;

    /// Returns a shape with `q_len` queries, `kv_len` keys, one batch row and one head; the first query has position
    /// `query_offset`.
    pub fn new(q_len: usize, kv_len: usize, query_offset: impl Offset) -> Self {
        Shape { batch: 1, heads: 1, kv_heads: 1, q_len, kv_len, query_offsets: vec![query_offset.offset()] }
    }

    /// Returns the shape of self-attention over `len` tokens.
    pub fn square(len: usize) -> Self {
        Self::new(len, len, 0)
    }

    /// Returns the shape of `new` tokens after `past` cached tokens: `new` queries and `past + new` keys; the first query has
    /// position `past`.
    pub fn cached(past: usize, new: usize) -> Self {
        Self::new(new, past.saturating_add(new), past)
    }

    /// Returns the shape of cross-attention: `q_len` queries and `kv_len` keys of another sequence, both with positions from 0.
    pub fn cross(q_len: usize, kv_len: usize) -> Self {
        Self::new(q_len, kv_len, 0)
    }

    /// Sets the number of batch rows [default: 1].
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Sets the number of query heads and of key-value heads [default: 1].
    pub fn heads(mut self, heads: usize) -> Self {
        self.heads = heads;
        self.kv_heads = heads;
        self
    }

    /// Sets the number of key-value heads [default: the number of query heads]. Each key-value head is shared by
    /// `heads / kv_heads` query heads (GQA, MQA).
    pub fn kv_heads(mut self, kv_heads: usize) -> Self {
        self.kv_heads = kv_heads;
        self
    }

    /// Sets the position of the first query in batch row `b` to `offsets[b]`. A list with a single entry applies to all
    /// batch rows.
    pub fn query_offsets(mut self, offsets: impl IntoIterator<Item = impl Offset>) -> Self {
        self.query_offsets = offsets.into_iter().map(Offset::offset).collect();
        self
    }

    /// Returns the number of batch rows.
    pub fn batch_len(&self) -> usize {
        self.batch
    }

    /// Returns the number of query heads.
    pub fn head_count(&self) -> usize {
        self.heads
    }

    /// Returns the number of key-value heads.
    pub fn kv_head_count(&self) -> usize {
        self.kv_heads
    }

    /// Returns the index of the key-value head whose keys and values the query head with index `head` reads.
    pub fn kv_head(&self, head: usize) -> usize {
        head / (self.heads / self.kv_heads)
    }

    /// Returns the number of query rows.
    pub fn q_len(&self) -> usize {
        self.q_len
    }

    /// Returns the number of keys.
    pub fn kv_len(&self) -> usize {
        self.kv_len
    }

    /// Returns the position of the first query of batch row `row`.
    pub fn query_offset(&self, row: usize) -> i64 {
        if self.query_offsets.len() == 1 { self.query_offsets[0] } else { self.query_offsets[row] }
    }

    /// Returns all pairs (batch row, head), in the order of batch rows.
    pub(crate) fn batch_heads(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let heads = self.heads;
        (0..self.batch).flat_map(move |batch| (0..heads).map(move |head| (batch, head)))
    }

    /// Returns a copy of the shape with `q_len` queries, `kv_len` keys, and the first query at position 0.
    pub(crate) fn with_lens(&self, q_len: usize, kv_len: usize) -> Self {
        Shape { q_len, kv_len, query_offsets: vec![0], ..self.clone() }
    }

    /// Returns the number of cells: `batch * heads * q_len * kv_len`.
    pub fn cells(&self) -> u128 {
        [self.batch, self.heads, self.q_len, self.kv_len].iter().map(|&n| n as u128).product()
    }

    /// Checks the shape.
    ///
    /// # Errors
    /// Returns an error if a size is 0 or above [`Shape::MAX_LEN`], if `heads` is not a multiple of `kv_heads`, if `batch * heads`
    /// is above 4,194,304, or if the number or value of a query offset is invalid.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Shape(text));
        for (name, value) in [
            ("batch", self.batch),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("q_len", self.q_len),
            ("kv_len", self.kv_len),
        ] {
            if value == 0 {
                return refuse(format!("{name} is 0: give at least 1"));
            }
            if value > Self::MAX_LEN {
                return refuse(format!("{name} is {value}: at most {} is supported", Self::MAX_LEN));
            }
        }
        let pairs = self.batch as u128 * self.heads as u128;
        if pairs > Self::MAX_PAIRS as u128 {
            return refuse(format!(
                "batch {} times heads {} is {pairs}: at most {} is supported",
                self.batch,
                self.heads,
                Self::MAX_PAIRS
            ));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return refuse(format!(
                "there are {} query heads and {} key-value heads: the number of query heads must be a multiple of the number of key-value heads",
                self.heads, self.kv_heads
            ));
        }
        if self.query_offsets.len() != 1 && self.query_offsets.len() != self.batch {
            return refuse(format!(
                "query_offset has {} entries but the batch has {} rows: give one entry, or one per batch row",
                self.query_offsets.len(),
                self.batch
            ));
        }
        let limit = Self::MAX_LEN as i64;
        match self.query_offsets.iter().find(|o| !(-limit..=limit).contains(*o)) {
            Some(offset) => refuse(format!("query_offset is {offset}: its absolute value can be at most {limit}")),
            None => Ok(()),
        }
    }
}
