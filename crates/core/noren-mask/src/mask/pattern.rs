//! [`Pattern`]: the allowed cells of one batch row and head. Only the masks of `heads(...)` and `batch(...)` that apply
//! to this batch row and head are left, and the facts are looked up.
//!
//! A pattern has three operations: the keys that one row reads (`row`), bounds for a range of rows (`bounds`), and the
//! exact cells of a rectangle as bits (`fill`). Atoms implement these operations; the operators `!`, `&` and `|`
//! combine the results.

use crate::facts::array::Array;
use crate::mask::basis::{ByAddress, ByValue};
use crate::mask::resolved::{ByCell, ResolvedRef, RowWork};
use crate::sets::bits::{row_words, set_range};
use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;
use crate::sets::interval::{Interval, IntervalSet};
use crate::sets::leaf::Neighborhood;
use crate::sets::order::Order;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::Arc;

/// The maximum number of runs of keys in the bounds of `stride(..)`. If there would be more runs, the bounds have no
/// information: any key may be allowed.
const MAX_RUNS: i64 = 1 << 18;

/// The mask of one batch row and head, with its facts looked up. Batch rows and heads with equal patterns and equal
/// maps from indices to positions share one plan.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Pattern {
    /// Cells with `lo <= k - q <= hi`, where `q` and `k` are positions. With `None`, there is no limit on that side.
    Band {
        lo: Option<i64>,
        hi: Option<i64>,
    },
    /// Cells whose query and key are in the same chunk. The number is the length of a chunk, in positions.
    Chunk(i64),
    /// Cells whose distance `k - q` is a multiple of this number.
    Stride(i64),
    /// Cells whose key index is in this set, for every query row.
    Keys(Arc<IntervalSet>),
    /// Cells whose query row is in this set, for every key.
    Queries(Arc<IntervalSet>),
    /// Cells whose query and key are in the same document. The list has the first position of the first document, then
    /// the end of each document: `[0, 33, 64]` means the documents 0..33 and 33..64.
    Documents(Arc<[i64]>),
    Neighborhood(Arc<Neighborhood>),
    /// An atom, with its facts looked up, that computes the keys of one query as ranges, and bounds on the keys of
    /// several queries.
    Atom(ResolvedRef),
    /// An atom that evaluates its function `allows` for one cell at a time. It computes no runs of keys and no bounds.
    Member(ByValue<dyn ByCell>),
    Array(ByAddress<Array>, usize),
    /// An atom of a larger mask, restricted to selected query rows and keys of that mask.
    Selected(Arc<Selection>, Box<Pattern>),
    Not(Box<Pattern>),
    And(Vec<Pattern>),
    Or(Vec<Pattern>),
}

impl Pattern {
    pub(crate) const FULL: Pattern = Pattern::Band { lo: None, hi: None };

    pub(crate) fn none() -> Pattern {
        Pattern::Keys(Arc::new(IntervalSet::new()))
    }

    /// Returns the cells that `self` allows and `other` denies.
    pub(crate) fn minus(self, other: &Pattern) -> Pattern {
        Pattern::And(vec![self, Pattern::Not(Box::new(other.clone()))])
    }

    /// Calls `emit(start, end)` for each run of the keys that query row `row` may read, cut to `keys.0..keys.1`. Runs
    /// may have any order and may overlap. The pattern must not be a combination (`Not`, `And`, `Or`).
    pub(crate) fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        let q = frame.query(row);
        match self {
            Pattern::Band { lo, hi } => {
                let from = lo.map_or(i64::MIN / 4, |lo| q + lo);
                let to = hi.map_or(i64::MAX / 4, |hi| q + hi + 1);
                frame.emit(from, to, keys, emit);
            }
            Pattern::Chunk(size) => {
                let start = q.div_euclid(*size) * size;
                frame.emit(start, start + size, keys, emit);
            }
            Pattern::Stride(step) => frame.pieces(keys, &mut |first, last, shift| {
                let skip = (q - shift - i64::from(first)).rem_euclid(*step);
                let mut k = i64::from(first) + skip;
                while k < i64::from(last) {
                    emit(k as u32, k as u32 + 1);
                    k += step;
                }
            }),
            Pattern::Keys(set) => set.within(keys.0, keys.1).for_each(|i| emit(i.start, i.end)),
            Pattern::Queries(set) => {
                if set.contains(row) {
                    emit(keys.0, keys.1);
                }
            }
            Pattern::Documents(borders) => {
                let i = borders.partition_point(|&b| b <= q);
                if 0 < i && i < borders.len() {
                    frame.emit(borders[i - 1], borders[i], keys, emit);
                }
            }
            Pattern::Neighborhood(grid) => grid.row(frame, q, keys, emit),
            Pattern::Atom(atom) => atom.row(frame, row, keys, emit),
            Pattern::Member(atom) => atom.row(frame, row, keys, emit),
            Pattern::Array(array, slice) => array.0.slice(*slice).row(row as usize, keys.0, keys.1, emit),
            Pattern::Selected(selection, leaf) => selection.row(leaf, row, keys, emit),
            Pattern::Not(_) | Pattern::And(_) | Pattern::Or(_) => {
                unreachable!(
                    "this function takes only atoms: callers combine the rows of the operands of `!`, `&` and `|`"
                )
            }
        }
    }

    /// Returns the first query row after `row` whose keys may differ from those of `row`. Returns the number of query
    /// rows if there is no such row.
    pub(crate) fn equal_until(&self, frame: &Frame, row: u32) -> u32 {
        let q = frame.query(row);
        let at = |position: Option<i64>| {
            position.map_or(frame.q_len, |p| p.saturating_sub(frame.offset).clamp(0, u32::MAX.into()) as u32)
        };
        let end = match self {
            Pattern::Band { lo: None, hi: None } | Pattern::Keys(_) => frame.q_len,
            Pattern::Chunk(size) => at(Some((q.div_euclid(*size) + 1) * size)),
            Pattern::Queries(set) => {
                let i = set.as_slice().partition_point(|i| i.end <= row);
                set.as_slice().get(i).map_or(frame.q_len, |i| if row < i.start { i.start } else { i.end })
            }
            Pattern::Documents(borders) => at(borders.get(borders.partition_point(|&b| b <= q)).copied()),
            Pattern::Atom(atom) => at(Some(atom.next_change(q))),
            Pattern::Array(array, slice) => array.0.slice(*slice).equal_rows_end(row),
            Pattern::Selected(selection, leaf) => selection.equal_until(leaf, row),
            _ => row + 1,
        };
        end.clamp(row + 1, frame.q_len.max(row + 1))
    }

    /// Returns bounds on the keys that the query rows `rows` read: the keys that at least one row may read, and the
    /// keys that every row may read. `rows` must not be empty.
    pub(crate) fn bounds(&self, frame: &Frame, rows: Range<u32>) -> Bounds {
        self.bounds_with(frame.kv_len, &|atom| atom.bounds_of_atom(frame, rows.clone()))
    }

    /// Returns the bounds of the pattern, of the bounds that `atom` returns for each of its atoms. `keys` is the number
    /// of keys.
    pub(crate) fn bounds_with(&self, keys: u32, atom: &impl Fn(&Pattern) -> Bounds) -> Bounds {
        let each = |parts: &[Pattern], join: fn(Bounds, &Bounds) -> Bounds| {
            parts.iter().map(|part| part.bounds_with(keys, atom)).reduce(|a, b| join(a, &b))
        };
        match self {
            Pattern::Not(part) => part.bounds_with(keys, atom).not(keys),
            Pattern::And(parts) => each(parts, Bounds::and).unwrap_or_else(|| Bounds::exact(IntervalSet::all(keys))),
            Pattern::Or(parts) => each(parts, Bounds::or).unwrap_or_else(Bounds::nothing),
            own => atom(own),
        }
    }

    fn bounds_of_atom(&self, frame: &Frame, rows: Range<u32>) -> Bounds {
        let kv_len = frame.kv_len;
        match self {
            Pattern::Band { lo, hi } => {
                let set = |from: i64, to: i64| {
                    let (lo, hi) = (lo.map_or(i64::MIN / 4, |lo| from + lo), hi.map_or(i64::MAX / 4, |hi| to + hi + 1));
                    let mut set = IntervalSet::new();
                    frame.emit(lo, hi, (0, kv_len), &mut |a, z| set.push(a, z));
                    set
                };
                let (first, last) = (frame.query(rows.start), frame.query(rows.end - 1));
                Bounds { upper: set(first, last), lower: set(last, first) }
            }
            Pattern::Keys(set) => Bounds::exact((**set).clone()),
            Pattern::Neighborhood(grid) => grid.bounds(frame, rows),
            Pattern::Stride(step) => stride_bounds(*step, frame, &rows, (0, kv_len)),
            Pattern::Member(_) if rows.len() > 1 => Bounds::unknown(kv_len),
            Pattern::Array(array, slice) => {
                let bounds = array.0.slice(*slice).bounds(rows.start, rows.end, kv_len);
                bounds.unwrap_or_else(|| self.bounds_by_rows(frame, rows))
            }
            Pattern::Atom(atom) => atom.bounds(frame, rows.clone()).unwrap_or_else(|| self.bounds_by_rows(frame, rows)),
            Pattern::Selected(selection, leaf) => selection.bounds(leaf, rows),
            _ => self.bounds_by_rows(frame, rows),
        }
    }

    /// Returns exact bounds on the keys that the query rows `rows` read: the union and the intersection of the keys of
    /// these rows. `rows` must ascend. The pattern must not be a combination (`Not`, `And`, `Or`).
    pub(crate) fn bounds_by_rows(&self, frame: &Frame, rows: impl Iterator<Item = u32>) -> Bounds {
        let mut lower: Option<IntervalSet> = None;
        // all pieces are sorted once: a union row by row would take quadratic time
        let mut upper: SmallVec<[Range<u32>; 16]> = SmallVec::new();
        let mut next = 0;
        let mut pieces: SmallVec<[Range<u32>; 16]> = SmallVec::new();
        for row in rows {
            if row < next {
                continue;
            }
            pieces.clear();
            self.row(frame, row, (0, frame.kv_len), &mut |a, z| pieces.push(a..z));
            upper.extend(pieces.iter().cloned());
            if lower.as_ref().is_none_or(|lower| !lower.is_empty()) {
                let set: IntervalSet = pieces.iter().cloned().collect();
                lower = Some(match lower {
                    None => set,
                    Some(lower) => lower.intersect(&set),
                });
            }
            next = self.equal_until(frame, row);
        }
        match lower {
            None => Bounds::unknown(frame.kv_len),
            Some(lower) => Bounds { upper: upper.into_iter().collect(), lower },
        }
    }

    /// Writes the cells of the query rows `rows` and the keys `keys` into `words` as bits, 1 for allowed. Each row has
    /// `row_words(keys.len())` words of 64 bits; bit `i % 64` of word `i / 64` is the cell of key `keys.start + i`.
    /// Bits beyond `keys` are 0. `words` is overwritten, and must have `rows.len() * row_words(keys.len())` words.
    pub(crate) fn fill(&self, frame: &Frame, rows: Range<u32>, keys: Interval, words: &mut [u64]) {
        self.fill_with(keys.len(), words, &|atom, words| {
            fill_lines(words, row_words(keys.len()), |i, line| {
                let row = rows.start + i;
                atom.row(frame, row, (keys.start, keys.end), &mut |a, z| {
                    set_range(line, (a - keys.start) as usize, (z - keys.start) as usize);
                });
                atom.equal_until(frame, row) - rows.start
            });
        });
    }

    /// Writes the cells of the pattern into `words`, of the cells that `atom` writes for each of its atoms. Each row has
    /// `row_words(keys)` words.
    pub(crate) fn fill_with(&self, keys: u32, words: &mut [u64], atom: &impl Fn(&Pattern, &mut [u64])) {
        match self {
            Pattern::Not(part) => {
                part.fill_with(keys, words, atom);
                words.iter_mut().for_each(|w| *w = !*w);
                clear_tails(words, keys);
            }
            Pattern::And(parts) => fill_all(parts, keys, words, u64::MAX, atom, |a, b| a & b),
            Pattern::Or(parts) => fill_all(parts, keys, words, 0, atom, |a, b| a | b),
            own => atom(own, words),
        }
    }

    /// Returns the atoms in the pattern, without the operators `!`, `&` and `|` that combine them.
    pub(crate) fn leaves(&self) -> Vec<&Pattern> {
        match self {
            Pattern::Not(part) => part.leaves(),
            Pattern::And(parts) | Pattern::Or(parts) => parts.iter().flat_map(Pattern::leaves).collect(),
            leaf => vec![leaf],
        }
    }

    /// Returns true for patterns in which consecutive query rows read the same keys, such as the rows of one document
    /// or chunk.
    pub(crate) fn has_blocks(&self) -> bool {
        match self {
            Pattern::Chunk(_) | Pattern::Documents(_) | Pattern::Queries(_) => true,
            Pattern::Atom(atom) => atom.has_blocks(),
            _ => false,
        }
    }

    /// Returns whether [`row`](Self::row) evaluates each key of its range `keys` separately.
    pub(crate) fn looks_at_every_key(&self) -> bool {
        match self {
            Pattern::Member(_) => true,
            Pattern::Atom(atom) => atom.row_work() == RowWork::Keys,
            _ => false,
        }
    }

    /// Returns the last query row in `after + 1..=upto` before which a tile should end, or `None` if there is no such
    /// row. A tile should end before the first row of each group of rows with equal keys, such as a document or a
    /// chunk. It should also end where an interval of `keys(..)` begins, such as at the first token after padding on
    /// the left.
    pub(crate) fn last_border(&self, frame: &Frame, after: u32, upto: u32) -> Option<u32> {
        match self {
            Pattern::Not(a) => a.last_border(frame, after, upto),
            Pattern::Selected(selection, leaf) => selection.last_border(leaf, after, upto),
            Pattern::And(parts) | Pattern::Or(parts) => {
                parts.iter().filter_map(|p| p.last_border(frame, after, upto)).max()
            }
            // A sequence with padding on the left begins at its first key.
            Pattern::Keys(set) => {
                let begun = set.as_slice().partition_point(|i| i64::from(i.start) - frame.offset <= i64::from(upto));
                let row = i64::from(set.as_slice()[..begun].last()?.start) - frame.offset;
                (row > i64::from(after)).then_some(row as u32)
            }
            _ if self.has_blocks() || matches!(self, Pattern::Array(..)) => {
                let (mut row, mut found) = (after, None);
                loop {
                    let next = self.equal_until(frame, row);
                    if next > upto || next >= frame.q_len {
                        return found;
                    }
                    // a block of one row does not count
                    found = if next > row + 1 || found.is_some() { Some(next) } else { found };
                    row = next;
                }
            }
            _ => None,
        }
    }
}

/// Fills `words` with the bits of an `And` or `Or` pattern with the operands `parts`, as [`Pattern::fill_with`] does.
/// `combine` joins two words of 64 bits (`&` or `|`). If `parts` is empty, every word becomes `neutral`, and bits
/// beyond the keys are cleared.
fn fill_all(
    parts: &[Pattern],
    keys: u32,
    words: &mut [u64],
    neutral: u64,
    atom: &impl Fn(&Pattern, &mut [u64]),
    combine: impl Fn(u64, u64) -> u64,
) {
    let Some((first, rest)) = parts.split_first() else {
        words.fill(neutral);
        return clear_tails(words, keys);
    };
    first.fill_with(keys, words, atom);
    let mut other: SmallVec<[u64; 128]> = smallvec![0; if rest.is_empty() { 0 } else { words.len() }];
    for part in rest {
        part.fill_with(keys, &mut other, atom);
        words.iter_mut().zip(&other).for_each(|(w, o)| *w = combine(*w, *o));
    }
}

/// Fills `words`, lines of `stride` words each. `fill(i, line)` sets the bits of line `i`, whose words are 0, and returns
/// the next line that may have other bits; the lines between them are copies of line `i`.
pub(crate) fn fill_lines(words: &mut [u64], stride: usize, mut fill: impl FnMut(u32, &mut [u64]) -> u32) {
    words.fill(0);
    let count = words.len() / stride.max(1);
    let mut line = 0;
    while line < count {
        let own = line * stride..(line + 1) * stride;
        let next = count.min(fill(line as u32, &mut words[own.clone()]) as usize);
        (line + 1..next).for_each(|copy| words.copy_within(own.clone(), copy * stride));
        line = next;
    }
}

/// Clears the bits beyond `keys` keys in each row of `words`.
fn clear_tails(words: &mut [u64], keys: u32) {
    if !keys.is_multiple_of(64) {
        let (stride, keep) = (row_words(keys), (1u64 << (keys % 64)) - 1);
        words.iter_mut().skip(stride - 1).step_by(stride).for_each(|w| *w &= keep);
    }
}

/// Returns bounds on the keys of the mask `stride(step)` for the query rows `rows`. Only the key indices `keys.0..keys.1`
/// matter to the caller. Returns bounds without information if a list of the keys would cost more than it saves.
pub(crate) fn stride_bounds(step: i64, frame: &Frame, rows: &Range<u32>, keys: (u32, u32)) -> Bounds {
    let reach = i64::from(rows.end - rows.start) - 1;
    if i64::from(keys.1.saturating_sub(keys.0)) / step > MAX_RUNS || reach > 0 && step <= 4 * (reach + 1) {
        return Bounds::unknown(frame.kv_len);
    }
    // the keys at the residues of the rows, as runs of one key per row
    let last = frame.query(rows.end - 1);
    let mut upper = IntervalSet::new();
    frame.pieces(keys, &mut |first, end, shift| {
        let (first, end) = (i64::from(first), i64::from(end));
        let mut key = first - (first + shift - last).rem_euclid(step) - reach;
        while key < end {
            upper.push(key.clamp(first, end) as u32, (key + reach + 1).clamp(first, end) as u32);
            key += step;
        }
    });
    let lower = if reach == 0 { upper.clone() } else { IntervalSet::new() };
    Bounds { upper, lower }
}

/// Returns the place of `index` in `order`, which has one group: the number of indices of the order below `index`.
fn place(order: &Order, index: u32) -> u32 {
    order.place(&order.groups()[0], index)
}

/// The query rows and keys that [`BoundMask::select`](crate::BoundMask::select) selected from a larger mask, with the
/// [`Frame`] (map from indices to positions) of the larger mask.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Selection {
    pub(crate) frame: Frame,
    pub(crate) rows: Arc<Order>,
    pub(crate) keys: Arc<Order>,
}

impl Selection {
    /// Returns the selection of all query rows and keys of a mask with the frame `frame`.
    pub(crate) fn all(frame: &Frame) -> Self {
        let all = |len: u32| Arc::new(Order::of_groups(&[IntervalSet::all(len)]));
        Selection { frame: frame.clone(), rows: all(frame.q_len), keys: all(frame.kv_len) }
    }

    /// Calls `emit(start, end)` as [`Pattern::row`] does, for `leaf`, an atom of the larger mask. `row`, `keys`,
    /// `start` and `end` are places among the selected rows and keys.
    pub(crate) fn row(&self, leaf: &Pattern, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32)) {
        if keys.0 >= keys.1 {
            return;
        }
        let row = self.rows.origin(row);
        let mut by_place = |start: u32, end: u32| {
            let (start, end) = (place(&self.keys, start).max(keys.0), place(&self.keys, end).min(keys.1));
            if start < end {
                emit(start, end);
            }
        };
        let by_place: &mut dyn FnMut(u32, u32) = &mut by_place;
        // a pattern that evaluates every key must not evaluate keys between the selected ones
        if leaf.looks_at_every_key() || matches!(leaf, Pattern::Stride(_) | Pattern::Array(..)) {
            for run in self.keys.indices(keys.0..keys.1) {
                leaf.row(&self.frame, row, (run.start, run.last() + 1), &mut &mut *by_place);
            }
        } else {
            let covering = (self.keys.origin(keys.0), self.keys.origin(keys.1 - 1) + 1);
            leaf.row(&self.frame, row, covering, &mut &mut *by_place);
        }
    }

    /// Returns the result of [`Pattern::equal_until`] for `leaf`, an atom of the larger mask. `row` and the result are
    /// places among the selected rows.
    pub(crate) fn equal_until(&self, leaf: &Pattern, row: u32) -> u32 {
        place(&self.rows, leaf.equal_until(&self.frame, self.rows.origin(row)))
    }

    /// Returns the result of [`Pattern::bounds`] for `leaf`, an atom of the larger mask: the keys that at least one of
    /// the rows `rows` may read, and the keys that every row may read. `rows` and the keys of the result are places
    /// among the selected rows and keys.
    pub(crate) fn bounds(&self, leaf: &Pattern, rows: Range<u32>) -> Bounds {
        let by_run = self
            .rows
            .indices(rows)
            .map(|run| leaf.bounds(&self.frame, run.start..run.last() + 1).map(|set| self.keys.places(&set, 0..1)));
        by_run.reduce(|a, b| a.any_of(&b)).unwrap_or_else(|| Bounds::unknown(self.keys.len()))
    }

    /// Returns the first keys of the documents of `leaf`, an atom of the larger mask, as places among the selected keys.
    pub(crate) fn document_starts(&self, leaf: &Pattern) -> Vec<u32> {
        let starts = leaf.document_starts(&self.frame).into_iter().map(|key| place(&self.keys, key));
        starts.filter(|place| *place < self.keys.len()).collect()
    }

    /// Returns the result of [`Pattern::last_border`] for `leaf`, an atom of the larger mask. `after`, `upto` and the
    /// result are places among the selected rows.
    pub(crate) fn last_border(&self, leaf: &Pattern, after: u32, upto: u32) -> Option<u32> {
        let last = self.rows.len() - 1;
        let origin = |place: u32| self.rows.origin(place.min(last));
        let border = leaf.last_border(&self.frame, origin(after), origin(upto))?;
        Some(place(&self.rows, border)).filter(|place| *place > after)
    }

    /// Returns `pattern`, a pattern of the larger mask, restricted to the selected rows and keys.
    pub(crate) fn pattern(selection: &Arc<Self>, pattern: &Pattern) -> Pattern {
        let all = |parts: &[Pattern]| parts.iter().map(|part| Self::pattern(selection, part)).collect();
        match pattern {
            Pattern::Band { lo: None, hi: None } => pattern.clone(),
            Pattern::Keys(set) => Pattern::Keys(Arc::new(selection.keys.places(set, 0..1))),
            Pattern::Queries(set) => Pattern::Queries(Arc::new(selection.rows.places(set, 0..1))),
            Pattern::Not(part) => Pattern::Not(Box::new(Self::pattern(selection, part))),
            Pattern::And(parts) => Pattern::And(all(parts)),
            Pattern::Or(parts) => Pattern::Or(all(parts)),
            leaf => Pattern::Selected(selection.clone(), Box::new(leaf.clone())),
        }
    }
}
