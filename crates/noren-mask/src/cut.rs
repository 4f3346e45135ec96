//! Cuts a pattern into tiles: chooses the order of queries and keys, the ends of tiles, and their spans.

use crate::Error;
use crate::bind::Resolved;
use crate::bounds::Bounds;
use crate::budget::{Budget, Meter, Stage};
use crate::frame::Frame;
use crate::interval::IntervalSet;
use crate::order::{Group, MOST_CLASSES};
use crate::patch::Patches;
use crate::pattern::{MAX_RUNS, Pattern};
use crate::plan::{Kind, PatternPlan, PlanOptions, Reorder, Tile, TileSpan};
use crate::reorder::Reordering;
use crate::split::Split;
use std::ops::Range;

/// The maximum number of spans of a tile. If a tile has more, spans are merged, so that plans stay small for every mask.
const MAX_SPANS: usize = 256;
/// The minimum number of keys of a full span next to a mixed span, and of a gap between two spans. Shorter full spans
/// and gaps become part of a mixed span, because they cost a kernel more than they save.
const MIN_RUN: u32 = 16;
/// The value of [`MIN_RUN`] for plans whose query rows are ordered by patches (small rectangles) of a grid: the keys of
/// a patch are short runs, one for each grid line.
const MIN_LINE: u32 = 4;

/// The maximum number of query rows of a small residue class (rows whose positions are equal modulo a number). Small
/// classes share tiles.
const SMALL_CLASS: u32 = 16;

/// The maximum number of runs into which an order splits queries and keys. Orders with more runs cost more than they save.
const MOST_RUNS: u64 = 4096;
/// The maximum number of residue classes of keys in an order in which the rows of a tile read keys of several classes.
/// The limit exists because the bounds of the tile are computed in each class.
const MOST_SHARED_CLASSES: u32 = 64;
/// The divisor for the cost that a change of the order of keys must save: [`Reorder::Auto`] reorders keys only if the
/// plan then costs at least an eighth less.
const GAIN: u64 = 8;
/// The minimum cost in cells that an order of keys must save, even if an eighth of the plan's cost is less. So small
/// plans keep the order of their keys.
const LEAST_GAIN: u64 = 1 << 20;
/// The maximum number of tiles of a plan in which each key has two places. Tile sizes that would give more tiles are
/// not tried.
const MOST_TILES: u32 = 1 << 21;
/// The maximum number of planning steps for one order, when several orders are compared.
const TRIAL_STEPS: u64 = 1 << 24;
/// The number of tiles that are computed as a sample for each order, when orders are compared.
const SAMPLED_TILES: u32 = 24;
/// The maximum number of steps to count the cells of a pattern, when orders are compared.
const COUNTING_STEPS: u64 = 1 << 21;

impl PatternPlan {
    /// Returns the plan of a pattern, in the order of queries and keys that `options` select.
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

    /// Returns the plan in the cheapest order of queries and keys. Gathered query rows are chosen if they save cost,
    /// and an order of keys only if it saves at least an eighth of the cost ([`GAIN`]) and [`LEAST_GAIN`] cells.
    /// Otherwise the plan keeps the given order, unless [`improved`](Self::improved) finds a better plan.
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

    /// Returns this plan or a better one. If this plan computes more than twice the allowed cells, it is compared with
    /// plans in two other orders: query rows by patches (small rectangles) of a grid, and keys in two copies (see
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
        let counted = crate::count::count(&self.resolved, &mut Meter::new(&budget, Stage::Counting, 0));
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

    /// Returns two estimates for a plan in the order `reordering`, computed from a sample of tiles: the number of cells
    /// that the plan computes, and the cost of the plan.
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

    /// Appends the spans of the tile with the rows `rows`.
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

    /// Returns the end of the tile that begins at query row `start`. If new content (such as a document) begins in the
    /// second half of the tile, the tile ends before the last row at which content begins, so that the next tile begins
    /// with that content.
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

    /// Returns the number of cells that a kernel would compute without reordering.
    ///
    /// # Errors
    /// Returns an error if the budget is spent or its watch function cancels.
    pub(crate) fn computed_in_place(&self, block_q: u32, meter: &mut Meter<'_>) -> Result<u64, Error> {
        Ok(Self::cut(&self.resolved, block_q, None, meter)?.computed())
    }
}

/// Returns whether the bounds of single query rows are cheap to compute, because each part of the pattern has few intervals.
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

/// The maximum number of runs that a stride in one part of a [`Split`] (near or far cells) may list for a query row.
/// Each of these runs has one key.
const MOST_LISTED: i64 = 64;

/// Returns whether a stride in the pattern lists more than `MOST_LISTED` runs for a query row.
fn lists_runs(pattern: &Pattern, frame: &Frame) -> bool {
    match pattern {
        Pattern::Stride(step) => i64::from(frame.kv_len) / step > MOST_LISTED,
        Pattern::Not(part) => lists_runs(part, frame),
        Pattern::And(parts) | Pattern::Or(parts) => parts.iter().any(|part| lists_runs(part, frame)),
        _ => false,
    }
}

/// Returns the cost of one tile, for the sum in [`PatternPlan::cost`].
fn tile_cost(tile: Tile<'_>) -> u64 {
    let span = |s: &TileSpan| u64::from(s.keys()) + 24;
    u64::from(tile.rows().next_multiple_of(6)) * tile.spans.iter().map(span).sum::<u64>() + 2048
}

/// Returns (query rows, keys, modulus). The query rows and keys are those of operands of `|`, such as the tokens of
/// `global(..)`. Each of the two sets is empty if it has more than a quarter of all rows or keys, and `keys` also if
/// they are one run. The modulus is the result of [`Pattern::any_modulus`].
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

/// Returns whether an order has at most `MOST_RUNS` runs. The order has `modulus` residue classes, and the rows `rows`
/// and keys `keys` are gathered (placed next to one another).
fn fits(modulus: u32, rows: &IntervalSet, keys: &IntervalSet) -> bool {
    u64::from(modulus) * (rows.as_slice().len() + keys.as_slice().len() + 1) as u64 <= MOST_RUNS
}

/// Returns the order of queries and keys for [`Reorder::Always`], even if the order saves no cost: by gathered tokens
/// and residue classes, or else by patches of a grid. Returns `None` if the mask has none of these.
fn always(resolved: &Resolved, block_q: u32) -> Option<Reordering> {
    let (rows, keys, modulus) = beside(resolved);
    let found = !rows.is_empty() || !keys.is_empty();
    let Resolved { frame, pattern } = resolved;
    if fits(modulus, &rows, &keys) && (found || modulus > 1) {
        return Some(Reordering::new(pattern, frame, modulus, &rows, &keys));
    }
    Patches::of(pattern, frame, block_q).map(|patches| Reordering::with_patches(&patches, frame))
}

/// Returns the bounds of the query rows `rows`, computed for the keys `keys` (start, end). The bounds may also contain
/// keys outside this range.
///
/// In an intersection, each part computes bounds only for the keys that the other parts allow. So a stride in a band
/// costs only the width of the band.
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

/// Appends the spans of one tile to `out`: full spans for `lower`, mixed spans for the rest of `upper`. Full spans and
/// gaps of fewer than `least` keys may become part of a mixed span.
fn append_spans(out: &mut Vec<TileSpan>, upper: &IntervalSet, lower: &IntervalSet, least: u32) {
    let from = out.len();
    let mixed = upper.minus(lower);
    let (mut full, mut mixed) = (lower.as_slice(), mixed.as_slice());
    loop {
        let (list, kind) = match (full.first(), mixed.first()) {
            (Some(f), Some(m)) if f.start < m.start => (&mut full, Kind::Full),
            (_, Some(_)) => (&mut mixed, Kind::Mixed),
            (Some(_), None) => (&mut full, Kind::Full),
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
        out[from..].iter_mut().filter(|s| s.keys() < shortest).for_each(|s| s.kind = Kind::Mixed);
        merge_short(out, from, shortest);
    }
}

/// Merges the spans from index `from` on: full spans and gaps of fewer than `shortest` keys next to mixed spans become
/// part of a mixed span.
fn merge_short(spans: &mut Vec<TileSpan>, from: usize, shortest: u32) {
    let mut kept = from;
    for i in from..spans.len() {
        let mut span = spans[i];
        let near_mixed =
            |a: &TileSpan, b: &TileSpan, other: &TileSpan| other.kind == Kind::Mixed && b.start - a.end < shortest;
        let after_mixed = kept > from && near_mixed(&spans[kept - 1], &span, &spans[kept - 1]);
        let before_mixed = spans.get(i + 1).is_some_and(|next| near_mixed(&span, next, next));
        if span.kind == Kind::Full && span.keys() < shortest && (after_mixed || before_mixed) {
            span.kind = Kind::Mixed;
        }
        if after_mixed && span.kind == Kind::Mixed {
            spans[kept - 1].end = span.end;
        } else {
            spans[kept] = span;
            kept += 1;
        }
    }
    spans.truncate(kept);
}

/// Returns the bounds of a stride for the query rows `rows` and the keys `keys` (start, end). The upper bound has one
/// run of keys for each multiple of `step`. If the runs are too many or too close together, the bounds are unknown.
fn stride_bounds(step: i64, frame: &Frame, rows: &Range<u32>, keys: (u32, u32)) -> Bounds {
    let reach = i64::from(rows.end - rows.start) - 1;
    let runs = i64::from(keys.1.saturating_sub(keys.0)) / step;
    // a tile with more runs than its maximum would merge them again
    if runs > MAX_RUNS || reach > 0 && (step <= 4 * (reach + 1) || runs >= MAX_SPANS as i64) {
        return Bounds::unknown(frame.kv_len);
    }
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
