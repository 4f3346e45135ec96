//! [`Facts`]: what a mask must know about the data of one call.

#[cfg(feature = "serde")]
mod agree;
mod import;
#[cfg(feature = "serde")]
mod read;
#[cfg(feature = "serde")]
mod write;

use crate::array::Array;
use crate::frame::PlacedKeys;
use crate::interval::{Interval, IntervalSet};
use crate::scalar::{Rows, Side};
use crate::set::Span;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Which keys are real tokens, by batch row.
#[derive(Clone, PartialEq, Debug)]
pub enum RealTokens {
    /// So many, at one end of the sequence.
    Lengths {
        /// Number of real tokens by batch row.
        lengths: Vec<u64>,
        /// Where the padding stands.
        side: Side,
    },
    /// These keys.
    Keys(Vec<IntervalSet>),
}

/// The table `[batch, keys]` that real tokens were read from: its name and its number of keys, which must be those of the
/// shape, because padding is counted from its ends. Two facts with the same real tokens are equal whatever table they come from.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Table(pub(crate) Option<(&'static str, usize)>);

impl PartialEq for Table {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A cell predicate over (batch, head, query row, key index), with optional bounds; see [`Facts::closure`].
#[derive(Clone)]
pub(crate) struct Closure {
    pub(crate) allowed: Arc<CellFn>,
    pub(crate) bounds: Option<Arc<BoundsFn>>,
}

type CellFn = dyn Fn(usize, usize, usize, usize) -> bool + Send + Sync;
type BoundsFn = dyn Fn(usize, usize, Range<usize>) -> (Vec<Range<u32>>, Vec<Range<u32>>) + Send + Sync;

impl fmt::Debug for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.bounds.is_some() { "Closure(with bounds)" } else { "Closure" })
    }
}

impl PartialEq for Closure {
    /// The same closure, not one that computes the same.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allowed, &other.allowed)
    }
}

/// What masks need to know beside the shape: lengths, documents, labels, levels, key positions, named arrays.
///
/// Everything is optional; [`Mask::bind`](crate::Mask::bind) refuses a mask whose facts are missing or do not fit.
///
/// ```
/// use noren_mask::{Facts, Shape, atoms::*};
/// let facts = Facts::new().lengths([5, 3]).documents(vec![vec![2, 3], vec![3]]);
/// let bound = (causal() & documents() & padding()).bind(&Shape::square(5).batch(2), &facts)?;
/// assert!(bound.allowed(0, 0, 4, 2) && !bound.allowed(0, 0, 4, 1) && !bound.allowed(1, 0, 4, 4));
/// # Ok::<(), noren_mask::Error>(())
/// ```
///
/// The same as JSON, for `Facts::from_json` (feature `serde`): `{"lengths": [5, 3], "documents": [[2, 3], [3]]}`.
///
/// Facts come as well from what a data pipeline has: token ids with a pad id ([`from_token_ids`](Facts::from_token_ids)),
/// padding masks of either polarity ([`padding_from_keep`](Facts::padding_from_keep),
/// [`padding_from_drop`](Facts::padding_from_drop), [`padding_from_additive`](Facts::padding_from_additive)),
/// [segment ids](Facts::from_segment_ids), [position ids](Facts::from_position_ids) and
/// [`cu_seqlens`](Facts::from_cu_seqlens).
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Facts {
    pub(crate) real: Option<RealTokens>,
    pub(crate) table: Table,
    pub(crate) query_lengths: Option<Vec<u64>>,
    pub(crate) documents: Option<Rows<Vec<u64>>>,
    pub(crate) labels: BTreeMap<String, Rows<Vec<Span>>>,
    pub(crate) levels: Option<Rows<Vec<i64>>>,
    pub(crate) positions: Option<Rows<Vec<i64>>>,
    /// The same by runs, for each batch row.
    pub(crate) runs: Option<Vec<Arc<[PlacedKeys]>>>,
    pub(crate) arrays: BTreeMap<String, Arc<Array>>,
    pub(crate) closures: BTreeMap<String, Closure>,
}

impl Facts {
    /// No facts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of real tokens in each batch row; padding stands on the right unless [`side`](Self::side) says otherwise.
    pub fn lengths(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        let side = self.padding_side();
        self.real = Some(RealTokens::Lengths { lengths: counts(lengths.into()), side });
        self.table = Table(None);
        self
    }

    /// Where padding stands, for [`lengths`](Self::lengths), which must be given too.
    pub fn side(mut self, to: Side) -> Self {
        match &mut self.real {
            Some(RealTokens::Lengths { side, .. }) => *side = to,
            Some(RealTokens::Keys(_)) => {}
            None => self.real = Some(RealTokens::Lengths { lengths: Vec::new(), side: to }),
        }
        self
    }

    /// The real keys of each batch row, when they are not a run at one end.
    pub fn real_keys(mut self, keys: Vec<IntervalSet>) -> Self {
        self.real = Some(RealTokens::Keys(keys));
        self.table = Table(None);
        self
    }

    /// Number of real queries in each batch row, counted over the query rows: for `padding(on=both)` when queries and keys are
    /// different sequences, and for lists of positions, which then need not reach to queries that are padding on the right.
    pub fn query_lengths(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        self.query_lengths = Some(counts(lengths.into()));
        self
    }

    /// Lengths of the documents packed one after the other from position 0, or, where they sum to the real tokens of a
    /// left-padded row, from its first real token: one list for all batch rows, or one for each.
    pub fn documents(mut self, lengths: impl Into<Rows<Vec<usize>>>) -> Self {
        self.documents = Some(lengths.into().map(counts));
        self
    }

    /// The positions that carry `label`: one list for all batch rows, or one for each.
    pub fn label<S: Into<Span>>(mut self, label: impl Into<String>, at: impl IntoIterator<Item = S>) -> Self {
        self.labels.insert(label.into(), Rows::All(at.into_iter().map(Into::into).collect()));
        self
    }

    /// The positions that carry `label`, by batch row.
    pub fn label_rows(mut self, label: impl Into<String>, rows: Vec<Vec<Span>>) -> Self {
        self.labels.insert(label.into(), Rows::Each(rows));
        self
    }

    /// The level of each position: one list for all batch rows, or one for each.
    pub fn levels(mut self, levels: impl Into<Rows<Vec<i64>>>) -> Self {
        self.levels = Some(levels.into());
        self
    }

    /// The position at which each key stands (a ring buffer): a negative one marks an empty slot, which nobody may read.
    pub fn positions(mut self, positions: impl Into<Rows<Vec<i64>>>) -> Self {
        self.positions = Some(positions.into());
        self.runs = None;
        self
    }

    /// [`positions`](Self::positions) by runs, for each batch row: keys `keys` stand at positions from the number beside
    /// them on, and a key in no run is an empty slot. Binding takes time by the run and not by the key, which is what a
    /// cache needs at every step.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// // A ring of 4 slots: the oldest key left stands at position 6, in slot 2.
    /// let facts = Facts::new().position_runs(vec![vec![(0..2, 8), (2..4, 6)]]);
    /// let bound = causal().bind(&Shape::new(1, 4, 8), &facts)?;
    /// assert_eq!([0, 1, 2, 3].map(|key| bound.allowed(0, 0, 0, key)), [true, false, true, true]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    pub fn position_runs(mut self, rows: Vec<Vec<(Range<u32>, i64)>>) -> Self {
        let run = |(keys, position): (Range<u32>, i64)| {
            let keys = Interval::new(keys.start, keys.end);
            PlacedKeys { keys, position }
        };
        self.runs = Some(rows.into_iter().map(|row| row.into_iter().map(run).collect()).collect());
        self.positions = None;
        self
    }

    /// The cells that `dense(name)` means.
    pub fn array(mut self, name: impl Into<String>, array: Array) -> Self {
        self.arrays.insert(name.into(), Arc::new(array));
        self
    }

    /// The predicate that `closure(name)` means, over (batch, head, query row, key index). It must be a pure function, and is
    /// called from several threads at once.
    pub fn closure(
        mut self,
        name: impl Into<String>,
        allowed: impl Fn(usize, usize, usize, usize) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.closures.insert(name.into(), Closure { allowed: Arc::new(allowed), bounds: None });
        self
    }

    /// [`closure`](Self::closure) with bounds: for (batch, head, query rows) the keys that *some* row may read and the keys
    /// that *every* row may read. Bounds that hold make planning skip what the predicate would deny; where they are wrong
    /// the mask is what the bounds say of whole tiles and what the predicate says elsewhere.
    pub fn closure_with_bounds(
        mut self,
        name: impl Into<String>,
        allowed: impl Fn(usize, usize, usize, usize) -> bool + Send + Sync + 'static,
        bounds: impl Fn(usize, usize, Range<usize>) -> (Vec<Range<u32>>, Vec<Range<u32>>) + Send + Sync + 'static,
    ) -> Self {
        let closure = Closure { allowed: Arc::new(allowed), bounds: Some(Arc::new(bounds)) };
        self.closures.insert(name.into(), closure);
        self
    }

    /// Returns whether documents are given.
    pub fn has_documents(&self) -> bool {
        self.documents.is_some()
    }

    /// Returns whether clearance levels are given.
    pub fn has_levels(&self) -> bool {
        self.levels.is_some()
    }

    /// Returns the arrays with their names, by name.
    pub fn arrays(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.arrays.iter().map(|(name, array)| (name.as_str(), &**array))
    }

    /// Whether they say how many queries of each batch row are real.
    pub fn has_query_lengths(&self) -> bool {
        self.query_lengths.is_some()
    }

    /// Names of the labels that are declared.
    pub fn label_names(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().map(String::as_str)
    }

    /// Whether the facts give the position of each key.
    pub fn place_keys(&self) -> bool {
        self.positions.is_some() || self.runs.is_some()
    }

    /// The position after that of the last key of batch row `row`, where they say where keys stand.
    pub(crate) fn keys_end(&self, row: usize) -> Option<i64> {
        let listed = self.positions.as_ref().and_then(|p| p.get(row));
        let listed = listed.map(|list| list.iter().max().map_or(0, |p| p + 1));
        let runs = self.runs.as_ref().and_then(|runs| runs.get(row));
        listed.or_else(|| runs.map(|runs| runs.iter().map(|run| run.end()).max().unwrap_or(0)))
    }

    /// Where padding stands, right unless they say otherwise.
    pub fn padding_side(&self) -> Side {
        match self.real {
            Some(RealTokens::Lengths { side, .. }) => side,
            _ => Side::Right,
        }
    }
}

/// Counts as they are stored, of the same width on every machine.
fn counts(list: Vec<usize>) -> Vec<u64> {
    list.into_iter().map(|n| n as u64).collect()
}

/// The real keys of a row with `length` real tokens out of `kv_len`.
pub(crate) fn real_run(length: u64, side: Side, kv_len: u32) -> Interval {
    let n = u32::try_from(length).unwrap_or(u32::MAX).min(kv_len);
    match side {
        Side::Right => Interval::new(0, n),
        Side::Left => Interval::new(kv_len - n, kv_len),
    }
}
