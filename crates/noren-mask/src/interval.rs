//! Sorted sets of half-open intervals, the currency of planning.

use smallvec::SmallVec;
use std::fmt;

/// A half-open run of positions `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interval {
    /// The first position inside.
    pub start: u32,
    /// The first position after.
    pub end: u32,
}

impl Interval {
    /// `start..end`; empty when `end <= start`.
    pub const fn new(start: u32, end: u32) -> Self {
        Self { start, end }
    }

    /// Number of positions inside.
    pub const fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// True when nothing is inside.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The common part, possibly empty.
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A set of positions as intervals that are sorted, disjoint, not empty and do not touch.
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
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// `0..len`.
    pub fn all(len: u32) -> Self {
        Self::from(0..len)
    }

    /// True when no position is inside.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The intervals, ascending.
    pub fn as_slice(&self) -> &[Interval] {
        &self.0
    }

    /// The intervals, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Interval> + '_ {
        self.0.iter().copied()
    }

    /// Number of positions inside.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|i| u64::from(i.len())).sum()
    }

    /// Smallest interval around everything inside, `None` when empty.
    pub fn hull(&self) -> Option<Interval> {
        Some(Interval::new(self.0.first()?.start, self.0.last()?.end))
    }

    /// True when `position` is inside.
    pub fn contains(&self, position: u32) -> bool {
        let i = self.0.partition_point(|i| i.end <= position);
        self.0.get(i).is_some_and(|i| i.start <= position)
    }

    /// True when all of `start..end` is inside; an empty range always is.
    pub fn contains_range(&self, start: u32, end: u32) -> bool {
        if end <= start {
            return true;
        }
        let i = self.0.partition_point(|i| i.end <= start);
        self.0.get(i).is_some_and(|i| i.start <= start && end <= i.end)
    }

    /// True when any of `start..end` is inside.
    pub fn meets(&self, start: u32, end: u32) -> bool {
        let i = self.0.partition_point(|i| i.end <= start);
        start < end && self.0.get(i).is_some_and(|i| i.start < end)
    }

    /// The intervals cut to `start..end`, ascending, none empty.
    pub fn within(&self, start: u32, end: u32) -> impl Iterator<Item = Interval> + '_ {
        let first = self.0.partition_point(|i| i.end <= start);
        self.0[first..]
            .iter()
            .take_while(move |i| i.start < end)
            .map(move |i| i.intersect(Interval::new(start, end)))
            .filter(|i| !i.is_empty())
    }

    /// Appends `start..end`, which must not begin before the end of what is inside minus what it overlaps:
    /// intervals come in order of their start.
    pub fn push(&mut self, start: u32, end: u32) {
        if end <= start {
            return;
        }
        match self.0.last_mut() {
            Some(last) if start <= last.end => {
                debug_assert!(start >= last.start, "intervals are pushed in order");
                last.end = last.end.max(end);
            }
            _ => self.0.push(Interval::new(start, end)),
        }
    }

    /// Positions inside both.
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

    /// Positions inside either.
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

    /// Positions of `0..len` outside.
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

    /// Positions inside `self` and not inside `other`.
    pub fn minus(&self, other: &Self) -> Self {
        match self.hull() {
            Some(hull) => self.intersect(&other.complement(hull.end)),
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

/// Ranges in any order; they may overlap.
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
