//! Cuts a pattern (the mask of one batch row and head) into tiles: chooses the order of queries and keys, the ends of
//! tiles, and the ranges of keys (spans) that each tile reads.

use crate::Error;
use crate::bind::Resolved;
use crate::bind::budget::{Budget, Meter, Stage};
use crate::mask::pattern::{Pattern, stride_bounds};
use crate::plan::patch::Patches;
use crate::plan::reorder::Reordering;
use crate::plan::split::Split;
use crate::plan::{PatternPlan, PlanOptions, Reorder, SpanKind, Tile, TileSpan};
use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use crate::sets::order::{Group, MOST_CLASSES};
use std::ops::Range;

/// The maximum number of spans (ranges of keys) of a tile. If a tile has more spans, some are merged, so that plans
/// stay small for every mask.
const MAX_SPANS: usize = 256;
/// The minimum number of keys of a full span next to a mixed span, and of a gap between two spans. A shorter span or
/// gap becomes part of a mixed span, because it would cost a kernel more than it saves.
const MIN_RUN: u32 = 16;
/// The value in place of [`MIN_RUN`] for plans whose query rows are ordered by patches (small rectangles) of a grid. It
/// is smaller because the keys of a patch are short runs, one for each grid line.
const MIN_LINE: u32 = 4;

/// The maximum number of query rows of a small residue class (rows whose positions are equal modulo a number). Small
/// classes share tiles.
const SMALL_CLASS: u32 = 16;

/// The maximum number of runs (consecutive queries or keys) in an order. Orders with more runs cost more than they
/// save.
const MOST_RUNS: u64 = 4096;
/// If a tile may read keys of several residue classes (keys whose positions are equal modulo a number), the order of
/// keys may have at most this number of classes: planning computes the keys of such a tile once for each class.
const MOST_SHARED_CLASSES: u32 = 64;
/// Planning with [`Reorder::Auto`] reorders keys only if this lowers the cost of the plan by at least `1 / GAIN` (an
/// eighth).
const GAIN: u64 = 8;
/// The minimum cost, in cells, that a new order of keys must save. For small plans this is more than an eighth of their
/// cost ([`GAIN`]), so most of them keep the order of their keys.
const LEAST_GAIN: u64 = 1 << 20;
/// The maximum number of tiles of a plan whose order of keys contains each key twice. A tile size that would give more
/// tiles is not tried.
const MOST_TILES: u32 = 1 << 21;
/// The maximum number of planning steps for each order of query rows and keys that planning tries.
const TRIAL_STEPS: u64 = 1 << 24;
/// The number of tiles in the sample from which planning estimates the cost of an order of query rows and keys.
const SAMPLED_TILES: u32 = 24;
/// The maximum number of steps to count the allowed cells of a mask, before planning tries other orders of query rows
/// and keys.
const COUNTING_STEPS: u64 = 1 << 21;

impl PatternPlan {
    /// Returns the plan of a pattern (the mask of one batch row and head). The order of queries and keys is the one
    /// that `options` select.
    pub(crate) fn new(resolved: &Resolved, options: &PlanOptions) -> Self {
        let meter = &mut Meter::new(&Budget::unlimited(), Stage::Planning, 0);
        Self::within(resolved, options, meter).expect("a budget without limits cannot run out")
    }

    /// Returns the plan as [`new`](Self::new) does, within a budget.
    ///
    /// # Errors
    /// Returns an error if the budget is spent or its watch function cancels.
    pub(crate) fn within(resolved: &Resolved, options: &PlanOptions, meter: &mut Meter<'_>) -> Result<Self, Error> {
        let Resolved { frame, pattern } = resolved;
        let (block_q, none) = (options.block_q, IntervalSet::new());
        meter.tiles(frame.q_len, block_q)?;
        let residues = |modulus: u32| Some(Reordering::new(pattern, frame, modulus, &none, &none));
        let reordering = match options.reorder {
            Reorder::Never => None,
            Reorder::Residues(modulus) if modulus < 2 => None,
            Reorder::Residues(modulus) => residues(modulus.min(MOST_CLASSES)),
            Reorder::Copies => Split::of(pattern, frame).map(|split| Reordering::with_split(split, frame, false)),
            Reorder::Auto | Reorder::Always => match pattern.modulus() {
                modulus if (2..=u64::from(MOST_CLASSES)).contains(&modulus) => residues(modulus as u32),
                _ if options.reorder == Reorder::Always => always(resolved, block_q),
                _ => return Self::cheapest(resolved, block_q, meter),
            },
        };
        Self::cut(resolved, block_q, reordering, meter)
    }

    /// Returns the plan in the cheapest order of queries and keys. Rows that read all keys, such as the tokens of
    /// `global(..)`, become neighbors if this saves cost. Keys are reordered only if this saves both an eighth of the
    /// cost ([`GAIN`]) and [`LEAST_GAIN`] cells. If no other order is cheaper, the plan keeps the given order, unless
    /// [`improved`](Self::improved) finds a better plan.
    fn cheapest(resolved: &Resolved, block_q: u32, meter: &mut Meter<'_>) -> Result<Self, Error> {
        let Resolved { frame, pattern } = resolved;
        let (rows, keys, modulus) = beside(resolved);
        let none = IntervalSet::new();
        let mut best = Self::cut(resolved, block_q, None, meter)?;
        let cut = |modulus: u32, rows: &IntervalSet, keys: &IntervalSet| {
            let reordering = Reordering::new(pattern, frame, modulus, rows, keys);
            meter.trial(TRIAL_STEPS, |meter| Self::cut(resolved, block_q, Some(reordering), meter))
        };
        if !rows.is_empty() && fits(1, &rows, &keys) {
            best = cut(1, &rows, &none)?.filter(|gathered| gathered.cost() < best.cost()).unwrap_or(best);
        }
        let with_keys = (fits(1, &rows, &keys) && !keys.is_empty()).then_some(1);
        let with_classes =
            (fits(modulus, &rows, &keys) && (2..=MOST_SHARED_CLASSES).contains(&modulus)).then_some(modulus);
        for modulus in with_keys.into_iter().chain(with_classes) {
            let least = best.cost() / GAIN;
            let most = best.cost().checked_sub(least.max(LEAST_GAIN));
            best = cut(modulus, &rows, &keys)?.filter(|other| Some(other.cost()) <= most).unwrap_or(best);
        }
        best.improved(block_q, meter)
    }

    /// Returns this plan or a better one. Other orders are tried if the keys of the rows are cheap to compute and this
    /// plan computes at least `2 * allowed + LEAST_GAIN` cells, where `allowed` is the number of allowed cells. One of
    /// these orders sorts query rows by patches (small rectangles) of a grid; in the others, each key occurs twice (see
    /// [`Split`]).
    fn improved(self, block_q: u32, meter: &mut Meter<'_>) -> Result<Self, Error> {
        let Resolved { frame, pattern } = &self.resolved;
        let computed = self.computed();
        if computed < LEAST_GAIN || !is_light(pattern) {
            return Ok(self);
        }
        let patches = Patches::of(pattern, frame, block_q);
        let split =
            Split::of(pattern, frame).filter(|split| !lists_runs(&split.near, frame) && !lists_runs(&split.far, frame));
        if patches.is_none() && split.is_none() {
            return Ok(self);
        }
        let budget = Budget::unlimited().steps(COUNTING_STEPS);
        let counted = crate::bind::count::count(&self.resolved, &mut Meter::new(&budget, Stage::Counting, 0));
        let Some(twice) = counted.ok().map(|cells| 2 * cells.allowed).filter(|twice| twice + LEAST_GAIN <= computed)
        else {
            return Ok(self);
        };
        let mut candidates = Vec::new();
        if let Some(patches) = patches {
            candidates.push((block_q, Reordering::with_patches(&patches, frame)));
        }
        let splits = split.iter().flat_map(|split| [(split, false), (split, true)]);
        for (split, by_class) in splits {
            let reordering = Reordering::with_split(split.clone(), frame, by_class);
            let few = |size: &u32| *size <= block_q && frame.q_len / size <= MOST_TILES;
            let sizes = [block_q, 24, 6, 3, 2].into_iter().filter(few);
            candidates.extend(sizes.map(|size| (size, reordering.clone())));
        }
        let mut best: Option<(bool, u64, usize)> = None;
        for (i, (rows, reordering)) in candidates.iter().enumerate() {
            let (cells, cost) = self.sampled(*rows, reordering, meter)?;
            // a plan within the limit is preferred to a cheaper one
            let key = (cells > twice / 32 * 31, cost, i);
            best = Some(best.map_or(key, |best| best.min(key)));
        }
        let Some((above, cost, chosen)) = best else { return Ok(self) };
        if above && cost + cost / GAIN > self.cost() {
            return Ok(self);
        }
        let (rows, reordering) = candidates.swap_remove(chosen);
        let other = meter.trial(TRIAL_STEPS, |meter| Self::cut(&self.resolved, rows, Some(reordering), meter))?;
        let better = |other: &Self| other.computed() <= twice || other.cost() + self.cost() / GAIN < self.cost();
        Ok(other.filter(|other| other.computed() < computed && better(other)).unwrap_or(self))
    }

    /// Returns two estimates for a plan in the order `reordering`, computed from a sample of its tiles: (number of
    /// cells that the plan computes, cost of the plan).
    fn sampled(&self, block_q: u32, reordering: &Reordering, meter: &mut Meter<'_>) -> Result<(u64, u64), Error> {
        let q_len = self.resolved.frame.q_len;
        let mut plan = PatternPlan {
            resolved: self.resolved.clone(),
            reordering: Some(Box::new(reordering.clone())),
            rows: Vec::new(),
            first_span: Vec::new(),
            spans: Vec::new(),
        };
        let (mut rows, mut cells, mut cost) = (0, 0, 0);
        for i in 0..SAMPLED_TILES {
            let start = (u64::from(q_len - 1) * u64::from(i) / u64::from(SAMPLED_TILES - 1)) as u32;
            // tiles of an order begin at the beginning of its groups
            let queries = &reordering.queries;
            let group = queries.groups()[queries.group_at(start)].start;
            let start = start - (start - group) % block_q;
            let end = plan.tile_end(start, block_q);
            plan.spans.clear();
            plan.append(start..end, meter)?;
            let tile = Tile { start, end, spans: &plan.spans };
            rows += u64::from(tile.rows());
            cells += tile.computed();
            cost += tile_cost(tile);
        }
        let all = |sum: u64| (u128::from(sum) * u128::from(q_len) / u128::from(rows.max(1))) as u64;
        Ok((all(cells), all(cost)))
    }

    /// Cuts the query rows into tiles of up to `block_q` rows, and computes the spans of the tiles. `None` for
    /// `reordering` keeps the given order of queries and keys.
    fn cut(
        resolved: &Resolved,
        block_q: u32,
        reordering: Option<Reordering>,
        meter: &mut Meter<'_>,
    ) -> Result<Self, Error> {
        let q_len = resolved.frame.q_len;
        let mut plan = PatternPlan {
            resolved: resolved.clone(),
            reordering: reordering.map(Box::new),
            rows: vec![0],
            first_span: vec![0],
            spans: Vec::new(),
        };
        let mut start = 0;
        while start < q_len {
            let end = plan.tile_end(start, block_q);
            let before = plan.spans.len();
            plan.append(start..end, meter)?;
            meter.spans((plan.spans.len() - before) as u64)?;
            plan.rows.push(end);
            plan.first_span.push(plan.spans.len() as u32);
            start = end;
        }
        meter.forget_spans(plan.spans.len() as u64);
        plan.spans.shrink_to_fit();
        Ok(plan)
    }

    /// Appends the spans (ranges of keys) of the tile with the query rows `rows`.
    fn append(&mut self, rows: Range<u32>, meter: &mut Meter<'_>) -> Result<(), Error> {
        let Resolved { frame, pattern } = &self.resolved;
        let bounds = match &self.reordering {
            None => tile_bounds(pattern, frame, &rows, (0, frame.kv_len), meter)?,
            Some(order) => {
                let bounds = pattern.ordered_bounds(frame, order, rows);
                meter.step(1 + (bounds.upper.as_slice().len() + bounds.lower.as_slice().len()) as u64)?;
                bounds
            }
        };
        let patches = self.reordering.as_ref().is_some_and(|order| order.patches.is_some());
        append_spans(&mut self.spans, &bounds.upper, &bounds.lower, if patches { MIN_LINE } else { MIN_RUN });
        Ok(())
    }

    /// Returns the end (excluded) of the tile that begins at query row `start`. If new content, such as a document,
    /// begins in the second half of the tile, the tile ends there, and the next tile begins with the new content. If
    /// this happens several times in the half, the last beginning is the end.
    fn tile_end(&self, start: u32, block_q: u32) -> u32 {
        let Resolved { frame, pattern } = &self.resolved;
        let Some(order) = &self.reordering else {
            let end = (start.saturating_add(block_q)).min(frame.q_len);
            let border = pattern.last_border(frame, start + block_q / 2, end);
            return border.filter(|b| (start + 1..end).contains(b)).unwrap_or(end);
        };
        let queries = &order.queries;
        let groups = &queries.groups()[queries.group_at(start)..];
        let end = start.saturating_add(block_q).min(groups[0].end);
        if end == groups[0].end {
            // several small classes in one tile cost less than one tile for each
            let small = |g: &&Group| {
                g.class.is_some() && g.end - g.start <= SMALL_CLASS && frame.kv_len / order.modulus() <= 4 * SMALL_CLASS
            };
            let together = groups.iter().take_while(|g| small(g) && g.end - start <= block_q);
            return together.last().map_or(end, |g| g.end);
        }
        let (after, upto) = (queries.origin(start + block_q / 2), queries.origin(end));
        // rows of a class have gaps between them, and a search for borders in every row of the gaps costs too much
        let near = upto.saturating_sub(after) <= block_q.saturating_mul(4);
        let border = if near { pattern.last_border(frame, after, upto) } else { None };
        let place = border.map(|index| queries.place(&groups[0], index));
        place.filter(|b| (start + 1..end).contains(b)).unwrap_or(end)
    }

    /// Returns the estimated cost for a kernel, in cells. Query rows and keys are rounded up to whole vectors, and each
    /// span and tile adds a fixed cost.
    fn cost(&self) -> u64 {
        self.tiles().map(tile_cost).sum()
    }

    /// Returns the number of cells that a kernel computes for this plan.
    fn computed(&self) -> u64 {
        self.tiles().map(|tile| tile.computed()).sum()
    }

    /// Returns the number of cells that a kernel would compute if query rows and keys had the order of their indices.
    ///
    /// # Errors
    /// Returns an error if the budget is spent or its watch function cancels.
    pub(crate) fn computed_in_place(&self, block_q: u32, meter: &mut Meter<'_>) -> Result<u64, Error> {
        Ok(Self::cut(&self.resolved, block_q, None, meter)?.computed())
    }
}

/// Returns true if the keys of a single query row are cheap to compute: if each atom of the pattern has few intervals
/// of keys, or keys at equal distances. Such atoms are `causal`, `stride` and `documents`.
fn is_light(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Band { .. } | Pattern::Stride(_) | Pattern::Chunk(_) | Pattern::Documents(_) => true,
        Pattern::Neighborhood(_) => true,
        Pattern::Keys(set) | Pattern::Queries(set) => set.as_slice().len() <= 16,
        Pattern::Not(part) => is_light(part),
        Pattern::And(parts) | Pattern::Or(parts) => parts.len() <= 16 && parts.iter().all(is_light),
        _ => false,
    }
}

/// The maximum number of keys that a `stride` may list for a query row in one of the two patterns of a [`Split`]. Each
/// of these keys is a separate run.
const MOST_LISTED: i64 = 64;

/// Returns true if a query row has more than `MOST_LISTED` keys of a `stride` in the pattern. Each of these keys would be
/// a separate run.
fn lists_runs(pattern: &Pattern, frame: &Frame) -> bool {
    let many = |step: i64| i64::from(frame.kv_len) / step > MOST_LISTED;
    pattern.leaves().into_iter().any(|leaf| matches!(leaf, Pattern::Stride(step) if many(*step)))
}

/// Returns the cost of one tile, for the sum in [`PatternPlan::cost`].
fn tile_cost(tile: Tile<'_>) -> u64 {
    let span = |s: &TileSpan| u64::from(s.keys()) + 24;
    u64::from(tile.rows().next_multiple_of(6)) * tile.spans.iter().map(span).sum::<u64>() + 2048
}

/// Returns (query rows, keys, modulus). The query rows and keys are those that operands of `|` select, such as the
/// tokens of `global(..)`; the modulus is the result of [`Pattern::any_modulus`]. The set of query rows is empty if it
/// would have more than a quarter of all query rows. The set of keys is empty if it would have more than a quarter of
/// all keys, or only consecutive keys.
fn beside(resolved: &Resolved) -> (IntervalSet, IntervalSet, u32) {
    let Resolved { frame, pattern } = resolved;
    let (mut rows, mut keys) = (IntervalSet::new(), IntervalSet::new());
    pattern.global(&mut rows, &mut keys);
    let few = |set: &IntervalSet, len: u32| set.count() <= u64::from(len / 4);
    let rows = if few(&rows, frame.q_len) { rows } else { IntervalSet::new() };
    // one run of keys needs no gathering
    let keys = if few(&keys, frame.kv_len) && keys.as_slice().len() > 1 { keys } else { IntervalSet::new() };
    (rows, keys, pattern.any_modulus())
}

/// Returns true if an order has at most `MOST_RUNS` runs. In the order, the query rows `rows` and the keys `keys` are
/// moved together, and the others are sorted into `modulus` residue classes (positions that are equal modulo
/// `modulus`).
fn fits(modulus: u32, rows: &IntervalSet, keys: &IntervalSet) -> bool {
    u64::from(modulus) * (rows.as_slice().len() + keys.as_slice().len() + 1) as u64 <= MOST_RUNS
}

/// Returns the order of queries and keys for [`Reorder::Always`], even if the order saves no cost:
///
/// 1. If the mask selects single queries or keys, these are moved together.
/// 2. If the mask has a stride, the other queries and keys are sorted by their position modulo the step of the stride.
/// 3. Otherwise, query rows are sorted by patches (small rectangles) of a grid.
///
/// Returns `None` if the mask has no such structure.
fn always(resolved: &Resolved, block_q: u32) -> Option<Reordering> {
    let (rows, keys, modulus) = beside(resolved);
    let found = !rows.is_empty() || !keys.is_empty();
    let Resolved { frame, pattern } = resolved;
    if fits(modulus, &rows, &keys) && (found || modulus > 1) {
        return Some(Reordering::new(pattern, frame, modulus, &rows, &keys));
    }
    Patches::of(pattern, frame, block_q).map(|patches| Reordering::with_patches(&patches, frame))
}

/// Returns bounds on the keys that the query rows `rows` read, computed for the keys from `keys.0` to `keys.1`
/// (excluded). The bounds may also contain keys outside of this range.
///
/// In an intersection (`&`), each operand computes bounds only for the keys that the other operands allow. So the cost
/// of a stride inside a band depends only on the width of the band.
fn tile_bounds(
    pattern: &Pattern,
    frame: &Frame,
    rows: &Range<u32>,
    keys: (u32, u32),
    meter: &mut Meter<'_>,
) -> Result<Bounds, Error> {
    let bounds = match pattern {
        Pattern::Not(part) => tile_bounds(part, frame, rows, keys, meter)?.not(frame.kv_len),
        Pattern::And(parts) => {
            let mut all: Option<Bounds> = None;
            let mut keys = keys;
            let late =
                |part: &Pattern| !matches!(part, Pattern::Band { .. } | Pattern::Chunk(_) | Pattern::Documents(_));
            for part in parts.iter().filter(|part| !late(part)).chain(parts.iter().filter(|part| late(part))) {
                let next = tile_bounds(part, frame, rows, keys, meter)?;
                let both = match all {
                    None => next,
                    Some(all) => all.and(&next),
                };
                let Some(covering) = both.upper.covering_range() else { return Ok(Bounds::nothing()) };
                keys = (keys.0.max(covering.start), keys.1.min(covering.end));
                if keys.0 >= keys.1 {
                    return Ok(Bounds::nothing());
                }
                all = Some(both);
            }
            all.unwrap_or_else(|| Bounds::exact(IntervalSet::all(frame.kv_len)))
        }
        Pattern::Or(parts) => {
            let mut any = Bounds::nothing();
            for part in parts {
                any = any.or(&tile_bounds(part, frame, rows, keys, meter)?);
            }
            any
        }
        // a tile with more runs than its maximum would merge them again
        Pattern::Stride(step)
            if rows.len() > 1 && i64::from(keys.1.saturating_sub(keys.0)) / step >= MAX_SPANS as i64 =>
        {
            Bounds::unknown(frame.kv_len)
        }
        Pattern::Stride(step) => stride_bounds(*step, frame, rows, keys),
        leaf => {
            if let Pattern::Atom(atom) = leaf {
                meter.step(atom.bounds_cost(frame, rows))?;
            }
            leaf.bounds(frame, rows.clone())
        }
    };
    meter.step(1 + (bounds.upper.as_slice().len() + bounds.lower.as_slice().len()) as u64)?;
    Ok(bounds)
}

/// Appends the spans of one tile to `out`: full spans for the keys of `lower`, and mixed spans for the other keys of
/// `upper`. Full spans and gaps of fewer than `least` keys may become part of a mixed span.
fn append_spans(out: &mut Vec<TileSpan>, upper: &IntervalSet, lower: &IntervalSet, least: u32) {
    let from = out.len();
    let mixed = upper.minus(lower);
    let (mut full, mut mixed) = (lower.as_slice(), mixed.as_slice());
    loop {
        let (list, kind) = match (full.first(), mixed.first()) {
            (Some(f), Some(m)) if f.start < m.start => (&mut full, SpanKind::Full),
            (_, Some(_)) => (&mut mixed, SpanKind::Mixed),
            (Some(_), None) => (&mut full, SpanKind::Full),
            (None, None) => break,
        };
        let (first, rest) = list.split_first().expect("matched above");
        out.push(TileSpan { start: first.start, end: first.end, kind });
        *list = rest;
    }
    let mut shortest = least;
    merge_short(out, from, shortest);
    while out.len() - from > MAX_SPANS {
        shortest = shortest.saturating_mul(2);
        out[from..].iter_mut().filter(|s| s.keys() < shortest).for_each(|s| s.kind = SpanKind::Mixed);
        merge_short(out, from, shortest);
    }
}

/// Merges short spans among the spans from index `from` on. Full spans and gaps that have fewer than `shortest` keys
/// and are next to a mixed span become part of it.
fn merge_short(spans: &mut Vec<TileSpan>, from: usize, shortest: u32) {
    let mut kept = from;
    for i in from..spans.len() {
        let mut span = spans[i];
        let near_mixed =
            |a: &TileSpan, b: &TileSpan, other: &TileSpan| other.kind == SpanKind::Mixed && b.start - a.end < shortest;
        let after_mixed = kept > from && near_mixed(&spans[kept - 1], &span, &spans[kept - 1]);
        let before_mixed = spans.get(i + 1).is_some_and(|next| near_mixed(&span, next, next));
        if span.kind == SpanKind::Full && span.keys() < shortest && (after_mixed || before_mixed) {
            span.kind = SpanKind::Mixed;
        }
        if after_mixed && span.kind == SpanKind::Mixed {
            spans[kept - 1].end = span.end;
        } else {
            spans[kept] = span;
            kept += 1;
        }
    }
    spans.truncate(kept);
}
