//! [`Order`]: an order of queries or keys in which more tiles of a mask are full.
//!
//! An order is a list of groups of indices. Inside each group, indices ascend, so the indices of an interval are at
//! consecutive places. Example: 0, 2, 4 and 1, 3, 5 are the groups of an order of six keys. Of the keys 2..6, the keys
//! 2 and 4 are at places 1 and 2 of the first group, and the keys 3 and 5 at places 1 and 2 of the second. Planning
//! with an order costs as much as planning without an order.

use crate::sets::frame::Frame;
use crate::sets::interval::{Interval, IntervalSet};
use std::ops::Range;

/// The maximum number of residue classes (indices whose positions are equal modulo a number) of an order. With more
/// classes, a class would have too few keys to fill tiles, and the order would need too much memory.
pub(crate) const MOST_CLASSES: u32 = 4096;

/// An order of query rows or of keys, as a list of groups of indices; in each group, the indices ascend. The place of
/// an index is its number in the order, from 0. With [`Reorder::Copies`](crate::Reorder), the order of keys contains an
/// index twice, at two places. All other orders contain each index once.
///
/// ```
/// use noren_mask::{Facts, Shape, atoms::*};
/// let plan = (causal() & stride(2)).bind(&Shape::square(6), &Facts::new())?.plan();
/// let order = plan.patterns()[0].key_order().expect("strided keys are put in residue classes");
/// assert_eq!((0..6).map(|i| order.origin(i)).collect::<Vec<_>>(), [0, 2, 4, 1, 3, 5]);
/// assert_eq!(order.runs().collect::<Vec<_>>(), [(0, 2, 3), (1, 2, 3)]);
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Order {
    runs: Vec<Placed>,
    groups: Vec<Group>,
    /// The modulus of the residue classes: the positions in one class are equal modulo this number. The modulus is 1 if
    /// the groups of the order are not residue classes.
    modulus: u32,
}

/// A sequence of indices at consecutive places of an order. The first index has the place `at`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Placed {
    at: u32,
    indices: Indices,
}

impl Placed {
    fn end(self) -> u32 {
        self.at + self.indices.len
    }
}

/// A group of an order: the ascending indices at the places `start..end`. They are stored as disjoint sequences.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Group {
    runs: Range<usize>,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The residue class of the group: the positions of its indices, modulo the modulus of the order, equal this
    /// number. `None` if the group is not a residue class, such as a group of keys that are moved next to each other.
    pub(crate) class: Option<u32>,
}

/// The `len` indices `start`, `start + step`, `start + 2 * step`, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Indices {
    pub(crate) start: u32,
    pub(crate) step: u32,
    pub(crate) len: u32,
}

impl Indices {
    /// Returns the index at place `i` of this sequence, from 0.
    pub(crate) fn at(self, i: u32) -> u32 {
        self.start + i * self.step
    }

    pub(crate) fn last(self) -> u32 {
        self.at(self.len - 1)
    }

    pub(crate) fn adjacent(self) -> bool {
        self.step == 1 || self.len == 1
    }

    /// Returns the number of indices of this sequence that are less than `index`.
    pub(crate) fn below(self, index: u32) -> u32 {
        index.saturating_sub(self.start).div_ceil(self.step).min(self.len)
    }
}

/// A range of indices `start..end` with consecutive positions, as `(start, end, shift)`: the position of an index is
/// the index plus `shift`.
type Piece = (u32, u32, i64);

impl Order {
    /// Returns the order of query rows: first the rows in `gathered`, then the other rows, sorted by their position
    /// modulo `modulus`.
    pub(crate) fn of_queries(frame: &Frame, modulus: u32, gathered: &IntervalSet) -> Order {
        let mut order = Order::new(modulus);
        order.group(None, gathered.iter().map(adjacent));
        let pieces: Vec<Piece> =
            gathered.complement(frame.q_len).iter().map(|i| (i.start, i.end, frame.offset)).collect();
        order.classes(&pieces);
        order
    }

    /// Returns the order of keys: first the keys in `gathered`, then the other keys, sorted by their position modulo
    /// `modulus`, and last the cache slots that hold no key. If `modulus` is 1, all keys stay in order, except that the
    /// keys in `gathered` move next to the first of them. For example, if keys 2 and 5 of six keys are gathered, the
    /// order is 0, 1, 2, 5, 3, 4.
    pub(crate) fn of_keys(frame: &Frame, modulus: u32, gathered: &IntervalSet) -> Order {
        let mut order = Order::new(modulus);
        let rest = gathered.complement(frame.kv_len);
        if modulus == 1 {
            let first = gathered.covering_range().map_or(0, |covering| covering.start);
            order.group(Some(0), rest.within(0, first).map(adjacent));
            order.group(None, gathered.iter().map(adjacent));
            order.group(Some(0), rest.within(first, frame.kv_len).map(adjacent));
            return order;
        }
        order.group(None, gathered.iter().map(adjacent));
        let mut pieces: Vec<Piece> = Vec::new();
        for i in rest.iter() {
            frame.pieces((i.start, i.end), &mut |first, last, shift| pieces.push((first, last, shift)));
        }
        order.classes(&pieces);
        let placed: IntervalSet = pieces.iter().map(|p| p.0..p.1).collect();
        order.group(None, rest.minus(&placed).iter().map(adjacent));
        order
    }

    /// Returns an order that contains every key twice: first all keys in the order of their indices, then all keys
    /// sorted by their position modulo `modulus`. Cache slots that hold no key are only in the first half.
    pub(crate) fn twice(frame: &Frame, modulus: u32) -> Order {
        let mut order = Order::new(modulus);
        order.group(None, std::iter::once(Indices { start: 0, step: 1, len: frame.kv_len }));
        let mut pieces: Vec<Piece> = Vec::new();
        frame.pieces((0, frame.kv_len), &mut |first, last, shift| pieces.push((first, last, shift)));
        order.classes(&pieces);
        order
    }

    /// Returns the order that contains the indices of the first set, then those of the second set, and so on. Each set
    /// that is not empty is one group.
    pub(crate) fn of_groups(sets: &[IntervalSet]) -> Order {
        let mut order = Order::new(1);
        sets.iter().for_each(|set| order.group(None, set.iter().map(adjacent)));
        order
    }

    /// Returns the index of the group for residue class `class`, or `None` if there is no such group. The residue classes
    /// of the order must ascend, without a group between them.
    pub(crate) fn class(&self, class: u32) -> Option<usize> {
        let first = self.groups.iter().take_while(|group| group.class.is_none()).count();
        let at = first + self.groups[first..].partition_point(|group| group.class.is_some_and(|own| own < class));
        self.groups.get(at).is_some_and(|group| group.class == Some(class)).then_some(at)
    }

    fn new(modulus: u32) -> Order {
        Order { runs: Vec::new(), groups: Vec::new(), modulus }
    }

    fn classes(&mut self, pieces: &[Piece]) {
        let modulus = i64::from(self.modulus);
        for class in 0..modulus {
            let of_class = pieces.iter().map(|&(first, last, shift)| {
                let start = i64::from(first) + (class - i64::from(first) - shift).rem_euclid(modulus);
                let len = (i64::from(last) - start).max(0) as u64;
                Indices { start: start as u32, step: self.modulus, len: len.div_ceil(modulus as u64) as u32 }
            });
            // a start beyond 32 bits has a run of length 0
            let of_class: Vec<Indices> = of_class.filter(|indices| indices.len > 0).collect();
            self.group(Some(class as u32), of_class.into_iter());
        }
    }

    /// Appends a group with the indices of `runs`, which must ascend. Appends nothing if `runs` has no index.
    fn group(&mut self, class: Option<u32>, runs: impl Iterator<Item = Indices>) {
        let (first, start) = (self.runs.len(), self.len());
        let mut at = start;
        for indices in runs {
            self.runs.push(Placed { at, indices });
            at += indices.len;
        }
        if at > start {
            self.groups.push(Group { runs: first..self.runs.len(), start, end: at, class });
        }
    }

    /// Returns the number of places. An index that the order contains twice has two places.
    pub fn len(&self) -> u32 {
        self.groups.last().map_or(0, |g| g.end)
    }

    /// Returns whether the order has no places.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the index of the query row or key that is at place `place` of the order.
    ///
    /// # Panics
    /// Panics if `place` is not below [`len`](Self::len).
    pub fn origin(&self, place: u32) -> u32 {
        let run = &self.runs[self.runs.partition_point(|run| run.end() <= place)];
        run.indices.at(place - run.at)
    }

    /// Returns the order as sequences `(first index, step, number of indices)`, by ascending place. For example, the
    /// sequence (1, 2, 3) has the indices 1, 3, 5.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (u32, u32, u32)> + '_ {
        self.runs.iter().map(|run| (run.indices.start, run.indices.step, run.indices.len))
    }

    /// Returns whether the order changes nothing: the place of every index equals the index.
    pub(crate) fn is_identity(&self) -> bool {
        self.runs.iter().all(|run| run.at == run.indices.start && run.indices.adjacent())
    }

    pub(crate) fn modulus(&self) -> u32 {
        self.modulus
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the index of the group that contains the place `place`.
    pub(crate) fn group_at(&self, place: u32) -> usize {
        self.groups.partition_point(|g| g.end <= place)
    }

    /// Returns the groups that have some of the places `places`, each with its part of these places.
    pub(crate) fn groups_within(&self, places: Range<u32>) -> impl Iterator<Item = (&Group, Range<u32>)> {
        let groups = self.groups[self.group_at(places.start)..].iter().take_while(move |g| g.start < places.end);
        groups.map(move |group| (group, places.start.max(group.start)..places.end.min(group.end)))
    }

    /// Returns the place of the first index of `group` that is at least `index`. Returns `group.end` if all indices of
    /// the group are less than `index`.
    pub(crate) fn place(&self, group: &Group, index: u32) -> u32 {
        let runs = &self.runs[group.runs.clone()];
        let before = runs.partition_point(|run| run.indices.start < index).checked_sub(1);
        before.map_or(group.start, |before| runs[before].at + runs[before].indices.below(index))
    }

    /// Returns the indices at the places `places`, as sequences in ascending order of place.
    pub(crate) fn indices(&self, places: Range<u32>) -> impl Iterator<Item = Indices> + '_ {
        let first = self.runs.partition_point(|run| run.end() <= places.start);
        self.runs[first..].iter().take_while(move |run| run.at < places.end).map(move |run| {
            let (from, to) = (places.start.max(run.at) - run.at, places.end.min(run.end()) - run.at);
            Indices { start: run.indices.at(from), len: to - from, ..run.indices }
        })
    }

    /// Returns the places of the indices in `set`. Only the groups of this order with the indices `groups` are
    /// searched.
    pub(crate) fn places(&self, set: &IntervalSet, groups: Range<usize>) -> IntervalSet {
        let mut out = IntervalSet::new();
        for group in &self.groups[groups] {
            for Interval { start, end } in set.iter() {
                out.push(self.place(group, start), self.place(group, end));
            }
        }
        out
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Placed>() * self.runs.len() + size_of::<Group>() * self.groups.len()
    }
}

fn adjacent(interval: Interval) -> Indices {
    Indices { start: interval.start, step: 1, len: interval.len() }
}
