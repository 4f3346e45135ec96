//! [`Reader`]: reads declared values by name, and checks their types and ranges.

use crate::read::kinds::Redaction;
use crate::read::words::{Words, look_up, unknown_key};
use noren_mask::{Error, Shape};
use serde_json::{Map, Value};
use std::cell::RefCell;

/// A reader of the declared values in a JSON object. The reader remembers all names that callers looked up, and
/// `Reader::finish` refuses the other names of the object.
pub(crate) struct Reader<'a> {
    map: &'a Map<String, Value>,
    known: RefCell<Vec<&'static str>>,
}

/// The maximum length or position, in tokens. With this maximum, the product of three lengths fits in 128 bits.
const MOST: i64 = Shape::MAX_LEN as i64;

impl<'a> Reader<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Reader { map, known: RefCell::default() }
    }

    /// Returns the pair (name, value) that is declared under `name`; `None` if no value or only null is declared.
    fn get(&self, name: &'static str) -> Option<(&'static str, &'a Value)> {
        self.known.borrow_mut().push(name);
        self.map.get(name).filter(|value| !value.is_null()).map(|value| (name, value))
    }

    /// Returns an error if the object has a name that no caller has looked up; the message gives the nearest name.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let known = self.known.borrow();
        match self.map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(unknown_key(key, &known)),
            None => Ok(()),
        }
    }

    fn wrong(key: &str, value: &Value, expected: &str) -> Error {
        Error::invalid(format!("{key}={} was given, expected {expected}", shown(value)))
    }

    pub(crate) fn text(&self, name: &'static str) -> Result<Option<String>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((key, value)) => Err(Self::wrong(key, value, "text")),
        }
    }

    /// Reads the word that is declared under `name`, and returns the value that `meaning` computes from the
    /// word; `None` if no word is declared. Returns the error of `meaning` for an invalid word.
    pub(crate) fn word<T>(
        &self,
        name: &'static str,
        meaning: impl Fn(&str) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.text(name)?.map(|word| meaning(&word)).transpose()
    }

    /// Returns the meaning in `table` of the word that is declared under `name`; `None` if no word is declared.
    pub(crate) fn one_of<T: Copy>(&self, name: &'static str, table: Words<T>) -> Result<Option<T>, Error> {
        self.word(name, |word| look_up(name, word, table))
    }

    pub(crate) fn texts(&self, name: &'static str) -> Result<Vec<String>, Error> {
        let Some((key, value)) = self.get(name) else { return Ok(Vec::new()) };
        let wrong = || Self::wrong(key, value, "a list of texts");
        match value {
            Value::Array(list) => {
                list.iter().map(|v| v.as_str().map(str::to_string)).collect::<Option<_>>().ok_or_else(wrong)
            }
            Value::String(one) => Ok(vec![one.clone()]),
            _ => Err(wrong()),
        }
    }

    pub(crate) fn flag(&self, name: &'static str) -> Result<Option<bool>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some((_, Value::Bool(flag))) => Ok(Some(*flag)),
            Some((key, value)) => Err(Self::wrong(key, value, "true or false")),
        }
    }

    pub(crate) fn real(&self, name: &'static str) -> Result<Option<f64>, Error> {
        let Some((key, value)) = self.get(name) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| Self::wrong(key, value, "a number"))
    }

    /// Returns a declared integer of any size, such as a token id; `None` if no integer is declared. If a list is
    /// declared, its first number is returned.
    pub(crate) fn id(&self, name: &'static str) -> Result<Option<i64>, Error> {
        let Some((key, value)) = self.get(name) else { return Ok(None) };
        // Generation settings may hold a list of ids that end a text.
        let value = match value {
            Value::Array(list) if !list.is_empty() => &list[0],
            value => value,
        };
        whole(value).map(Some).ok_or_else(|| Self::wrong(key, value, "a whole number"))
    }

    pub(crate) fn ids(&self, name: &'static str) -> Result<Vec<i64>, Error> {
        self.listed(name, i64::MIN, i64::MAX)
    }

    /// Returns a declared integer from `low` to `MOST`; `None` if nothing is declared.
    pub(crate) fn count(&self, name: &'static str, low: i64) -> Result<Option<i64>, Error> {
        let Some((key, value)) = self.get(name) else { return Ok(None) };
        let fits = whole(value).filter(|n| (low..=MOST).contains(n));
        fits.map(Some).ok_or_else(|| Self::wrong(key, value, &format!("a whole number from {low} to {MOST}")))
    }

    pub(crate) fn size(&self, name: &'static str, low: i64) -> Result<Option<usize>, Error> {
        Ok(self.count(name, low)?.map(|n| n as usize))
    }

    /// Returns the declared lengths in tokens: one number for all batch rows, or one number per batch row. The list is empty if nothing is declared.
    pub(crate) fn lengths(&self, name: &'static str) -> Result<Vec<i64>, Error> {
        self.listed(name, 0, MOST)
    }

    /// Returns the declared positions in tokens: one number for all batch rows, or one number per batch row. Positions may be negative. The list is
    /// empty if nothing is declared.
    pub(crate) fn offsets(&self, name: &'static str) -> Result<Vec<i64>, Error> {
        self.listed(name, -MOST, MOST)
    }

    fn listed(&self, name: &'static str, low: i64, high: i64) -> Result<Vec<i64>, Error> {
        let Some((key, value)) = self.get(name) else { return Ok(Vec::new()) };
        let one = std::slice::from_ref(value);
        let list = value.as_array().map_or(one, Vec::as_slice);
        let numbers = list.iter().map(|v| whole(v).filter(|n| (low..=high).contains(n))).collect::<Option<_>>();
        let range = if low == i64::MIN { String::new() } else { format!(" from {low} to {high}") };
        numbers.ok_or_else(|| {
            Self::wrong(
                key,
                value,
                &format!("a whole number{range}, or a list with one whole number for each batch row"),
            )
        })
    }

    /// Returns the declared redactions. Three formats are accepted: a list of keys `[3, 4]`; objects `[{"batch": 1,
    /// "keys": [3], "queries": [7]}]`; one object `{"keys": [3]}`.
    pub(crate) fn redactions(&self, name: &'static str) -> Result<Vec<Redaction>, Error> {
        let Some((key, value)) = self.get(name) else { return Ok(Vec::new()) };
        let expected =
            "a list of keys such as [3, 4], or an object such as {\"batch\": 1, \"keys\": [3], \"queries\": [7]}";
        let wrong = || Self::wrong(key, value, expected);
        match value {
            Value::Array(items) if items.is_empty() => Ok(Vec::new()),
            Value::Array(items) if items.iter().any(Value::is_object) => {
                items.iter().map(|v| redaction(v).ok_or_else(wrong)).collect()
            }
            Value::Object(_) => Ok(vec![redaction(value).ok_or_else(wrong)?]),
            _ => Ok(vec![Redaction { batch: Vec::new(), keys: places(value).ok_or_else(wrong)?, queries: Vec::new() }]),
        }
    }
}

/// Returns the first 80 characters of `value` as JSON text.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < 9e15).map(|x| x as i64))
}

/// Returns the indices in `value`, which is one index or a list of indices; `None` if `value` is or contains something
/// else.
fn places(value: &Value) -> Option<Vec<usize>> {
    let place = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
    match value {
        Value::Array(items) => items.iter().map(place).collect(),
        Value::Number(_) => Some(vec![place(value)?]),
        _ => None,
    }
}

/// Returns a redaction from a JSON object; `None` if the object has no keys to hide, an unknown name, or a value that
/// is not an index or a list of indices.
fn redaction(value: &Value) -> Option<Redaction> {
    let Value::Object(map) = value else { return None };
    let read = Reader::new(map);
    let list = |name: &'static str| match read.get(name) {
        Some((_, value)) => places(value).map(Some),
        None => Some(None),
    };
    let batch = list("batch")?.unwrap_or_default();
    let keys = list("keys")??;
    let queries = list("queries")?.unwrap_or_default();
    read.finish().ok()?;
    Some(Redaction { batch, keys, queries })
}
