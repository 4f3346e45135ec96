//! [`Raw`]: a configuration as a JSON object, with typed access to its keys.

use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// The maximum of every count in a configuration, such as a number of heads. No model has larger counts.
const MOST: u64 = 1 << 24;

/// A JSON object with typed access to its values. Most methods treat the value `null` as a missing key.
pub(crate) struct Raw<'a>(pub(crate) &'a Map<String, Value>);

/// Reads a JSON file, which must contain an object.
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>> {
    check_file(path)?;
    let text = std::fs::read(path).map_err(|e| Error::file(path, format!("the file cannot be read: {e}")))?;
    match serde_json::from_slice(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Error::file(path, "the file is JSON, but not a JSON object, which a configuration must be")),
        Err(e) => Err(Error::file(path, format!("the file is not valid JSON: {e}"))),
    }
}

/// Returns an error if there is something at `path` that is not a file. Reading from a pipe or a device could wait
/// or run without end.
pub(crate) fn check_file(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(kind) if !kind.is_file() => Err(Error::file(path, "this is not a file: give a file")),
        _ => Ok(()),
    }
}

impl<'a> Raw<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Returns whether `key` is missing. A key with the value `null` is not missing.
    pub(crate) fn left_out(&self, key: &str) -> bool {
        !self.0.contains_key(key)
    }

    /// Returns the value of `key`, a whole number of at least 1. Returns an error if the key is missing.
    pub(crate) fn count(&self, key: &str) -> Result<usize> {
        self.count_if(key)?.ok_or_else(|| Error::config(key, "missing", "a whole number of at least 1 is needed"))
    }

    pub(crate) fn count_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.count_if(key)?.unwrap_or(default))
    }

    pub(crate) fn count_if(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|n| (1..=MOST).contains(n)) {
            Some(n) => Ok(Some(n as usize)),
            None => Err(Error::config(key, value, format!("a whole number from 1 to {MOST} is needed"))),
        }
    }

    pub(crate) fn real_or(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.real_if(key)?.unwrap_or(default))
    }

    pub(crate) fn real_if(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(Error::config(key, value, "a number is needed")),
        }
    }

    /// Returns the number under `key`; `default` if the key is missing, and `None` if the value is `null`.
    pub(crate) fn real_unless_left_out(&self, key: &str, default: Option<f64>) -> Result<Option<f64>> {
        if self.left_out(key) { Ok(default) } else { self.real_if(key) }
    }

    pub(crate) fn flag_or(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| Error::config(key, value, "true or false is needed"))
    }

    pub(crate) fn text(&self, key: &str) -> Result<&'a str> {
        match self.get(key) {
            Some(Value::String(text)) => Ok(text),
            Some(value) => Err(Error::config(key, value, "the value must be a string")),
            None => Err(Error::config(key, "missing", "give a string as the value of this key")),
        }
    }

    pub(crate) fn text_or(&self, key: &str, default: &'a str) -> Result<&'a str> {
        if self.get(key).is_some() { self.text(key) } else { Ok(default) }
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Raw<'a>>> {
        match self.get(key) {
            Some(Value::Object(object)) => Ok(Some(Raw(object))),
            Some(value) => Err(Error::config(key, value, "an object is needed")),
            None => Ok(None),
        }
    }

    /// Returns the token ids under `key`, which are one number or a list; an empty list if the key is missing.
    pub(crate) fn ids(&self, key: &str) -> Vec<u32> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        match self.get(key) {
            Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
            Some(value) => id(value).into_iter().collect(),
            None => Vec::new(),
        }
    }
}
