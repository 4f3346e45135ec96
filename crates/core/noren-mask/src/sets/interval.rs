//! Sets of positions as sorted half-open intervals; all planning uses these sets.

use smallvec::SmallVec;
use std::fmt;

/// A half-open run of positions `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interval {
    /// The first position in the interval.
    pub start: u32,
    /// The first position after the interval.
    pub end: u32,
}

impl Interval {
    /// Returns the interval `start..end`. The interval is empty if `end <= start`.
    pub const fn new(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// Returns the number of positions.
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Returns whether the interval is empty.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns the intersection of `self` and `other`, which may be empty.
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A set of positions as sorted, disjoint intervals. Intervals are not empty and not adjacent.
///
/// ```
/// use noren_mask::interval::{Interval, IntervalSet};
/// let a: IntervalSet = [0..4, 8..12].into_iter().collect();
/// let b = IntervalSet::from(2..9);
/// assert_eq!(a.intersect(&b), [2..4, 8..9].into_iter().collect());
/// assert_eq!(a.union(&b), IntervalSet::from(0..12));
/// assert_eq!(a.complement(10), IntervalSet::from(4..8));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct IntervalSet(SmallVec<[Interval; 4]>);

impl IntervalSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the set of all positions `0..len`.
    pub fn all(len: u32) -> Self {
        Self::from(0..len)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the intervals in ascending order.
    pub fn as_slice(&self) -> &[Interval] {
        &self.0
    }

    /// Returns an iterator over the intervals in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Interval> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of positions.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|i| u64::from(i.len())).sum()
    }

    /// Returns the smallest interval that contains the set, or `None` if the set is empty.
    pub fn covering_range(&self) -> Option<Interval> {
        Some(Interval::new(self.0.first()?.start, self.0.last()?.end))
    }

    /// Returns whether the set contains `position`.
    pub fn contains(&self, position: u32) -> bool {
        let i = self.0.partition_point(|i| i.end <= position);
        self.0.get(i).is_some_and(|i| i.start <= position)
    }

    /// Returns whether the set contains all of `start..end`. The result is true for an empty range.
    pub fn contains_range(&self, start: u32, end: u32) -> bool {
        if end <= start {
            return true;
        }
        let i = self.0.partition_point(|i| i.end <= start);
        self.0.get(i).is_some_and(|i| i.start <= start && end <= i.end)
    }

    /// Returns whether the set contains at least one position of `start..end`. The result is false for an empty range.
    pub fn meets(&self, start: u32, end: u32) -> bool {
        let i = self.0.partition_point(|i| i.end <= start);
        start < end && self.0.get(i).is_some_and(|i| i.start < end)
    }

    /// Returns the part of the set that is in `start..end`, as non-empty intervals in ascending order.
    pub fn within(&self, start: u32, end: u32) -> impl Iterator<Item = Interval> + '_ {
        let first = self.0.partition_point(|i| i.end <= start);
        self.0[first..]
            .iter()
            .take_while(move |i| i.start < end)
            .map(move |i| i.intersect(Interval::new(start, end)))
            .filter(|i| !i.is_empty())
    }

    /// Adds the positions `start..end`. `start` must be at least the `start` of every earlier call; the ranges may
    /// overlap.
    pub fn push(&mut self, start: u32, end: u32) {
        if end <= start {
            return;
        }
        match self.0.last_mut() {
            Some(last) if start <= last.end => {
                debug_assert!(start >= last.start, "intervals must be pushed in ascending order of their start");
                last.end = last.end.max(end);
            }
            _ => self.0.push(Interval::new(start, end)),
        }
    }

    /// Returns the positions that are in `self` and in `other`.
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut out = Self::new();
        while let (Some(&&x), Some(&&y)) = (a.peek(), b.peek()) {
            let both = x.intersect(y);
            out.push(both.start, both.end);
            if x.end < y.end {
                a.next();
            } else {
                b.next();
            }
        }
        out
    }

    /// Returns the positions that are in `self` or in `other`.
    pub fn union(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.as_slice(), other.0.as_slice());
        let mut out = Self::new();
        loop {
            let from_a = match (a.first(), b.first()) {
                (Some(x), Some(y)) => x.start <= y.start,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return out,
            };
            let side = if from_a { &mut a } else { &mut b };
            let (first, rest) = side.split_first().expect("checked above");
            out.push(first.start, first.end);
            *side = rest;
        }
    }

    /// Returns the positions of `0..len` that are not in the set.
    pub fn complement(&self, len: u32) -> Self {
        let mut out = Self::new();
        let mut at = 0;
        for i in &self.0 {
            out.push(at, i.start.min(len));
            at = i.end;
        }
        out.push(at, len);
        out
    }

    /// Returns the positions that are in `self` and not in `other`.
    pub fn minus(&self, other: &Self) -> Self {
        match self.covering_range() {
            Some(covering) => self.intersect(&other.complement(covering.end)),
            None => Self::new(),
        }
    }
}

impl fmt::Debug for IntervalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

impl From<std::ops::Range<u32>> for IntervalSet {
    fn from(range: std::ops::Range<u32>) -> Self {
        let mut out = Self::new();
        out.push(range.start, range.end);
        out
    }
}

/// Collects ranges into a set. Ranges may have any order and may overlap.
impl FromIterator<std::ops::Range<u32>> for IntervalSet {
    fn from_iter<T: IntoIterator<Item = std::ops::Range<u32>>>(ranges: T) -> Self {
        let mut all: Vec<_> = ranges.into_iter().collect();
        all.sort_by_key(|r| r.start);
        let mut out = Self::new();
        for r in all {
            out.push(r.start, r.end);
        }
        out
    }
}
