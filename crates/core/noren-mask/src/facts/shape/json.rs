//! Serialization of a [`Shape`] as a JSON object with the numbers of queries, keys, batch rows and heads.

use super::Shape;
use crate::Error;
use crate::facts::json::{At, Json};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeStruct, Serializer};

impl Shape {
    /// Reads a shape from a JSON object with the keys `q_len`, `kv_len`, `query_offset`, `batch`, `heads` and
    /// `kv_heads`. `query_offset` is one number, or a list with one number per batch row. If `q_len` and `kv_len` are
    /// equal, its default is 0; if they differ, `query_offset` is required. The default of `batch` and `heads` is 1,
    /// and the default of `kv_heads` is the value of `heads`.
    ///
    /// ```
    /// use noren_mask::Shape;
    /// let shape = Shape::from_json(r#"{"batch": 4, "heads": 8, "kv_heads": 2, "q_len": 1, "kv_len": 101, "query_offset": 100}"#)?;
    /// assert_eq!(shape, Shape::cached(100, 1).batch(4).heads(8).kv_heads(2));
    /// let error = Shape::from_json(r#"{"q_len": 1, "kv_len": 101}"#).unwrap_err().to_string();
    /// assert!(error.starts_with("shape: q_len is 1 and kv_len is 101: give the position of the first query"), "{error}");
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error for text that is not JSON, unknown keys, values of the wrong kind, and the errors of
    /// [`check`](Self::check).
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let json = Json::parse(text, "JSON").map_err(of_shape)?;
        Self::read(&At::root(&json))
    }

    /// Returns the shape as one line of JSON, which [`from_json`](Self::from_json) reads.
    ///
    /// # Errors
    /// Returns [`Error::Shape`] if the shape cannot be written as JSON.
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
                    "q_len is {q_len} and kv_len is {kv_len}: give the position of the first query, query_offset {} \
                     if the queries are the last tokens of the sequence of keys, or 0 if the queries are another \
                     sequence",
                    kv_len as i64 - q_len as i64
                )));
            }
        };
        let kv_heads = optional("kv_heads")?.unwrap_or(heads);
        Ok(Shape { batch: optional("batch")?.unwrap_or(1), heads, kv_heads, q_len, kv_len, query_offsets })
    }
}

/// Converts an error of the JSON reader to [`Error::Shape`]. The name of the wrong field is kept, also for a shape
/// inside a larger JSON object.
fn of_shape(error: Error) -> Error {
    let Error::Fact { fact, problem } = error else { return error };
    match fact.strip_prefix("shape").map(|rest| rest.trim_start_matches('.')) {
        Some("") => Error::Shape(problem),
        place => Error::Shape(format!("{}: {problem}", place.unwrap_or(&fact))),
    }
}

/// Serializes as the JSON object that [`Shape::from_json`] reads.
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

/// Deserializes as [`Shape::from_json`] does.
impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        Shape::read(&At::root(&json)).map_err(D::Error::custom)
    }
}
