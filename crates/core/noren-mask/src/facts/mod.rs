//! [`Facts`]: the data that a mask needs in addition to the shape, such as lengths and documents.

#[cfg(feature = "serde")]
mod agree;
pub(crate) mod array;
pub mod batch;
mod import;
#[cfg(feature = "serde")]
pub(crate) mod json;
mod merge;
#[cfg(feature = "serde")]
mod read;
pub mod resolve;
pub(crate) mod shape;
#[cfg(feature = "serde")]
mod write;

pub(crate) use import::{documents_of, position_owners, real_sets, real_tokens, segment_owners};

use crate::facts::array::Array;
use crate::sets::frame::PlacedKeys;
use crate::sets::interval::{Interval, IntervalSet};
use crate::sets::scalar::{Rows, Side};
use crate::sets::set::Span;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The non-padding keys of each batch row.
#[derive(Clone, PartialEq, Debug)]
pub enum RealTokens {
    /// The non-padding keys of each batch row are consecutive; padding is at one end of the sequence.
    Lengths {
        /// Number of non-padding tokens in each batch row.
        lengths: Vec<usize>,
        /// The side of the padding.
        side: Side,
    },
    /// The non-padding keys of each batch row, as intervals of key indices.
    Keys(Vec<IntervalSet>),
}

/// The name and the number of keys of the input array `[batch, keys]` from which the non-padding tokens were read.
/// Binding to a shape with another number of keys returns an error, because left padding would be at the wrong keys.
/// Comparisons of facts ignore this value.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Table(pub(crate) Option<(&'static str, usize)>);

impl PartialEq for Table {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The data that masks need in addition to the shape: lengths, documents, labels, levels, key positions, named arrays.
///
/// Every fact is optional. [`Mask::bind`](crate::Mask::bind) returns an error if a fact is missing or does not fit.
///
/// ```
/// use noren_mask::{Facts, Shape, atoms::*};
/// let facts = Facts::new().lengths([5, 3]).documents(vec![vec![2, 3], vec![3]]);
/// let bound = (causal() & documents() & padding()).bind(&Shape::square(5).batch(2), &facts)?;
/// assert!(bound.allowed(0, 0, 4, 2) && !bound.allowed(0, 0, 4, 1) && !bound.allowed(1, 0, 4, 4));
/// # Ok::<(), noren_mask::Error>(())
/// ```
///
/// These facts as JSON, for `Facts::from_json` (feature `serde`): `{"lengths": [5, 3], "documents": [[2, 3], [3]]}`.
///
/// Facts can also be read from arrays of a data pipeline: token ids with a pad id ([`from_token_ids`](Facts::from_token_ids)),
/// padding masks of either polarity ([`padding_from_keep`](Facts::padding_from_keep),
/// [`padding_from_drop`](Facts::padding_from_drop), [`padding_from_additive`](Facts::padding_from_additive)),
/// [segment ids](Facts::from_segment_ids), [position ids](Facts::from_position_ids) and
/// [`cu_seqlens`](Facts::from_cu_seqlens).
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Facts {
    pub(crate) real: Option<RealTokens>,
    pub(crate) table: Table,
    pub(crate) query_lengths: Option<Vec<usize>>,
    pub(crate) documents: Option<Rows<Vec<usize>>>,
    pub(crate) labels: BTreeMap<String, Rows<Vec<Span>>>,
    pub(crate) levels: Option<Rows<Vec<i64>>>,
    pub(crate) positions: Option<Rows<Vec<i64>>>,
    /// The key positions of each batch row, as a list of runs. In a run, the positions of the keys are consecutive.
    pub(crate) runs: Option<Vec<Arc<[PlacedKeys]>>>,
    pub(crate) arrays: BTreeMap<String, Arc<Array>>,
}

impl Facts {
    /// Returns empty facts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of non-padding tokens in each batch row. [`side`](Self::side) sets the side of the padding [default: right].
    pub fn lengths(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        let side = self.padding_side();
        self.real = Some(RealTokens::Lengths { lengths: lengths.into(), side });
        self.table = Table(None);
        self
    }

    /// Sets the side of the padding. It has an effect only together with [`lengths`](Self::lengths), so give both.
    pub fn side(mut self, to: Side) -> Self {
        match &mut self.real {
            Some(RealTokens::Lengths { side, .. }) => *side = to,
            Some(RealTokens::Keys(_)) => {}
            None => self.real = Some(RealTokens::Lengths { lengths: Vec::new(), side: to }),
        }
        self
    }

    /// Sets the non-padding keys of each batch row, as intervals of key indices. Use this method for padding that is
    /// not on one side only.
    pub fn real_keys(mut self, keys: Vec<IntervalSet>) -> Self {
        self.real = Some(RealTokens::Keys(keys));
        self.table = Table(None);
        self
    }

    /// Sets the number of non-padding queries in each batch row. `padding(on=both)` needs this number if queries and
    /// keys are different sequences. With this number, lists that have one entry per query position, such as clearance
    /// levels, may end before the padding on the right.
    pub fn query_lengths(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        self.query_lengths = Some(lengths.into());
        self
    }

    /// Sets the lengths of the documents, in tokens: one list for all batch rows, or one for each. Documents are packed
    /// one after another from position 0. Exception: in a batch row with padding on the left, they start at the first
    /// non-padding token if the sum of their lengths is the number of non-padding tokens.
    pub fn documents(mut self, lengths: impl Into<Rows<Vec<usize>>>) -> Self {
        self.documents = Some(lengths.into());
        self
    }

    /// Sets the positions `at` that have the label `label`, equal for all batch rows.
    pub fn label<S: Into<Span>>(mut self, label: impl Into<String>, at: impl IntoIterator<Item = S>) -> Self {
        self.labels.insert(label.into(), Rows::All(at.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the positions that have the label `label`. `rows` has one list of positions for each batch row.
    pub fn label_rows(mut self, label: impl Into<String>, rows: Vec<Vec<Span>>) -> Self {
        self.labels.insert(label.into(), Rows::Each(rows));
        self
    }

    /// Sets the clearance level of each position: one list for all batch rows, or one for each.
    pub fn levels(mut self, levels: impl Into<Rows<Vec<i64>>>) -> Self {
        self.levels = Some(levels.into());
        self
    }

    /// Sets the position of each key, for example in a ring buffer: one list for all batch rows, or one for each. A
    /// negative position marks a cache slot that holds no key; no query may read it.
    pub fn positions(mut self, positions: impl Into<Rows<Vec<i64>>>) -> Self {
        self.positions = Some(positions.into());
        self.runs = None;
        self
    }

    /// Sets the [`positions`](Self::positions) of each batch row as runs (range of keys, position of the first key).
    /// Within a run, positions rise by 1 per key. A key index outside of all runs is a slot that holds no key. The time
    /// to bind a mask depends on the number of runs, not on the number of keys, so a mask can be bound at every step of
    /// decoding with a cache.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// // A ring of 4 slots: the oldest key has position 6 and is in slot 2.
    /// let facts = Facts::new().position_runs(vec![vec![(0..2, 8), (2..4, 6)]]);
    /// let bound = causal().bind(&Shape::new(1, 4, 8), &facts)?;
    /// assert_eq!([0, 1, 2, 3].map(|key| bound.allowed(0, 0, 0, key)), [true, false, true, true]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    pub fn position_runs(mut self, rows: Vec<Vec<(Range<usize>, i64)>>) -> Self {
        // a key beyond 32 bits is beyond the keys of every shape, so binding refuses the run
        let key = |key: usize| u32::try_from(key).unwrap_or(u32::MAX);
        let run = |(keys, position): (Range<usize>, i64)| {
            let keys = Interval::new(key(keys.start), key(keys.end));
            PlacedKeys { keys, position }
        };
        self.runs = Some(rows.into_iter().map(|row| row.into_iter().map(run).collect()).collect());
        self.positions = None;
        self
    }

    /// Sets the array that `dense(name)` refers to.
    pub fn array(mut self, name: impl Into<String>, array: Array) -> Self {
        self.arrays.insert(name.into(), Arc::new(array));
        self
    }

    /// Returns whether the facts give documents.
    pub fn has_documents(&self) -> bool {
        self.documents.is_some()
    }

    /// Returns whether the facts give clearance levels.
    pub fn has_levels(&self) -> bool {
        self.levels.is_some()
    }

    /// Returns the arrays with their names, in the order of the names.
    pub fn arrays(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.arrays.iter().map(|(name, array)| (name.as_str(), &**array))
    }

    /// Returns whether the facts give the numbers of non-padding queries.
    pub fn has_query_lengths(&self) -> bool {
        self.query_lengths.is_some()
    }

    /// Returns the names of the labels.
    pub fn label_names(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().map(String::as_str)
    }

    /// Returns whether the facts give the position of each key.
    pub fn place_keys(&self) -> bool {
        self.positions.is_some() || self.runs.is_some()
    }

    /// Returns the first position after all keys of batch row `row`, or `None` if the facts give no key positions.
    pub(crate) fn keys_end(&self, row: usize) -> Option<i64> {
        let listed = self.positions.as_ref().and_then(|p| p.get(row));
        let listed = listed.map(|list| list.iter().max().map_or(0, |p| p + 1));
        let runs = self.runs.as_ref().and_then(|runs| runs.get(row));
        listed.or_else(|| runs.map(|runs| runs.iter().map(|run| run.end()).max().unwrap_or(0)))
    }

    /// Returns the side of the padding [default: right].
    pub fn padding_side(&self) -> Side {
        match self.real {
            Some(RealTokens::Lengths { side, .. }) => side,
            _ => Side::Right,
        }
    }
}

/// Returns the non-padding keys of a batch row with `kv_len` keys, `length` non-padding tokens, and padding at `side`.
pub(crate) fn real_run(length: usize, side: Side, kv_len: u32) -> Range<u32> {
    let n = u32::try_from(length).unwrap_or(u32::MAX).min(kv_len);
    match side {
        Side::Right => 0..n,
        Side::Left => kv_len - n..kv_len,
    }
}
