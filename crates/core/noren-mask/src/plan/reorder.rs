//! [`Reordering`]: the orders of queries and keys in which a pattern (the mask of one batch row and head) is planned,
//! and the operations of the pattern in these orders.
//!
//! The operations are those of [`Pattern`]: bounds on the keys that some query rows read, and the cells of a rectangle.
//! The place of a row or key is its number in an [`Order`], from 0. Atoms return the indices of keys, and this module
//! converts them to places. An order consists of groups; an interval of indices becomes one interval of places in each
//! group.

use crate::mask::pattern::{Pattern, fill_lines};
use crate::plan::patch::Patches;
use crate::plan::split::Split;
use crate::sets::bits::{row_words, set_range};
use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;
use crate::sets::interval::{Interval, IntervalSet};
use crate::sets::leaf::{Neighborhood, gcd};
use crate::sets::order::{Group, Indices, MOST_CLASSES, Order};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;

/// The orders in which a plan computes the queries and keys of a pattern (the mask of one batch row and head).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reordering {
    pub(crate) queries: Order,
    /// The order of keys, or `None` if keys are not reordered.
    pub(crate) keys: Option<Order>,
    /// True if every query row reads only keys of its own residue class. A residue class has the rows and keys whose
    /// positions are equal modulo the modulus of the order.
    within_class: bool,
    gathered: [u64; 2],
    /// The division of the cells into near and far cells, if the order of keys contains every key twice. Near cells are
    /// read with keys in the order of indices, far cells with keys sorted by residue class (position modulo a number).
    /// `None` if the order contains every key once.
    pub(crate) split: Option<Box<Split>>,
    /// The patches (rectangles) of a grid of tokens in whose order the query rows are sorted, or `None` if the query
    /// rows are not sorted by patches.
    pub(crate) patches: Option<Patches>,
}

impl Reordering {
    /// Returns the reordering in which the query rows `rows` and the keys `keys` are gathered (placed next to one
    /// another). All other rows and keys are sorted by their positions modulo `modulus`; if `modulus` is 1, they are
    /// not sorted.
    pub(crate) fn new(pattern: &Pattern, frame: &Frame, modulus: u32, rows: &IntervalSet, keys: &IntervalSet) -> Self {
        let order = Order::of_keys(frame, modulus, keys);
        Reordering {
            queries: Order::of_queries(frame, modulus, rows),
            keys: (!order.is_identity() || modulus > 1).then_some(order),
            within_class: modulus > 1
                && rows.is_empty()
                && keys.is_empty()
                && pattern.modulus().is_multiple_of(u64::from(modulus)),
            gathered: [rows.count(), keys.count()],
            split: None,
            patches: None,
        }
    }

    /// Returns the reordering with the order `queries` of query rows and the order `keys` of keys. If `keys` contains
    /// each key at two places, `split` must be given: its near cells are read at the first place of a key, its far
    /// cells at the second place.
    pub(crate) fn new_parts(queries: Order, keys: Option<Order>, split: Option<Box<Split>>) -> Self {
        Reordering { queries, keys, within_class: false, gathered: [0; 2], split, patches: None }
    }

    pub(crate) fn modulus(&self) -> u32 {
        self.queries.modulus()
    }

    /// Returns the reordering in which the query rows are sorted by `patches`, the rectangles of a grid of tokens. Keys
    /// keep the order of their indices.
    pub(crate) fn with_patches(patches: &Patches, frame: &Frame) -> Self {
        let mut reordering = Reordering::new_parts(patches.order(frame), None, None);
        reordering.patches = Some(*patches);
        reordering
    }

    /// Returns the reordering that contains each key twice: first all keys in the order of indices, for the near cells
    /// of `split` (those allowed without the stride), then all keys by residue class, for the far cells. If
    /// `rows_by_class` is true, query rows are sorted by their positions modulo the step of `split`; otherwise they
    /// keep the order of their indices.
    pub(crate) fn with_split(split: Split, frame: &Frame, rows_by_class: bool) -> Self {
        let modulus = if rows_by_class { split.step() } else { 1 };
        let keys = Some(split.keys(frame));
        Reordering::new_parts(Order::of_queries(frame, modulus, &IntervalSet::new()), keys, Some(Box::new(split)))
    }
}

/// Writes a description of the reordering for users, such as `2 queries gathered, 8 residue classes`.
impl fmt::Display for Reordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, keys] = self.gathered;
        let mut said = false;
        let mut say = |text: String| {
            let and = if std::mem::replace(&mut said, true) { ", " } else { "" };
            write!(f, "{and}{text}")
        };
        if rows > 0 {
            say(format!("{rows} queries gathered"))?;
        }
        if keys > 0 && self.keys.is_some() {
            say(format!("{keys} keys gathered"))?;
        }
        if let Some(Patches { patch: [z, y, x], .. }) = self.patches {
            say(match z {
                1 => format!("patches of {y} x {x} queries"),
                _ => format!("patches of {z} x {y} x {x} queries"),
            })?;
        }
        match (&self.split, self.modulus()) {
            (Some(split), _) => say(format!("keys in original order and in {} residue classes", split.step())),
            (None, 1) => Ok(()),
            (None, n) => say(format!("{n} residue classes")),
        }
    }
}

/// Query rows of one group of an [`Order`], and the groups of keys that these query rows may read (a range of group
/// numbers in the order of keys).
struct Rows<'a> {
    frame: &'a Frame,
    rows: &'a [Indices],
    class: Option<u32>,
    keys: Option<(&'a Order, Range<usize>)>,
}

impl Rows<'_> {
    fn each(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().flat_map(|r| (0..r.len).map(move |i| r.at(i)))
    }
}

/// The keys at the places `start..end`, which are all in one group of the order of keys.
struct Keys<'a> {
    order: Option<(&'a Order, &'a Group)>,
    start: u32,
    end: u32,
    /// (smallest index, largest index + 1) of the keys at the places `start..end`.
    covering: (u32, u32),
}

impl<'a> Keys<'a> {
    /// Returns the keys at the places `places`, divided by group: one value for each group of the order.
    fn of(order: Option<&'a Order>, places: Range<u32>) -> SmallVec<[Self; 4]> {
        let Some(order) = order else {
            let (start, end) = (places.start, places.end);
            return [Keys { order: None, start, end, covering: (start, end) }].into_iter().collect();
        };
        let keys = order.groups_within(places).map(|(group, Range { start, end })| Keys {
            order: Some((order, group)),
            start,
            end,
            covering: (order.origin(start), order.origin(end - 1) + 1),
        });
        keys.collect()
    }

    /// Returns the place of the key with index `index`. If `self` has no key with this index, returns the place of the
    /// first key in `self` with a larger index.
    fn place(&self, index: u32) -> u32 {
        self.order.map_or(index, |(order, group)| order.place(group, index)).clamp(self.start, self.end)
    }

    /// Returns (residue, modulus) if the group of these keys is a residue class: each key has a position equal to
    /// `residue` modulo `modulus`. Otherwise returns `None`.
    fn class(&self) -> Option<(u32, u32)> {
        self.order.and_then(|(order, group)| Some((group.class?, order.modulus())))
    }
}

impl Pattern {
    /// Returns bounds on the keys that the query rows at the places `rows` read. The result has places of keys in
    /// `order`. `rows` must not be empty.
    pub(crate) fn ordered_bounds(&self, frame: &Frame, order: &Reordering, rows: Range<u32>) -> Bounds {
        Bounds::of_all(order.queries.groups_within(rows).map(|(group, places)| {
            let indices: SmallVec<[Indices; 8]> = order.queries.indices(places).collect();
            if let (Some(split), Some(keys)) = (&order.split, &order.keys) {
                let class = group.class.filter(|_| order.modulus() > 1);
                return split.bounds(frame, keys, &indices, class);
            }
            let keys = order.keys.as_ref().map(|keys| (keys, order.reach(keys, group)));
            self.places(&Rows { frame, rows: &indices, class: group.class, keys })
        }))
    }

    /// Returns bounds on the keys that the query rows `rows` read: the keys that at least one row reads, and the keys
    /// that every row reads. The result has places in the order of keys, and only places in the groups that the rows
    /// may read.
    fn places(&self, rows: &Rows<'_>) -> Bounds {
        let Some((order, groups)) = &rows.keys else {
            return self.bounds_with(rows.frame.kv_len, &|atom| atom.bounds_of(rows));
        };
        let found = self.bounds_with(order.len(), &|atom| atom.places_of_atom(rows, order, groups));
        let groups = &order.groups()[groups.clone()];
        let ends = groups.first().zip(groups.last());
        let reach: IntervalSet = ends.map_or(0..0, |(first, last)| first.start..last.end).into();
        found.map(|set| set.intersect(&reach))
    }

    /// Returns the bounds of [`places`](Self::places) for an atom. `order` and `groups` are the keys of `rows`.
    fn places_of_atom(&self, rows: &Rows<'_>, order: &Order, groups: &Range<usize>) -> Bounds {
        match self {
            Pattern::Stride(step) if divides(*step, order.modulus()) && rows.class.is_some() => {
                let residue = |class: u32| i64::from(class) % step;
                let mut bounds = Bounds::nothing();
                for group in &order.groups()[groups.clone()] {
                    if group.class.is_none_or(|class| Some(residue(class)) == rows.class.map(residue)) {
                        bounds.upper.push(group.start, group.end);
                    }
                    if group.class.is_some_and(|class| Some(residue(class)) == rows.class.map(residue)) {
                        bounds.lower.push(group.start, group.end);
                    }
                }
                bounds
            }
            Pattern::Neighborhood(grid) if lines_are_classes(grid, order, rows.class) => {
                let own = groups.clone().find(|&i| order.groups()[i].class == rows.class).map_or(0..0, |i| i..i + 1);
                let each = rows.each().map(|row| {
                    let (mut lines, keys) = (Vec::new(), (0, rows.frame.kv_len));
                    grid.lines_of(rows.frame, rows.frame.query(row), keys, &mut |a, z| lines.push(a..z));
                    Bounds::exact(order.places(&lines.into_iter().collect(), own.clone()))
                });
                // gathered keys and empty slots have no class: a row may read some of them
                let classless = groups.clone().filter(|&i| order.groups()[i].class.is_none());
                let index = self.bounds_of(rows);
                classless.fold(Bounds::of_all(each), |bounds, i| {
                    bounds.or(&index.clone().map(|set| order.places(&set, i..i + 1)))
                })
            }
            _ => self.bounds_of(rows).map(|set| order.places(&set, groups.clone())),
        }
    }

    /// Returns bounds on the keys that `rows` read, as indices of keys, for a pattern that is not a combination (`Not`,
    /// `And`, `Or`). If the rows are consecutive, the result is that of [`bounds`](Self::bounds). If they are not, the
    /// bounds are exact for a pattern with [blocks](Self::has_blocks). For a pattern without blocks, they are usually
    /// the bounds of the smallest range that contains the rows.
    fn bounds_of(&self, rows: &Rows<'_>) -> Bounds {
        let frame = rows.frame;
        let (first, last) = (rows.rows[0].start, rows.rows[rows.rows.len() - 1].last());
        let covering = first..last + 1;
        match self {
            _ if rows.rows.len() == 1 && rows.rows[0].adjacent() => self.bounds(frame, covering),
            Pattern::Neighborhood(_) if rows.rows.iter().all(|run| run.adjacent()) => {
                Bounds::of_all(rows.rows.iter().map(|run| self.bounds(frame, run.start..run.last() + 1)))
            }
            Pattern::Array(array, slice) => {
                let bounds = array.0.slice(*slice).bounds(covering.start, covering.end, frame.kv_len);
                bounds.unwrap_or_else(|| self.bounds_by_rows(frame, rows.each()))
            }
            Pattern::Atom(atom) => match atom.bounds_of(frame, rows.each()) {
                Some(bounds) => bounds,
                None if self.has_blocks() => self.bounds_by_rows(frame, rows.each()),
                None => self.bounds(frame, covering),
            },
            _ if self.has_blocks() => self.bounds_by_rows(frame, rows.each()),
            _ => self.bounds(frame, covering),
        }
    }

    /// Writes the cells of `rows` x `keys` as bits, as [`fill`](Self::fill) does. `rows` and `keys` are places in
    /// `order`.
    pub(crate) fn ordered_fill(
        &self,
        frame: &Frame,
        order: &Reordering,
        rows: Range<u32>,
        keys: Range<u32>,
        words: &mut [u64],
    ) {
        let stride = row_words(keys.len() as u32);
        if let (Some(split), Some(by_key)) = (&order.split, &order.keys) {
            words.fill(0);
            for (place, line) in rows.zip(words.chunks_mut(stride)) {
                split.row(frame, by_key, order.queries.origin(place), keys.clone(), &mut |start, end| {
                    set_range(line, (start - keys.start) as usize, (end - keys.start) as usize);
                });
            }
            return;
        }
        let pieces = Keys::of(order.keys.as_ref(), keys.clone());
        let mut words = words;
        for (group, places) in order.queries.groups_within(rows) {
            for indices in order.queries.indices(places) {
                let (now, rest) = words.split_at_mut(indices.len as usize * stride);
                self.fill_places(frame, (indices, group.class), &pieces, now);
                words = rest;
            }
        }
    }

    /// Returns bounds on the keys that the query rows `rows` read in the group with number `group`, as places in the
    /// order `keys`. All positions of the rows, and of the keys in the group, must be equal to `class` modulo the
    /// modulus of `keys`.
    pub(crate) fn class_bounds(
        &self,
        frame: &Frame,
        keys: &Order,
        group: usize,
        rows: &[Indices],
        class: u32,
    ) -> Bounds {
        self.places(&Rows { frame, rows, class: Some(class), keys: Some((keys, group..group + 1)) })
    }

    /// Writes the cells of query row `row` as bits, one for each key at the places `places` of the order `keys`. The
    /// positions of the row and of these keys must be equal to `class` modulo the modulus of `keys`.
    pub(crate) fn class_fill(
        &self,
        frame: &Frame,
        keys: &Order,
        (row, class): (u32, u32),
        places: Range<u32>,
        words: &mut [u64],
    ) {
        let row = Indices { start: row, step: 1, len: 1 };
        self.fill_places(frame, (row, Some(class)), &Keys::of(Some(keys), places), words);
    }

    fn fill_places(
        &self,
        frame: &Frame,
        (indices, class): (Indices, Option<u32>),
        keys: &[Keys<'_>],
        words: &mut [u64],
    ) {
        let (start, end) = (keys[0].start, keys[keys.len() - 1].end);
        let in_place = indices.adjacent() && keys.len() == 1 && keys[0].order.is_none();
        self.fill_with(end - start, words, &|atom, words| {
            if in_place {
                return atom.fill(frame, indices.start..indices.last() + 1, Interval::new(start, end), words);
            }
            fill_lines(words, row_words(end - start), |i, line| {
                for piece in keys {
                    atom.row_places(frame, indices.at(i), class, piece, &mut |a, z| {
                        set_range(line, (a - start) as usize, (z - start) as usize);
                    });
                }
                indices.below(atom.equal_until(frame, indices.at(i)))
            });
        });
    }

    /// Calls `emit(start, end)` for each range of places in `keys` whose keys query row `row` may read. `class` is the
    /// position of the row modulo the modulus of the order, or `None` if rows are not divided by residue. The pattern
    /// must not be a combination (`Not`, `And`, `Or`).
    fn row_places(
        &self,
        frame: &Frame,
        row: u32,
        class: Option<u32>,
        keys: &Keys<'_>,
        emit: &mut impl FnMut(u32, u32),
    ) {
        let mut emit_indices = |a: u32, z: u32| {
            let (a, z) = (keys.place(a), keys.place(z));
            if a < z {
                emit(a, z);
            }
        };
        match (self, keys.class().zip(class), keys.order) {
            (Pattern::Stride(step), Some(((key, modulus), query)), _) if divides(*step, modulus) => {
                if (i64::from(key) - i64::from(query)) % step == 0 {
                    emit(keys.start, keys.end);
                }
            }
            (Pattern::Neighborhood(grid), Some(((key, _), query)), Some((order, _)))
                if lines_are_classes(grid, order, class) =>
            {
                if key == query {
                    grid.lines_of(frame, frame.query(row), keys.covering, &mut emit_indices);
                }
            }
            // an atom that evaluates every key evaluates only these keys, not the keys between them
            (leaf, _, Some((order, _))) if leaf.looks_at_every_key() => {
                for run in order.indices(keys.start..keys.end) {
                    if run.adjacent() {
                        self.row(frame, row, (run.start, run.last() + 1), &mut emit_indices);
                    } else {
                        (0..run.len).for_each(|i| self.row(frame, row, (run.at(i), run.at(i) + 1), &mut emit_indices));
                    }
                }
            }
            _ => self.row(frame, row, keys.covering, &mut emit_indices),
        }
    }

    /// Returns a number that divides the distance `k - q` of every allowed cell. For example, the result is 8 for
    /// `causal & stride(8)`. The result is 0 if all distances are 0, and 1 if no other divisor is found. The number
    /// depends only on the mask, not on the numbers of queries and keys or on the first positions of keys or documents.
    pub(crate) fn modulus(&self) -> u64 {
        match self {
            Pattern::Stride(step) => *step as u64,
            Pattern::Neighborhood(grid) => grid.modulus(),
            // cells of all parts: the least common multiple, unless it is too large
            Pattern::And(parts) => parts.iter().map(Pattern::modulus).fold(1, |all, part| match gcd(all, part) {
                0 => 0,
                _ if all == 0 || part == 0 => 0,
                common if all / common <= u64::from(MOST_CLASSES) / part.min(u64::from(MOST_CLASSES)) => {
                    all / common * part
                }
                _ => all.max(1),
            }),
            Pattern::Or(parts) => parts.iter().map(Pattern::modulus).fold(0, gcd),
            _ => 1,
        }
    }

    /// Returns the [`modulus`](Self::modulus) of the whole pattern (a number that divides the distance of every allowed
    /// cell) if this modulus is from 2 to [`MOST_CLASSES`]. Otherwise, returns the largest modulus in this range that
    /// an operand of `&` or `|` has, or 1 if no operand has one.
    pub(crate) fn any_modulus(&self) -> u32 {
        let own = self.modulus();
        if (2..=u64::from(MOST_CLASSES)).contains(&own) {
            return own as u32;
        }
        match self {
            Pattern::And(parts) | Pattern::Or(parts) => parts.iter().map(Pattern::any_modulus).max().unwrap_or(1),
            _ => 1,
        }
    }

    /// Adds the query rows of each `queries(..)` that is an operand of `|` to `rows`, and the keys of each `keys(..)`
    /// that is an operand of `|` to `keys`. For example, `causal | queries(0) | keys(5)` adds row 0 and key 5.
    /// `global(..)` adds both rows and keys.
    pub(crate) fn global(&self, rows: &mut IntervalSet, keys: &mut IntervalSet) {
        match self {
            Pattern::And(parts) => parts.iter().for_each(|p| p.global(rows, keys)),
            Pattern::Or(parts) => {
                for part in parts {
                    match part {
                        Pattern::Queries(set) => *rows = rows.union(set),
                        Pattern::Keys(set) => *keys = keys.union(set),
                        other => other.global(rows, keys),
                    }
                }
            }
            _ => {}
        }
    }
}

impl Reordering {
    /// Returns the range of groups in the order `keys` (group numbers, from 0) that the query rows of the group
    /// `queries` may read.
    fn reach(&self, keys: &Order, queries: &Group) -> Range<usize> {
        match queries.class {
            Some(class) if self.within_class => keys.class(class).map_or(0..0, |group| group..group + 1),
            _ => 0..keys.groups().len(),
        }
    }
}

fn divides(step: i64, modulus: u32) -> bool {
    i64::from(modulus) % step == 0
}

/// Returns true if, in each line of the grid, a query of residue class `class` reads consecutive keys of this class.
/// For this, the modulus of `order` must equal the dilation along a line, and must equal the common divisor of all
/// distances in `grid`.
fn lines_are_classes(grid: &Neighborhood, order: &Order, class: Option<u32>) -> bool {
    // without residues a class may have two groups: before and after the gathered keys
    let modulus = order.modulus();
    class.is_some() && modulus > 1 && grid.step() == i64::from(modulus) && grid.modulus() == u64::from(modulus)
}
