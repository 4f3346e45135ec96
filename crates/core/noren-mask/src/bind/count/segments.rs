//! The allowed cells of a pattern (the mask of one batch row and head) in one zone. In a zone, all query rows read keys
//! of the same segments, at the same distances.

use super::distances::{Distances, Residues};
use crate::Error;
use crate::bind::budget::Meter;
use crate::mask::pattern::Pattern;
use crate::mask::resolved::RowWork;
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use std::rc::Rc;

/// A segment: consecutive keys `start..end` for which one set of distances decides the cells. A query reads those keys
/// of the segment whose distance `key position - query position` is in `distances`.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) distances: Distances,
}

/// The segments (see [`Segment`]) of some query rows, disjoint and in ascending order. Keys outside of all segments are
/// denied.
pub(super) type Segments = Vec<Segment>;

/// A zone: consecutive query rows with equal [`Segment`]s (ranges of keys, each with the distances at which a query
/// reads them). `end` is the first query row after the zone.
#[derive(Clone)]
pub(super) struct Zone {
    /// The keys that the query rows of the zone read, as ranges of keys with the allowed distances `key position -
    /// query position`.
    pub(super) segments: Rc<Segments>,
    pub(super) end: u32,
}

/// The search for the zones of a pattern (the mask of one batch row and head). Query rows must be requested in
/// ascending order. The zone that was found last is stored, because it often contains the next requested row too. The
/// operands of `&` and `|` have their own searches.
pub(super) struct Zones<'a> {
    pattern: &'a Pattern,
    parts: Vec<Zones<'a>>,
    /// The latest search: the searched range of keys `(start, end)`, `end` excluded, and the zone that was found.
    last: Option<((u32, u32), Zone)>,
}

/// Appends the segment of the keys `start..end` with the allowed distances `distances` to `out`, unless it has no key
/// or no allowed distance. If the last segment ends at `start` and has the same distances, the two become one segment.
fn push(out: &mut Segments, start: u32, end: u32, distances: Distances) {
    if start >= end || distances.is_never() {
        return;
    }
    match out.last_mut() {
        Some(last) if last.end == start && last.distances == distances => last.end = end,
        _ => out.push(Segment { start, end, distances }),
    }
}

impl<'a> Zones<'a> {
    pub(super) fn new(pattern: &'a Pattern) -> Self {
        let parts = match pattern {
            Pattern::Not(part) => vec![Zones::new(part)],
            Pattern::And(parts) => in_order(parts).map(Zones::new).collect(),
            Pattern::Or(parts) => parts.iter().map(Zones::new).collect(),
            _ => Vec::new(),
        };
        Zones { pattern, parts, last: None }
    }

    /// Returns the zone (consecutive query rows that read keys of the same segments) that contains query row `row`.
    /// Only the keys from `keys.0` to `keys.1` (excluded) are considered.
    pub(super) fn at(
        &mut self,
        frame: &Frame,
        row: u32,
        keys: (u32, u32),
        meter: &mut Meter<'_>,
    ) -> Result<Zone, Error> {
        if let Some((of, zone)) = &self.last
            && *of == keys
            && row < zone.end
        {
            return Ok(zone.clone());
        }
        let zone = self.found(frame, row, keys, meter)?;
        self.last = Some((keys, zone.clone()));
        Ok(zone)
    }

    fn found(&mut self, frame: &Frame, row: u32, keys: (u32, u32), meter: &mut Meter<'_>) -> Result<Zone, Error> {
        match self.pattern {
            Pattern::Not(_) => {
                let Zone { segments, end } = self.parts[0].at(frame, row, keys, meter)?;
                meter.step(segments.len() as u64)?;
                Ok(Zone { segments: complement(&segments, keys).into(), end })
            }
            Pattern::And(_) => {
                let mut all: Option<Zone> = None;
                for part in &mut self.parts {
                    let Some(Zone { segments, end }) = all else {
                        all = Some(part.at(frame, row, keys, meter)?);
                        continue;
                    };
                    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
                        return Ok(Zone { segments, end });
                    };
                    let covering = (first.start, last.end);
                    let next = part.at(frame, row, covering, meter)?;
                    // a part that reads none of the keys makes the result empty until its own zone ends
                    let alone = covering == keys && next.segments.is_empty();
                    let end = if alone { next.end } else { end.min(next.end) };
                    all = Some(Zone { segments: intersect(&segments, &next.segments, meter)?.into(), end });
                }
                Ok(all.unwrap_or_else(|| Zone { segments: whole(keys).into(), end: u32::MAX }))
            }
            Pattern::Or(_) => {
                let mut any: Option<Zone> = None;
                for part in &mut self.parts {
                    let next = part.at(frame, row, keys, meter)?;
                    any = Some(match any {
                        None => next,
                        Some(Zone { segments, end }) => {
                            Zone { segments: union(segments, &next.segments, meter)?, end: end.min(next.end) }
                        }
                    });
                }
                Ok(any.unwrap_or_else(|| Zone { segments: Rc::default(), end: u32::MAX }))
            }
            leaf => leaf_zone(leaf, frame, row, keys, meter),
        }
    }
}

fn whole(keys: (u32, u32)) -> Segments {
    let mut all = Vec::new();
    push(&mut all, keys.0, keys.1, Distances::always());
    all
}

/// Returns the operands of `&` or `|` in the order of evaluation: operands in which a query reads few keys come first,
/// because they limit the keys of the others.
fn in_order(parts: &[Pattern]) -> impl Iterator<Item = &Pattern> {
    let rank = |part: &Pattern| match part {
        Pattern::Queries(_) => 0,
        Pattern::Chunk(_) | Pattern::Documents(_) => 1,
        Pattern::Neighborhood(_) => 2,
        Pattern::Atom(atom) if atom.row_work() == RowWork::ManyRuns => 6,
        Pattern::Atom(atom) if atom.has_blocks() => 2,
        Pattern::And(_) => 3,
        Pattern::Keys(_) | Pattern::Or(_) | Pattern::Not(_) => 5,
        _ => 4,
    };
    (0..7).flat_map(move |turn| parts.iter().filter(move |part| rank(part) == turn))
}

fn leaf_zone(leaf: &Pattern, frame: &Frame, row: u32, keys: (u32, u32), meter: &mut Meter<'_>) -> Result<Zone, Error> {
    let mut segments = Vec::new();
    let distances = match leaf {
        Pattern::Band { lo: None, hi: None } => Distances::always(),
        Pattern::Band { lo, hi } => {
            Distances::between(lo.unwrap_or(i64::MIN), hi.map_or(i64::MAX, |hi| hi.saturating_add(1)))
        }
        Pattern::Stride(step) => Distances::residues(Residues::multiples_of(*step)),
        Pattern::Neighborhood(grid) => {
            let q = frame.query(row);
            if let Some((rows, moving)) = grid.same_window(q) {
                let mut found: Vec<Segment> = Vec::new();
                grid.window_lines(q, |line, first, count, width| {
                    let distances = match moving {
                        true => Distances::between(line + first - q, line + first + count - q),
                        false => Distances::always(),
                    };
                    let keys_of = if moving { line..line + width } else { line + first..line + first + count };
                    frame.emit(keys_of.start, keys_of.end, keys, &mut |start, end| {
                        found.push(Segment { start, end, distances: distances.clone() });
                    });
                });
                meter.step(found.len() as u64 + 1)?;
                if frame.runs.is_some() {
                    found.sort_by_key(|segment| segment.start);
                }
                let end = row.saturating_add(rows.min(i64::from(u32::MAX)) as u32);
                return Ok(Zone { segments: found.into(), end });
            }
            return rows_zone(leaf, frame, row, keys, meter);
        }
        _ => return rows_zone(leaf, frame, row, keys, meter),
    };
    meter.step(1)?;
    push(&mut segments, keys.0, keys.1, distances);
    Ok(Zone { segments: segments.into(), end: u32::MAX })
}

/// Returns the zone (consecutive query rows with equal keys) that begins at query row `row`. `leaf` is an atom whose
/// keys are computed one query row at a time.
fn rows_zone(leaf: &Pattern, frame: &Frame, row: u32, keys: (u32, u32), meter: &mut Meter<'_>) -> Result<Zone, Error> {
    let mut pieces = Vec::new();
    leaf.row(frame, row, keys, &mut |start, end| pieces.push(start..end));
    meter.step(pieces.len() as u64 + 1)?;
    let set: IntervalSet = pieces.into_iter().collect();
    let always =
        |i: crate::sets::interval::Interval| Segment { start: i.start, end: i.end, distances: Distances::always() };
    let segments: Segments = set.iter().map(always).collect();
    Ok(Zone { segments: segments.into(), end: leaf.equal_until(frame, row) })
}

fn complement(segments: &[Segment], keys: (u32, u32)) -> Segments {
    let mut out = Vec::with_capacity(segments.len() + 1);
    let mut at = keys.0;
    for segment in segments {
        push(&mut out, at, segment.start, Distances::always());
        push(&mut out, segment.start, segment.end, segment.distances.not());
        at = segment.end;
    }
    push(&mut out, at, keys.1, Distances::always());
    out
}

fn intersect(a: &[Segment], b: &[Segment], meter: &mut Meter<'_>) -> Result<Segments, Error> {
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::with_capacity(a.len().max(b.len()));
    while i < a.len() && j < b.len() {
        let (start, end) = (a[i].start.max(b[j].start), a[i].end.min(b[j].end));
        if start < end {
            meter.step(cost(&a[i].distances, &b[j].distances))?;
            push(&mut out, start, end, a[i].distances.and(&b[j].distances));
        }
        if a[i].end < b[j].end { i += 1 } else { j += 1 }
    }
    Ok(out)
}

fn union(a: Rc<Segments>, b: &Rc<Segments>, meter: &mut Meter<'_>) -> Result<Rc<Segments>, Error> {
    if a.is_empty() {
        return Ok(b.clone());
    }
    if b.is_empty() {
        return Ok(a);
    }
    meter.step((a.len() + b.len()) as u64)?;
    let (mut i, mut j, mut at) = (0, 0, 0);
    let mut out = Vec::with_capacity(a.len() + b.len());
    while i < a.len() || j < b.len() {
        // the segments that contain `at` or begin after it
        let (x, y) = (a.get(i), b.get(j));
        at = at.max(x.map_or(u32::MAX, |s| s.start).min(y.map_or(u32::MAX, |s| s.start)));
        let ends = |s: &Segment| if s.start > at { s.start } else { s.end };
        let end = x.map_or(u32::MAX, ends).min(y.map_or(u32::MAX, ends));
        let [x, y] = [x, y].map(|s| s.filter(|s| s.start <= at).map(|s| &s.distances));
        match (x, y) {
            (Some(x), Some(y)) => {
                meter.step(cost(x, y))?;
                push(&mut out, at, end, x.or(y));
            }
            (Some(one), None) | (None, Some(one)) => push(&mut out, at, end, one.clone()),
            (None, None) => {}
        }
        at = end;
        i += usize::from(a.get(i).is_some_and(|s| s.end <= at));
        j += usize::from(b.get(j).is_some_and(|s| s.end <= at));
    }
    Ok(out.into())
}

/// Returns the number of budget steps for the union or intersection of two sets of distances.
fn cost(a: &Distances, b: &Distances) -> u64 {
    (a.size() * b.size()).div_ceil(8) as u64
}
