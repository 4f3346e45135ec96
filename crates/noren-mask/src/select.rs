//! [`BoundMask::select`]: some query rows and keys of a mask, as a mask of their own.
//!
//! Rows and keys keep their order and their positions; only the places at which they stand change. Leaves of a pattern are
//! asked about the rows and keys that they were, and their answers are told by place: an interval of keys is one interval of
//! chosen keys.

use crate::Error;
use crate::bind::{BoundMask, Resolved};
use crate::bounds::Bounds;
use crate::frame::Frame;
use crate::interval::{Interval, IntervalSet};
use crate::pattern::Pattern;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Indices chosen of many, in their order: place `i` holds the one that has `i` chosen ones before it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Chosen {
    set: IntervalSet,
    /// The place of each interval's first index.
    starts: Vec<u32>,
    len: u32,
}

impl Chosen {
    pub(crate) fn new(set: IntervalSet) -> Self {
        let mut starts = Vec::with_capacity(set.as_slice().len());
        let mut len = 0;
        for run in set.iter() {
            starts.push(len);
            len += run.len();
        }
        Chosen { set, starts, len }
    }

    /// The index at `place`, which is below the number of chosen ones.
    pub(crate) fn origin(&self, place: u32) -> u32 {
        let run = self.starts.partition_point(|&start| start <= place) - 1;
        self.set.as_slice()[run].start + (place - self.starts[run])
    }

    /// Number of chosen indices below `index`: the place of `index`, or of the first chosen one after it.
    fn place(&self, index: u32) -> u32 {
        let runs = self.set.as_slice();
        let run = runs.partition_point(|run| run.end <= index);
        runs.get(run).map_or(self.len, |found| self.starts[run] + index.saturating_sub(found.start))
    }

    fn places(&self, set: &IntervalSet) -> IntervalSet {
        let mut places = IntervalSet::new();
        set.iter().for_each(|run| places.push(self.place(run.start), self.place(run.end)));
        places
    }

    /// The indices at `places`, run by run.
    fn runs(&self, places: Range<u32>) -> impl Iterator<Item = Interval> + '_ {
        let first = self.starts.partition_point(|&start| start <= places.start).saturating_sub(1);
        let runs = self.set.as_slice()[first..].iter().zip(&self.starts[first..]);
        runs.take_while(move |(_, start)| **start < places.end).map(move |(run, start)| {
            let before = places.start.saturating_sub(*start);
            Interval::new(run.start + before, run.start + run.len().min(places.end - start))
        })
    }
}

/// What a leaf of a pattern was made for, and which of its rows and keys are here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Selection {
    frame: Frame,
    rows: Arc<Chosen>,
    keys: Arc<Chosen>,
}

impl Selection {
    /// [`Pattern::row`] of `leaf`, by places.
    pub(crate) fn row(&self, leaf: &Pattern, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32)) {
        if keys.0 >= keys.1 {
            return;
        }
        let row = self.rows.origin(row);
        let mut by_place = |start: u32, end: u32| {
            let (start, end) = (self.keys.place(start).max(keys.0), self.keys.place(end).min(keys.1));
            if start < end {
                emit(start, end);
            }
        };
        let by_place: &mut dyn FnMut(u32, u32) = &mut by_place;
        // what looks at every key must not look at those between the chosen ones
        if leaf.looks_at_every_key() || matches!(leaf, Pattern::Stride(_) | Pattern::Array(..)) {
            for run in self.keys.runs(keys.0..keys.1) {
                leaf.row(&self.frame, row, (run.start, run.end), &mut &mut *by_place);
            }
        } else {
            let hull = (self.keys.origin(keys.0), self.keys.origin(keys.1 - 1) + 1);
            leaf.row(&self.frame, row, hull, &mut &mut *by_place);
        }
    }

    /// [`Pattern::alike`] of `leaf`, by places.
    pub(crate) fn alike(&self, leaf: &Pattern, row: u32) -> u32 {
        self.rows.place(leaf.alike(&self.frame, self.rows.origin(row)))
    }

    /// [`Pattern::bounds`] of `leaf`, by places.
    pub(crate) fn bounds(&self, leaf: &Pattern, rows: Range<u32>) -> Bounds {
        let by_run = self.rows.runs(rows).map(|run| {
            let found = leaf.bounds(&self.frame, run.start..run.end);
            Bounds { upper: self.keys.places(&found.upper), lower: self.keys.places(&found.lower) }
        });
        let all = by_run.reduce(|a, b| Bounds { upper: a.upper.union(&b.upper), lower: a.lower.intersect(&b.lower) });
        all.unwrap_or_else(|| Bounds::unknown(self.keys.len))
    }

    /// [`Pattern::last_border`] of `leaf`, by places.
    pub(crate) fn last_border(&self, leaf: &Pattern, after: u32, upto: u32) -> Option<u32> {
        let last = self.rows.len - 1;
        let origin = |place: u32| self.rows.origin(place.min(last));
        let border = leaf.last_border(&self.frame, origin(after), origin(upto))?;
        Some(self.rows.place(border)).filter(|place| *place > after)
    }

    fn pattern(selection: &Arc<Self>, pattern: &Pattern) -> Pattern {
        let all = |parts: &[Pattern]| parts.iter().map(|part| Self::pattern(selection, part)).collect();
        match pattern {
            Pattern::Band { lo: None, hi: None } => pattern.clone(),
            Pattern::Keys(set) => Pattern::Keys(Arc::new(selection.keys.places(set))),
            Pattern::Queries(set) => Pattern::Queries(Arc::new(selection.rows.places(set))),
            Pattern::Not(part) => Pattern::Not(Box::new(Self::pattern(selection, part))),
            Pattern::And(parts) => Pattern::And(all(parts)),
            Pattern::Or(parts) => Pattern::Or(all(parts)),
            leaf => Pattern::Selected(selection.clone(), Box::new(leaf.clone())),
        }
    }
}

/// The mask that another was selected from, and what was selected.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    bound: BoundMask,
    /// Its batch rows, where some were left out.
    batch: Option<Vec<usize>>,
    rows: Arc<Chosen>,
    keys: Arc<Chosen>,
}

impl Whole {
    /// The mask, with the indices that a cell of the selection has there.
    pub(crate) fn cell(&self, batch: usize, row: usize, key: usize) -> (&BoundMask, usize, usize, usize) {
        let batch = self.batch.as_ref().map_or(batch, |rows| rows[batch]);
        (&self.bound, batch, self.rows.origin(row as u32) as usize, self.keys.origin(key as u32) as usize)
    }
}

impl BoundMask {
    /// The same mask on some of its query rows and keys: place `i` of the result is the `i`-th of the rows (keys) given,
    /// in ascending order, for every batch row and head.
    ///
    /// A cell of the result is allowed exactly when it is in the whole, positions are those of the whole, and what is said
    /// of a cell is said with the whole's indices. Computing attention on selected rows and keys is what one process of many
    /// does, and what a cache does that has thrown keys away. The result has no serial form.
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
    /// [`Error::Shape`] when no row or no key is chosen, or one is outside the shape.
    pub fn select(
        &self,
        rows: impl IntoIterator<Item = Range<usize>>,
        keys: impl IntoIterator<Item = Range<usize>>,
    ) -> Result<BoundMask, Error> {
        let rows = Arc::new(choose("query rows", self.shape().q_len(), rows)?);
        let keys = Arc::new(choose("keys", self.shape().kv_len(), keys)?);
        let shape = self.shape().with_lens(rows.len as usize, keys.len as usize);
        let frame = Frame { q_len: rows.len, kv_len: keys.len, offset: 0, runs: None };
        let frames = vec![frame.clone(); shape.batch_len()];
        let resolved = |whole: &Resolved| {
            let selection = Selection { frame: whole.frame.clone(), rows: rows.clone(), keys: keys.clone() };
            Resolved { frame: frame.clone(), pattern: Selection::pattern(&Arc::new(selection), &whole.pattern) }
        };
        let patterns = self.resolved().iter().map(resolved).collect();
        let whole = Whole { bound: self.clone(), batch: None, rows: rows.clone(), keys: keys.clone() };
        Ok(self.narrowed(shape, frames, (patterns, self.pattern_list().to_vec()), whole))
    }

    /// The same mask on some of its batch rows, in the order given: [`select`](Self::select) for these.
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
    /// [`Error::Shape`] when no batch row is chosen, or one that is not there.
    pub fn select_batch(&self, batch: &[usize]) -> Result<BoundMask, Error> {
        let count = self.shape().batch_len();
        if let Some(row) = batch.iter().find(|row| **row >= count) {
            return Err(Error::Shape(format!("batch row {row} is selected, but there are {count}")));
        }
        if batch.is_empty() {
            return Err(Error::Shape(format!("no batch rows are selected: select at least one of {count}")));
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
        let all = |len: usize| Arc::new(Chosen::new(IntervalSet::all(len as u32)));
        let (rows, keys) = (all(shape.q_len()), all(shape.kv_len()));
        let whole = Whole { bound: self.clone(), batch: Some(batch.to_vec()), rows, keys };
        Ok(self.narrowed(shape, frames, (patterns, pattern_of), whole))
    }
}

fn choose(what: &str, len: usize, ranges: impl IntoIterator<Item = Range<usize>>) -> Result<Chosen, Error> {
    let mut chosen = Vec::new();
    for range in ranges {
        if range.end > len {
            return Err(Error::Shape(format!("{what} {range:?} are selected, but there are {len}")));
        }
        chosen.extend((!range.is_empty()).then_some(range.start as u32..range.end as u32));
    }
    match chosen.is_empty() {
        true => Err(Error::Shape(format!("no {what} are selected: select at least one of {len}"))),
        false => Ok(Chosen::new(chosen.into_iter().collect())),
    }
}
