//! [`BoundMask::select`]: a mask of some query rows and keys of another mask.
//!
//! Rows and keys keep their order and their positions; only their indices change. An index in the selected mask is
//! called a place: of the selected keys 3, 4 and 9, key 9 has place 2. Atoms compute with the indices of the whole mask
//! (from which rows and keys were selected), and their results are converted to places. An interval of indices becomes
//! one interval of places.

use crate::Error;
use crate::bind::{BoundMask, Resolved, Whole};
use crate::mask::pattern::Selection;
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use crate::sets::order::Order;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

impl BoundMask {
    /// Returns the mask of some query rows and keys of this mask, for every batch row and head. `rows` and `keys` are
    /// ranges of indices. The result has the given rows in ascending order: its query row `i` is the given row number
    /// `i`, from 0. The same applies to keys.
    ///
    /// A cell of the result is allowed exactly if it is allowed in the whole mask. Positions are those of the whole
    /// mask, and explanations use the indices of the whole mask. Such a mask is used by a process that computes only
    /// some rows and keys of an attention, and by a cache that removed keys. The result cannot be serialized.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let whole = sliding(4).bind(&Shape::square(100), &Facts::new())?;
    /// let part = whole.select([10..12, 50..60], [8..11, 48..52])?;
    /// assert_eq!((part.shape().q_len(), part.shape().kv_len()), (12, 7));
    /// assert_eq!((part.query_position(0, 2), part.key_position(0, 3)), (50, 48));
    /// assert_eq!(part.allowed(0, 0, 2, 3), whole.allowed(0, 0, 50, 48));
    /// assert_eq!(part.plan().stats().allowed, 3 + 3 + 3 + 4 + 3 + 2 + 1);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Shape`] if no row or no key is selected, or if one is outside the shape.
    pub fn select(
        &self,
        rows: impl IntoIterator<Item = Range<usize>>,
        keys: impl IntoIterator<Item = Range<usize>>,
    ) -> Result<BoundMask, Error> {
        let rows = Arc::new(choose("query rows", self.shape().q_len(), rows)?);
        let keys = Arc::new(choose("keys", self.shape().kv_len(), keys)?);
        let shape = self.shape().with_lens(rows.len() as usize, keys.len() as usize);
        let frame = Frame { q_len: rows.len(), kv_len: keys.len(), offset: 0, runs: None };
        let frames = vec![frame.clone(); shape.batch_len()];
        let resolved = |whole: &Resolved| {
            let selection = Selection { frame: whole.frame.clone(), rows: rows.clone(), keys: keys.clone() };
            Resolved { frame: frame.clone(), pattern: Selection::pattern(&Arc::new(selection), &whole.pattern) }
        };
        let patterns = self.resolved().iter().map(resolved).collect();
        let whole = Whole { bound: self.clone(), batch: None, rows: rows.clone(), keys: keys.clone() };
        Ok(self.narrowed(shape, frames, (patterns, self.pattern_list().to_vec()), whole))
    }

    /// Returns the mask of the batch rows with the indices `batch`, in the order of `batch`. An index may occur several
    /// times. See also [`select`](Self::select).
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let facts = Facts::new().lengths([5, 3, 4]);
    /// let whole = padding().bind(&Shape::square(5).batch(3), &facts)?;
    /// let part = whole.select_batch(&[2, 0])?;
    /// assert_eq!(part.shape().batch_len(), 2);
    /// assert!(!part.allowed(0, 0, 0, 4) && part.allowed(1, 0, 0, 4));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Shape`] if no batch row is selected, or if one is outside the shape.
    pub fn select_batch(&self, batch: &[usize]) -> Result<BoundMask, Error> {
        let count = self.shape().batch_len();
        if let Some(row) = batch.iter().find(|row| **row >= count) {
            return Err(Error::Shape(format!(
                "batch row {row} is selected, but there are only {count} batch rows, counted from 0"
            )));
        }
        if batch.is_empty() {
            return Err(Error::Shape(format!(
                "no batch rows are selected: select at least one of the {count} batch rows"
            )));
        }
        let offsets: Vec<i64> = batch.iter().map(|row| self.shape().query_offset(*row)).collect();
        let shape = self.shape().clone().batch(batch.len()).query_offsets(offsets);
        let frames = batch.iter().map(|row| self.frame(*row).clone()).collect();
        let mut patterns: Vec<Resolved> = Vec::new();
        let mut numbers: HashMap<usize, u32> = HashMap::new();
        let mut pattern_of = Vec::with_capacity(batch.len() * shape.head_count());
        for row in batch {
            for head in 0..shape.head_count() {
                let number = self.pattern_of(*row, head);
                pattern_of.push(*numbers.entry(number).or_insert_with(|| {
                    patterns.push(self.resolved()[number].clone());
                    patterns.len() as u32 - 1
                }));
            }
        }
        let all = |len: usize| Arc::new(Order::of_groups(&[IntervalSet::all(len as u32)]));
        let (rows, keys) = (all(shape.q_len()), all(shape.kv_len()));
        let whole = Whole { bound: self.clone(), batch: Some(batch.to_vec()), rows, keys };
        Ok(self.narrowed(shape, frames, (patterns, pattern_of), whole))
    }
}

fn choose(what: &str, len: usize, ranges: impl IntoIterator<Item = Range<usize>>) -> Result<Order, Error> {
    let mut chosen = Vec::new();
    for range in ranges {
        if range.end > len {
            return Err(Error::Shape(format!("{what} {range:?} are selected, but there are only {len} {what}")));
        }
        chosen.extend((!range.is_empty()).then_some(range.start as u32..range.end as u32));
    }
    match chosen.is_empty() {
        true => Err(Error::Shape(format!("no {what} are selected: select at least one of the {len} {what}"))),
        false => Ok(Order::of_groups(&[chosen.into_iter().collect()])),
    }
}
