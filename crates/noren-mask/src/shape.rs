//! [`Shape`]: how many queries and keys there are, and where the queries stand.

use crate::Error;
use crate::json::{At, Json};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// The sizes a mask is bound to: batch rows, heads, queries and keys, and the position of the first query.
///
/// Query row `i` stands at position `i + query_offset`, key `j` at position `j`. When there are as many queries as keys
/// nothing needs to be said; otherwise the caller chooses, because alignment is never guessed:
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
    /// One entry for all batch rows, or one for each.
    query_offsets: Vec<i64>,
}

impl Shape {
    /// Lengths and offsets beyond this are refused: positions are 32-bit inside plans.
    pub const MAX_LEN: usize = (u32::MAX / 2) as usize;

    /// More pairs of batch row and head than this are refused: a plan lists its pattern for each.
    const MAX_PAIRS: usize = 1 << 22;

    /// `q_len` queries over `kv_len` keys, the first query at position `query_offset`; one batch row, one head.
    pub fn new(q_len: usize, kv_len: usize, query_offset: i64) -> Self {
        Shape { batch: 1, heads: 1, kv_heads: 1, q_len, kv_len, query_offsets: vec![query_offset] }
    }

    /// Self-attention over `len` tokens.
    pub fn square(len: usize) -> Self {
        Self::new(len, len, 0)
    }

    /// `new` tokens after `past` cached ones: `new` queries over `past + new` keys, the first at position `past`.
    pub fn cached(past: usize, new: usize) -> Self {
        Self::new(new, past.saturating_add(new), past.min(i64::MAX as usize) as i64)
    }

    /// Cross-attention: `q_len` queries over `kv_len` keys of another sequence, both counted from 0.
    pub fn cross(q_len: usize, kv_len: usize) -> Self {
        Self::new(q_len, kv_len, 0)
    }

    /// The same with `batch` rows.
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// The same with `heads` query heads and as many key-value heads.
    pub fn heads(mut self, heads: usize) -> Self {
        self.heads = heads;
        self.kv_heads = heads;
        self
    }

    /// The same with `kv_heads` key-value heads, each shared by `heads / kv_heads` query heads (GQA, MQA).
    pub fn kv_heads(mut self, kv_heads: usize) -> Self {
        self.kv_heads = kv_heads;
        self
    }

    /// The same with the first query of batch row `b` at position `offsets[b]`.
    pub fn query_offsets(mut self, offsets: impl Into<Vec<i64>>) -> Self {
        self.query_offsets = offsets.into();
        self
    }

    /// Number of batch rows.
    pub fn batch_len(&self) -> usize {
        self.batch
    }

    /// Number of query heads.
    pub fn head_count(&self) -> usize {
        self.heads
    }

    /// Number of key-value heads.
    pub fn kv_head_count(&self) -> usize {
        self.kv_heads
    }

    /// The key-value head that query head `head` reads.
    pub fn kv_head(&self, head: usize) -> usize {
        head / (self.heads / self.kv_heads)
    }

    /// Number of query rows.
    pub fn q_len(&self) -> usize {
        self.q_len
    }

    /// Number of keys.
    pub fn kv_len(&self) -> usize {
        self.kv_len
    }

    /// Position of the first query of batch row `row`.
    pub fn query_offset(&self, row: usize) -> i64 {
        if self.query_offsets.len() == 1 { self.query_offsets[0] } else { self.query_offsets[row] }
    }

    /// The same with other lengths, the first query at position 0.
    pub(crate) fn with_lens(&self, q_len: usize, kv_len: usize) -> Self {
        Shape { q_len, kv_len, query_offsets: vec![0], ..self.clone() }
    }

    /// All cells: `batch * heads * q_len * kv_len`.
    pub fn cells(&self) -> u128 {
        [self.batch, self.heads, self.q_len, self.kv_len].iter().map(|&n| n as u128).product()
    }

    /// Refuses zero sizes, lengths above [`Shape::MAX_LEN`], heads that do not divide and a wrong number of offsets.
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
                "{} query heads over {} key-value heads: the first must be a multiple of the second",
                self.heads, self.kv_heads
            ));
        }
        if self.query_offsets.len() != 1 && self.query_offsets.len() != self.batch {
            return refuse(format!(
                "query_offset has {} entries but the batch is {}: give one, or one per batch row",
                self.query_offsets.len(),
                self.batch
            ));
        }
        let limit = Self::MAX_LEN as i64;
        match self.query_offsets.iter().find(|o| !(-limit..=limit).contains(*o)) {
            Some(offset) => refuse(format!("query_offset {offset} is beyond {limit} positions")),
            None => Ok(()),
        }
    }
}

impl Shape {
    /// Reads a shape from a JSON object: `q_len`, `kv_len`, and, when they differ, `query_offset`: one number, or one for
    /// each batch row. `batch` and `heads` are 1 when left out, `kv_heads` as many as `heads`.
    ///
    /// ```
    /// use noren_mask::Shape;
    /// let shape = Shape::from_json(r#"{"batch": 4, "heads": 8, "kv_heads": 2, "q_len": 1, "kv_len": 101, "query_offset": 100}"#)?;
    /// assert_eq!(shape, Shape::cached(100, 1).batch(4).heads(8).kv_heads(2));
    /// let error = Shape::from_json(r#"{"q_len": 1, "kv_len": 101}"#).unwrap_err().to_string();
    /// assert!(error.starts_with("shape: q_len is 1 and kv_len is 101: say where the first query stands"), "{error}");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Text that is not JSON, unknown keys, values of the wrong kind, and what [`check`](Self::check) refuses.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let json = Json::parse(text, "JSON").map_err(of_shape)?;
        Self::read(&At::root(&json))
    }

    /// The shape as one line of JSON, which [`from_json`](Self::from_json) reads.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|e| Error::Shape(e.to_string()))
    }

    pub(crate) fn read(at: &At<'_>) -> Result<Self, Error> {
        let shape = Self::read_fields(at).map_err(of_shape)?;
        shape.check()?;
        Ok(shape)
    }

    fn read_fields(at: &At<'_>) -> Result<Self, Error> {
        at.only(&["batch", "heads", "kv_heads", "q_len", "kv_len", "query_offset"])?;
        let count = |at: At<'_>| at.whole("a count", 1, Self::MAX_LEN as i64).map(|n| n as usize);
        let optional = |key| at.field(key).map(count).transpose();
        let (q_len, kv_len) = (count(at.needed("q_len")?)?, count(at.needed("kv_len")?)?);
        let heads = optional("heads")?.unwrap_or(1);
        let position = |at: At<'_>| at.whole("a position", -(Self::MAX_LEN as i64), Self::MAX_LEN as i64);
        let query_offsets = match at.field("query_offset") {
            Some(offsets @ At { value: Json::List(_), .. }) => {
                offsets.list("positions, one per batch row", position)?
            }
            Some(offset) => vec![position(offset)?],
            None if q_len == kv_len => vec![0],
            None => {
                return Err(Error::Shape(format!(
                    "q_len is {q_len} and kv_len is {kv_len}: say where the first query stands, query_offset {} when the \
                     queries are the last of the keys, 0 when they are another sequence",
                    kv_len as i64 - q_len as i64
                )));
            }
        };
        let kv_heads = optional("kv_heads")?.unwrap_or(heads);
        Ok(Shape { batch: optional("batch")?.unwrap_or(1), heads, kv_heads, q_len, kv_len, query_offsets })
    }
}

/// An error of the reader, said of the shape; its place may be within a larger object.
fn of_shape(error: Error) -> Error {
    let Error::Fact { fact, problem } = error else { return error };
    match fact.strip_prefix("shape").map(|rest| rest.trim_start_matches('.')) {
        Some("") => Error::Shape(problem),
        place => Error::Shape(format!("{}: {problem}", place.unwrap_or(&fact))),
    }
}

/// As [`Shape::from_json`] reads it.
impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Shape", 6)?;
        object.serialize_field("batch", &self.batch)?;
        object.serialize_field("heads", &self.heads)?;
        object.serialize_field("kv_heads", &self.kv_heads)?;
        object.serialize_field("q_len", &self.q_len)?;
        object.serialize_field("kv_len", &self.kv_len)?;
        match self.query_offsets[..] {
            [offset] => object.serialize_field("query_offset", &offset)?,
            _ => object.serialize_field("query_offset", &self.query_offsets)?,
        }
        object.end()
    }
}

/// As [`Shape::from_json`] reads it.
impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        Shape::read(&At::root(&json)).map_err(D::Error::custom)
    }
}
