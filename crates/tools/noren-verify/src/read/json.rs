//! The JSON of certificates: all numbers must be whole numbers, and no key may occur twice in an object. [`At`] is a
//! value together with its path in the document, which error messages contain.

use crate::read::refusal::{Result, wrong};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// The maximum size of the text of a certificate, in bytes. A larger certificate is refused before it is parsed,
/// because the parsed values take up to 16 times the memory of the text.
pub const MOST_BYTES: usize = 64 << 20;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    /// A list that is empty or has at least one entry that is not a number.
    List(Vec<Value>),
    /// A list of whole numbers with at least one entry.
    Ints(Vec<i64>),
    /// An object: pairs `(key, value)` in the order of the text.
    Object(#[serde(serialize_with = "write_object")] Vec<(String, Value)>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number, a text, true, false, null, a list or an object")
    }
    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(Value::Int(value))
    }
    fn visit_u64<E: Error>(self, value: u64) -> std::result::Result<Value, E> {
        i64::try_from(value)
            .map(Value::Int)
            .map_err(|_| E::custom(format!("the number {value} is too large: the maximum is 2^63 - 1")))
    }
    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let mut ints = Vec::new();
        while let Some(value) = seq.next_element()? {
            match value {
                Value::Int(value) => ints.push(value),
                other => {
                    let mut list: Vec<Value> = ints.into_iter().map(Value::Int).collect();
                    list.push(other);
                    while let Some(value) = seq.next_element()? {
                        list.push(value);
                    }
                    return Ok(Value::List(list));
                }
            }
        }
        Ok(if ints.is_empty() { Value::List(Vec::new()) } else { Value::Ints(ints) })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut fields: Vec<(String, Value)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key {key:?} appears twice")));
            }
            fields.push((key, value));
        }
        Ok(Value::Object(fields))
    }
}

impl Value {
    /// Parses a JSON text.
    pub(crate) fn read(text: &str) -> Result<Self> {
        if text.len() > MOST_BYTES {
            return Err(wrong("the text", format!("{} bytes", text.len()), format!("at most {MOST_BYTES} bytes")));
        }
        serde_json::from_str(text)
            .map_err(|e| wrong("the text", e.to_string(), "JSON with whole numbers and without repeated keys"))
    }

    /// Returns the value as JSON without white space. The fields of an object keep their order.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every value can be written as JSON")
    }

    /// Returns the value as text for an error message. For a list or an object, the text contains only the number of
    /// entries.
    pub(crate) fn show(&self) -> String {
        match self {
            Value::List(list) => format!("a list of length {}", list.len()),
            Value::Ints(list) => format!("a list of length {}", list.len()),
            Value::Object(fields) => format!("an object (number of fields: {})", fields.len()),
            other => other.to_json(),
        }
    }
}

fn write_object<S: Serializer>(fields: &[(String, Value)], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_map(fields.iter().map(|(key, value)| (key, value)))
}

/// A JSON value with its path in the document, such as `rules[0].pairs`.
#[derive(Clone)]
pub(crate) struct At<'a> {
    pub(crate) value: &'a Value,
    pub(crate) path: String,
}

impl<'a> At<'a> {
    pub(crate) fn new(value: &'a Value, path: impl Into<String>) -> Self {
        Self { value, path: path.into() }
    }

    /// Returns an error that names the path of the value, the value, and `expected`, a description of valid values.
    pub(crate) fn refuse(&self, expected: impl Into<String>) -> crate::Refusal {
        wrong(self.path.clone(), self.value.show(), expected)
    }

    /// Returns the fields of the value, which must be an object. Returns an error for other values, or if a key of the
    /// object is not in `known`.
    pub(crate) fn object(&self, known: &[&str]) -> Result<Fields<'a>> {
        let Value::Object(fields) = self.value else { return Err(self.refuse("an object")) };
        match fields.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) => {
                Err(wrong(self.path.clone(), format!("the field {key:?}"), format!("one of {}", known.join(", "))))
            }
            None => Ok(Fields { fields, path: self.path.clone() }),
        }
    }

    /// Returns the pairs `(key, value)` of the value, which must be an object; any keys are accepted.
    pub(crate) fn entries(&self) -> Result<Vec<(&'a str, At<'a>)>> {
        let Value::Object(fields) = self.value else { return Err(self.refuse("an object")) };
        Ok(fields.iter().map(|(key, value)| (key.as_str(), At::new(value, format!("{}.{key}", self.path)))).collect())
    }

    /// Calls `read` for each entry of a list and returns the results. `read` receives the entry with an empty path. If
    /// `read` returns an error, the path of the entry is added to the error.
    pub(crate) fn list<T>(&self, mut read: impl FnMut(At<'_>) -> Result<T>) -> Result<Vec<T>> {
        let mut entry = |(at, value): (usize, &Value)| {
            read(At::new(value, "")).map_err(|refusal| refusal.within(&format!("{}[{at}]", self.path)))
        };
        match self.value {
            Value::List(list) => list.iter().enumerate().map(entry).collect(),
            Value::Ints(list) => list.iter().enumerate().map(|(at, &value)| entry((at, &Value::Int(value)))).collect(),
            _ => Err(self.refuse("a list")),
        }
    }

    /// Reads a list of whole numbers, each of which must be from `min` to `max` (inclusive).
    pub(crate) fn ints(&self, min: i64, max: i64) -> Result<Vec<i64>> {
        match self.value {
            Value::List(list) if list.is_empty() => Ok(Vec::new()),
            Value::Ints(list) => match list.iter().position(|value| !(min..=max).contains(value)) {
                Some(at) => Err(wrong(format!("{}[{at}]", self.path), list[at].to_string(), whole(min, max))),
                None => Ok(list.clone()),
            },
            _ => Err(self.refuse(format!("a list in which each entry is {}", whole(min, max)))),
        }
    }

    /// Reads a whole number, which must be from `min` to `max` (inclusive).
    pub(crate) fn int(&self, min: i64, max: i64) -> Result<i64> {
        match self.value {
            Value::Int(value) if (min..=max).contains(value) => Ok(*value),
            _ => Err(self.refuse(whole(min, max))),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str> {
        match self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.refuse("a text")),
        }
    }

    pub(crate) fn boolean(&self) -> Result<bool> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.refuse("true or false")),
        }
    }

    /// Returns true if the value is a list whose first entry is a list.
    pub(crate) fn is_nested(&self) -> bool {
        matches!(self.value, Value::List(list) if matches!(list.first(), Some(Value::List(_) | Value::Ints(_))))
    }
}

fn whole(min: i64, max: i64) -> String {
    format!("a whole number from {min} to {max}")
}

/// The fields of a JSON object, with the path of the object in the document.
pub(crate) struct Fields<'a> {
    fields: &'a [(String, Value)],
    path: String,
}

impl<'a> Fields<'a> {
    /// Returns the value of the field `key`; `None` if the object does not have the field.
    pub(crate) fn get(&self, key: &str) -> Option<At<'a>> {
        let found = self.fields.iter().find(|field| field.0 == key)?;
        Some(At::new(&found.1, if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }))
    }

    /// Returns the value of the field `key`, or an error if the object does not have the field.
    pub(crate) fn need(&self, key: &str) -> Result<At<'a>> {
        let missing = || {
            wrong(
                if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) },
                "nothing",
                "the field",
            )
        };
        self.get(key).ok_or_else(missing)
    }
}
