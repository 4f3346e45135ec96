//! [`Split`]: the division of a mask's cells into near cells and far cells. Far cells are those at multiples of a
//! distance. Near and far cells are planned with keys in two different orders.
//!
//! In `causal & (window(left=256) | stride(512))`, a query reads 257 consecutive near keys, and every 512th of the far
//! keys. In the order of indices, the far keys are scattered. If keys are sorted by their position modulo 512, the near
//! keys are scattered. Therefore the order of keys contains every key twice: first all keys in the order of indices,
//! then all keys sorted by residue class. The cells that the mask allows without its stride (near cells) are read in
//! the first half of this order, and all other allowed cells (far cells) in the second half. No cell is read in both
//! halves.

use crate::mask::pattern::Pattern;
use crate::sets::bits::row_words;
use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;
use crate::sets::interval::{Interval, IntervalSet};
use crate::sets::order::{Indices, MOST_CLASSES, Order};
use smallvec::SmallVec;
use std::ops::Range;

/// The maximum number of keys of a mask that is split. The limit exists because the order of keys contains each key
/// twice, and places in this order are 32-bit numbers.
const MOST_KEYS: u32 = 1 << 30;

/// The cells of a mask, divided into near cells, which are read with keys in the order of indices, and far cells, which
/// are read with keys sorted by residue class (position modulo the step of the mask's stride).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Split {
    step: u32,
    /// The cells that the mask allows if its stride is replaced by `none`. These cells are read with keys in the order
    /// of indices.
    pub(crate) near: Pattern,
    /// The remaining allowed cells. The pattern is evaluated only for keys whose distance to the query is a multiple of
    /// `step`. These keys are read in the order by residue class (position modulo `step`).
    pub(crate) far: Pattern,
}

impl Split {
    /// Divides the cells of `pattern` by its `stride(..)` with the largest step from 2 to [`MOST_CLASSES`]: near cells
    /// are allowed also if this stride is replaced by `none`, far cells are not. A step that also occurs in a stride
    /// inside a complement is not used. Returns `None` if there is no such stride, or if there are more than
    /// `MOST_KEYS` keys.
    pub(crate) fn of(pattern: &Pattern, frame: &Frame) -> Option<Split> {
        let mut steps = Vec::new();
        strides(pattern, true, &mut steps);
        let positive = |step: i64| steps.iter().all(|found| *found != (step, false));
        let usable = steps.iter().filter(|(step, _)| (2..=i64::from(MOST_CLASSES)).contains(step) && positive(*step));
        let step = usable.map(|found| found.0).max().filter(|_| frame.kv_len <= MOST_KEYS)?;
        let near = replaced(pattern, step, false);
        let far = replaced(pattern, step, true);
        let far = match is_none(&near) {
            true => far,
            false => minus_band(&far, &near).unwrap_or_else(|| far.minus(&near)),
        };
        Some(Split { step: step as u32, near, far })
    }

    /// Returns the order of keys: all keys in the order of indices, then all keys sorted by the residue class of their
    /// positions modulo the step.
    pub(crate) fn keys(&self, frame: &Frame) -> Order {
        Order::twice(frame, self.step)
    }

    pub(crate) fn step(&self) -> u32 {
        self.step
    }

    /// Returns bounds on the keys that the query rows `rows` read, as places in the order `keys`. `class` is the
    /// residue class of the rows (their position modulo the step), or `None` if the rows have different residue
    /// classes.
    pub(crate) fn bounds(&self, frame: &Frame, keys: &Order, rows: &[Indices], class: Option<u32>) -> Bounds {
        let each = || rows.iter().flat_map(|r| (0..r.len).map(move |i| r.at(i)));
        let near = match rows {
            [run] if run.adjacent() => self.near.bounds(frame, run.start..run.last() + 1),
            _ => Bounds::of_all(each().map(|row| self.near.bounds(frame, row..row + 1))),
        };
        let far = match class {
            Some(class) => self.far_bounds(frame, keys, rows, class),
            None => {
                // rows of several classes read different keys, so no key is read by all
                let mut upper: SmallVec<[Range<u32>; 16]> = SmallVec::new();
                let (mut lower, mut count) = (IntervalSet::new(), 0);
                for row in each() {
                    let row = [Indices { start: row, step: 1, len: 1 }];
                    let found = self.far_bounds(frame, keys, &row, self.class_of(frame, row[0].start));
                    upper.extend(found.upper.iter().map(|i| i.start..i.end));
                    (lower, count) = (found.lower, count + 1);
                }
                upper.sort_unstable_by_key(|places| places.start);
                let mut all = IntervalSet::new();
                upper.iter().for_each(|places| all.push(places.start, places.end));
                Bounds { upper: all, lower: if count == 1 { lower } else { IntervalSet::new() } }
            }
        };
        near.or(&far)
    }

    /// Returns bounds on the keys that the query rows `rows` read in far cells, as places in the order `keys`. The rows
    /// must be of residue class `class` (position modulo the step).
    fn far_bounds(&self, frame: &Frame, keys: &Order, rows: &[Indices], class: u32) -> Bounds {
        let Some(group) = keys.class(class) else { return Bounds::nothing() };
        let Pattern::Band { lo, hi } = self.far else {
            return self.far.class_bounds(frame, keys, group, rows, class);
        };
        if frame.runs.is_some() {
            return self.far.class_bounds(frame, keys, group, rows, class);
        }
        // neighboring keys of the class are a step apart, so the ends of a band are computed by division
        let (first, last) = (frame.query(rows[0].start), frame.query(rows[rows.len() - 1].last()));
        let group = &keys.groups()[group];
        let place = |key: i64| {
            let below = (key.clamp(0, frame.kv_len.into()) as u32).saturating_sub(class).div_ceil(self.step);
            group.start + below.min(group.end - group.start)
        };
        let set = |from: i64, to: i64| {
            let start = lo.map_or(group.start, |lo| place(from.saturating_add(lo)));
            let end = hi.map_or(group.end, |hi| place(to.saturating_add(hi).saturating_add(1)));
            let mut set = IntervalSet::new();
            set.push(start, end);
            set
        };
        Bounds { upper: set(first, last), lower: set(last, first) }
    }

    /// Returns the residue class of query row `row`: its position modulo the step.
    pub(crate) fn class_of(&self, frame: &Frame, row: u32) -> u32 {
        frame.query(row).rem_euclid(i64::from(self.step)) as u32
    }

    /// Calls `emit(start, end)` for each range of places, in the order `keys`, whose keys query row `row` reads. Only
    /// the places in `places` are considered.
    pub(crate) fn row(
        &self,
        frame: &Frame,
        keys: &Order,
        row: u32,
        places: Range<u32>,
        emit: &mut impl FnMut(u32, u32),
    ) {
        let class = self.class_of(frame, row);
        let mut words = Vec::new();
        let mut bits = |words: &[u64], start: u32, len: u32| {
            crate::sets::bits::runs(words, 0, len, |a, z| emit(start + a, start + z));
        };
        let in_place = places.start..places.end.min(frame.kv_len);
        if !in_place.is_empty() {
            let len = in_place.len() as u32;
            words.resize(row_words(len), 0);
            self.near.fill(frame, row..row + 1, Interval::new(in_place.start, in_place.end), &mut words);
            bits(&words, in_place.start, len);
        }
        let Some(group) = keys.class(class) else { return };
        let far = keys.groups()[group].start.max(places.start)..keys.groups()[group].end.min(places.end);
        if !far.is_empty() {
            let len = far.len() as u32;
            words.clear();
            words.resize(row_words(len), 0);
            self.far.class_fill(frame, keys, (row, class), far.clone(), &mut words);
            bits(&words, far.start, len);
        }
    }
}

/// Appends (step, positive) to `out` for each `stride(..)` in `pattern`. In the appended pair, `positive` is true if
/// the stride is inside an even number of complements (or none) of the whole mask. The parameter `positive`
/// states the same about `pattern`. For example, `!stride(8)` gives (8, false).
fn strides(pattern: &Pattern, positive: bool, out: &mut Vec<(i64, bool)>) {
    match pattern {
        Pattern::Stride(step) => out.push((*step, positive)),
        Pattern::Not(part) => strides(part, !positive, out),
        Pattern::And(parts) | Pattern::Or(parts) => parts.iter().for_each(|part| strides(part, positive, out)),
        _ => {}
    }
}

/// Returns `pattern`, in which each `stride(step)` is replaced by `full` if `with` is true, and otherwise by `none`.
/// Operands of `&` that are bands are joined into one band, and operands that are `full` or `none` are simplified.
fn replaced(pattern: &Pattern, step: i64, with: bool) -> Pattern {
    match pattern {
        Pattern::Stride(own) if *own == step && with => Pattern::FULL,
        Pattern::Stride(own) if *own == step => Pattern::none(),
        Pattern::Not(part) => Pattern::Not(Box::new(replaced(part, step, with))),
        Pattern::And(parts) => {
            let mut band = (None, None);
            let mut rest = Vec::new();
            for part in parts.iter().map(|part| replaced(part, step, with)) {
                match part {
                    Pattern::Band { lo, hi } => {
                        band = (band.0.max(lo), [band.1, hi].into_iter().flatten().min());
                    }
                    Pattern::And(inner) => rest.extend(inner),
                    other if is_none(&other) => return Pattern::none(),
                    other => rest.push(other),
                }
            }
            if band != (None, None) || rest.is_empty() {
                rest.push(Pattern::Band { lo: band.0, hi: band.1 });
            }
            if rest.len() == 1 { rest.remove(0) } else { Pattern::And(rest) }
        }
        Pattern::Or(parts) => {
            let mut rest: Vec<Pattern> = parts.iter().map(|part| replaced(part, step, with)).collect();
            if rest.contains(&Pattern::FULL) {
                return Pattern::FULL;
            }
            rest.retain(|part| !is_none(part));
            match rest.len() {
                0 => Pattern::none(),
                1 => rest.remove(0),
                _ => Pattern::Or(rest),
            }
        }
        other => other.clone(),
    }
}

fn is_none(pattern: &Pattern) -> bool {
    matches!(pattern, Pattern::Keys(set) if set.is_empty())
}

/// Returns the cells of the band `pattern` that the band `other` does not allow. Returns `None` unless `pattern` has no
/// limit for the first distance and both bands have the same last distance, as `causal` and `sliding(8)` do.
fn minus_band(pattern: &Pattern, other: &Pattern) -> Option<Pattern> {
    match (pattern, other) {
        (Pattern::Band { lo: None, hi }, Pattern::Band { lo: Some(lo), hi: end }) if hi == end => {
            Some(Pattern::Band { lo: None, hi: Some(lo - 1) })
        }
        _ => None,
    }
}
