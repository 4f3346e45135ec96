//! [`Reader`]: reads values of a declaration under several names, and checks their types and ranges.

use super::kinds::Redaction;
use noren_mask::{Error, Shape};
use serde_json::{Map, Value};
use std::cell::RefCell;

/// A reader of the declared values in a JSON object. A value may be declared under several names. The reader remembers
/// all names that callers looked up, and `Reader::unread` finds the other names of the object.
pub(super) struct Reader<'a> {
    map: &'a Map<String, Value>,
    known: RefCell<Vec<&'static str>>,
}

/// Returns a name in lower case without underscores, hyphens, dots and spaces, so that spellings can be compared.
fn plain(name: &str) -> String {
    name.replace(['_', '-', '.', ' '], "").to_ascii_lowercase()
}

/// The maximum length or position, in tokens. With this maximum, the product of three lengths fits in 128 bits.
const MOST: i64 = Shape::MAX_LEN as i64;

impl<'a> Reader<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Reader { map, known: RefCell::default() }
    }

    /// Returns the pair (name as the user spelled it, value) that is declared under one of `names`; `None` if no value
    /// or only null is declared. Names are equal if `plain` returns the same text. Returns an error if two of the names
    /// have different values.
    fn get(&self, names: &[&'static str]) -> Result<Option<(&'a str, &'a Value)>, Error> {
        self.known.borrow_mut().extend(names);
        let spelled = |name: &'static str| {
            let short = plain(name);
            self.map.iter().filter(move |(key, value)| !value.is_null() && plain(key) == short)
        };
        let mut found = names.iter().flat_map(|name| spelled(name));
        let Some((key, value)) = found.next() else { return Ok(None) };
        if let Some((other, differs)) = found.find(|(_, other)| !same(value, other)) {
            let text = format!(
                "`{key}` is {} and `{other}` is {}, but the two keys have the same meaning: give only one of the two keys",
                shown(value),
                shown(differs)
            );
            return Err(Error::fact("context", text));
        }
        Ok(Some((key.as_str(), value)))
    }

    /// Returns the declared names that no caller has looked up. Returns an error if such a name looks like a misspelled known name.
    pub(super) fn unread(&self) -> Result<Vec<String>, Error> {
        let known = self.known.borrow();
        let names: Vec<String> = known.iter().map(|name| plain(name)).collect();
        let unread: Vec<&String> = self.map.keys().filter(|key| !names.contains(&plain(key))).collect();
        for key in &unread {
            let short = plain(key);
            if let Some(near) = noren_mask::nearest(&short, names.iter().map(String::as_str))
                && (short.len() > 4 || near == "kind")
                && let Some(at) = names.iter().position(|name| name == near)
            {
                let text = format!("`{key}` is an unknown key: did you mean `{}`?", known[at]);
                return Err(Error::fact("context", text));
            }
        }
        Ok(unread.into_iter().cloned().collect())
    }

    fn wrong(key: &str, value: &Value, expected: &str) -> Error {
        Error::fact(format!("context: {key}"), format!("got {}, expected {expected}", shown(value)))
    }

    pub(super) fn text(&self, names: &[&'static str]) -> Result<Option<String>, Error> {
        match self.get(names)? {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((key, value)) => Err(Self::wrong(key, value, "text")),
        }
    }

    /// Reads the word that is declared under one of `names`, and returns the value that `meaning` computes from the
    /// word; `None` if no word is declared. Returns the error of `meaning` for an invalid word.
    pub(super) fn word<T>(
        &self,
        names: &[&'static str],
        meaning: impl Fn(&str) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.text(names)?.map(|word| meaning(&word)).transpose()
    }

    pub(super) fn texts(&self, names: &[&'static str]) -> Result<Vec<String>, Error> {
        let Some((key, value)) = self.get(names)? else { return Ok(Vec::new()) };
        let wrong = || Self::wrong(key, value, "a list of texts");
        match value {
            Value::Array(list) => {
                list.iter().map(|v| v.as_str().map(str::to_string)).collect::<Option<_>>().ok_or_else(wrong)
            }
            Value::String(one) => Ok(vec![one.clone()]),
            _ => Err(wrong()),
        }
    }

    pub(super) fn flag(&self, names: &[&'static str]) -> Result<Option<bool>, Error> {
        match self.get(names)? {
            None => Ok(None),
            Some((_, Value::Bool(flag))) => Ok(Some(*flag)),
            Some((key, value)) => Err(Self::wrong(key, value, "true or false")),
        }
    }

    pub(super) fn real(&self, names: &[&'static str]) -> Result<Option<f64>, Error> {
        let Some((key, value)) = self.get(names)? else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| Self::wrong(key, value, "a number"))
    }

    /// Returns a declared integer of any size, such as a token id; `None` if no integer is declared. If a list is
    /// declared, its first number is returned.
    pub(super) fn id(&self, names: &[&'static str]) -> Result<Option<i64>, Error> {
        let Some((key, value)) = self.get(names)? else { return Ok(None) };
        // Generation settings may hold a list of ids that end a text.
        let value = match value {
            Value::Array(list) if !list.is_empty() => &list[0],
            value => value,
        };
        whole(value).map(Some).ok_or_else(|| Self::wrong(key, value, "a whole number"))
    }

    pub(super) fn ids(&self, names: &[&'static str]) -> Result<Vec<i64>, Error> {
        self.listed(names, i64::MIN, i64::MAX)
    }

    /// Returns a declared integer from `low` to `MOST`; `None` if nothing is declared.
    pub(super) fn count(&self, names: &[&'static str], low: i64) -> Result<Option<i64>, Error> {
        let Some((key, value)) = self.get(names)? else { return Ok(None) };
        let fits = whole(value).filter(|n| (low..=MOST).contains(n));
        fits.map(Some).ok_or_else(|| Self::wrong(key, value, &format!("a whole number from {low} to {MOST}")))
    }

    pub(super) fn size(&self, names: &[&'static str], low: i64) -> Result<Option<usize>, Error> {
        Ok(self.count(names, low)?.map(|n| n as usize))
    }

    /// Returns the declared lengths in tokens: one number for all batch rows, or one number per batch row. The list is empty if nothing is declared.
    pub(super) fn lengths(&self, names: &[&'static str]) -> Result<Vec<i64>, Error> {
        self.listed(names, 0, MOST)
    }

    /// Returns the declared positions in tokens: one number for all batch rows, or one number per batch row. Positions may be negative. The list is
    /// empty if nothing is declared.
    pub(super) fn offsets(&self, names: &[&'static str]) -> Result<Vec<i64>, Error> {
        self.listed(names, -MOST, MOST)
    }

    fn listed(&self, names: &[&'static str], low: i64, high: i64) -> Result<Vec<i64>, Error> {
        let Some((key, value)) = self.get(names)? else { return Ok(Vec::new()) };
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

    /// Returns the declared redactions. Four formats are accepted: a list of keys `[3, 4]`; objects `[{"batch": 1,
    /// "keys": [3], "queries": [7]}]`; one object `{"keys": [3]}`; pairs `[[7, 3], ...]` of (query, key).
    pub(super) fn redactions(&self, names: &[&'static str]) -> Result<Vec<Redaction>, Error> {
        let Some((key, value)) = self.get(names)? else { return Ok(Vec::new()) };
        let expected =
            "a list of keys such as [3, 4], or an object such as {\"batch\": 1, \"keys\": [3], \"queries\": [7]}";
        let wrong = || Self::wrong(key, value, expected);
        let of_keys = |keys: Vec<usize>, queries: Vec<usize>| Redaction { batch: Vec::new(), keys, queries };
        match value {
            Value::Object(_) => Ok(vec![redaction(value).ok_or_else(wrong)?]),
            Value::Number(_) => Ok(vec![of_keys(places(value).ok_or_else(wrong)?, Vec::new())]),
            Value::Array(items) if items.is_empty() => Ok(Vec::new()),
            Value::Array(items) if items.iter().all(Value::is_number) => {
                Ok(vec![of_keys(places(value).ok_or_else(wrong)?, Vec::new())])
            }
            Value::Array(items) if items.iter().all(Value::is_array) => items
                .iter()
                .map(|pair| match places(pair).as_deref() {
                    Some(&[q, k]) => Ok(of_keys(vec![k], vec![q])),
                    _ => Err(wrong()),
                })
                .collect(),
            Value::Array(items) => items.iter().map(|v| redaction(v).ok_or_else(wrong)).collect(),
            _ => Err(wrong()),
        }
    }
}

/// Returns the first 80 characters of `value` as JSON text.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

/// Returns true if two declared values have the same meaning, such as 4 and 4.0, or the number `4` and the list `[4]`.
fn same(one: &Value, other: &Value) -> bool {
    let bare = |value| match value {
        Value::Array(list) if list.len() == 1 => list[0].clone(),
        value => value,
    };
    let (one, other) = (bare(one.clone()), bare(other.clone()));
    one == other || one.as_f64().is_some_and(|x| other.as_f64() == Some(x))
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
    let list = |names: &[&'static str]| match read.get(names).ok()? {
        Some((_, value)) => places(value).map(Some),
        None => Some(None),
    };
    let batch = list(&["batch", "batch_row", "batch_rows"])?.unwrap_or_default();
    let keys = list(&["keys", "key", "hide", "hidden", "tokens", "source"])??;
    let queries = list(&["queries", "query", "from", "rows", "outputs", "output", "target"])?.unwrap_or_default();
    read.unread().ok()?.is_empty().then_some(Redaction { batch, keys, queries })
}
