//! The serial form of [`Facts`], which [`Facts::from_json`] reads.

use super::{Facts, RealTokens};
use crate::Error;
use crate::facts::array::Array;
use crate::sets::interval::IntervalSet;
use crate::sets::scalar::{Rows, Side};
use crate::sets::set::Span;
use serde::ser::{Error as _, Serialize, Serializer};
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
        let (mut lengths, mut side, mut real_keys) = (None, None, None);
        match &self.real {
            Some(RealTokens::Lengths { lengths: list, side: end }) => {
                lengths = Some(list.as_slice());
                side = (*end == Side::Left).then_some(Side::Left);
            }
            Some(RealTokens::Keys(keys)) => real_keys = Some(keys.iter().map(KeySet).collect()),
            None => {}
        }
        let written = Written {
            lengths,
            side,
            real_keys,
            query_lengths: self.query_lengths.as_deref(),
            documents: self.documents.as_ref(),
            labels: &self.labels,
            levels: self.levels.as_ref(),
            positions: self.positions.as_ref(),
            arrays: self.arrays.iter().map(|(name, array)| (name.as_str(), &**array)).collect(),
        };
        written.serialize(serializer)
    }
}

#[derive(serde::Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    lengths: Option<&'a [usize]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<Side>,
    #[serde(skip_serializing_if = "Option::is_none")]
    real_keys: Option<Vec<KeySet<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_lengths: Option<&'a [usize]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    documents: Option<&'a Rows<Vec<usize>>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, Rows<Vec<Span>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    levels: Option<&'a Rows<Vec<i64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    positions: Option<&'a Rows<Vec<i64>>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    arrays: BTreeMap<&'a str, &'a Array>,
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

/// A set of keys, for output as a list of spans.
struct KeySet<'a>(&'a IntervalSet);

impl Serialize for KeySet<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|i| Span::from(i.start as usize..i.end as usize)))
    }
}
