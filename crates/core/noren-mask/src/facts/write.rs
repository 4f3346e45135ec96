//! The serial form of [`Facts`], which [`Facts::from_json`] reads.

use super::{Facts, RealTokens};
use crate::Error;
use crate::facts::array::Array;
use crate::sets::interval::IntervalSet;
use crate::sets::scalar::{Rows, Side};
use crate::sets::set::Span;
use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;

impl Facts {
    /// Returns the facts as one line of JSON, which [`from_json`](Self::from_json) reads back to equal facts.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let facts = Facts::new().lengths([5, 3]).documents([5, 27]).label("pii", [3..5]);
    /// let json = facts.to_json()?;
    /// assert_eq!(json, r#"{"lengths":[5,3],"documents":[5,27],"labels":{"pii":["3..5"]}}"#);
    /// assert_eq!(Facts::from_json(&json)?, facts);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error for runs of positions, which have no serial form, and for a list per batch row
    /// without entries.
    pub fn to_json(&self) -> Result<String, Error> {
        self.check_serial()?;
        serde_json::to_string(self).map_err(|e| Error::fact("JSON", e.to_string()))
    }

    /// Checks that the facts have a serial form.
    ///
    /// # Errors
    /// Returns the errors of [`to_json`](Self::to_json).
    pub fn check_serial(&self) -> Result<(), Error> {
        if self.runs.is_some() {
            return Err(Error::fact(
                "position_runs",
                "runs of positions cannot be written as JSON: give positions, one for each key",
            ));
        }
        let rows = [
            ("documents", self.documents.as_ref().and_then(Rows::rows)),
            ("levels", self.levels.as_ref().and_then(Rows::rows)),
            ("positions", self.positions.as_ref().and_then(Rows::rows)),
        ];
        let labels = self.labels.iter().map(|(name, rows)| (name.as_str(), rows.rows()));
        match rows.into_iter().chain(labels).find(|(_, rows)| *rows == Some(0)) {
            Some((name, _)) => {
                Err(Error::fact(name, "the list is empty: give one entry per batch row, or one for all batch rows"))
            }
            None => Ok(()),
        }
    }
}

/// Writes the facts in the format of [`Facts::from_json`].
impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.check_serial().map_err(S::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        match &self.real {
            Some(RealTokens::Lengths { lengths, side }) => {
                map.serialize_entry("lengths", lengths)?;
                entry(&mut map, "side", &Some(side).filter(|side| **side == Side::Left))?;
            }
            Some(RealTokens::Keys(keys)) => {
                let spans = |set: &IntervalSet| {
                    set.iter().map(|i| Span::from(i.start as usize..i.end as usize)).collect::<Vec<_>>()
                };
                map.serialize_entry("real_keys", &keys.iter().map(spans).collect::<Vec<_>>())?;
            }
            None => {}
        }
        entry(&mut map, "query_lengths", &self.query_lengths)?;
        entry(&mut map, "documents", &self.documents)?;
        entry(&mut map, "labels", &Some(&self.labels).filter(|labels| !labels.is_empty()))?;
        entry(&mut map, "levels", &self.levels)?;
        entry(&mut map, "positions", &self.positions)?;
        let arrays: BTreeMap<&str, &Array> = self.arrays().collect();
        entry(&mut map, "arrays", &Some(arrays).filter(|arrays| !arrays.is_empty()))?;
        map.end()
    }
}

/// Writes the entry `key` if there is a value.
fn entry<M: SerializeMap>(map: &mut M, key: &str, value: &Option<impl Serialize>) -> Result<(), M::Error> {
    value.as_ref().map_or(Ok(()), |value| map.serialize_entry(key, value))
}

/// Writes one value if it applies to all batch rows; otherwise writes a list with one value per batch row.
impl<T: Serialize> Serialize for Rows<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Rows::All(value) => value.serialize(serializer),
            Rows::Each(values) => values.serialize(serializer),
        }
    }
}

/// Writes a single position as a number (`3`), and a range as text (`"3..9"`, `"3.."`).
impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.end {
            Some(end) if self.start.checked_add(1) == Some(end) => self.start.serialize(serializer),
            Some(end) => serializer.collect_str(&format_args!("{}..{end}", self.start)),
            None => serializer.collect_str(&format_args!("{}..", self.start)),
        }
    }
}
