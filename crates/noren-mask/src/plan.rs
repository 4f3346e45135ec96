//! [`Plan`]: for each distinct pattern, query tiles and the keys they read, full or mixed.

use crate::bind::{BoundMask, Resolved};
use crate::bits::row_words;
use crate::interval::{Interval, IntervalSet};
use crate::order::{Group, Order};
use crate::reorder::{MOST_CLASSES, Reordering};
use crate::shape::Shape;
use crate::verify;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Whether every query of a tile may read the keys of a span, or only some cells are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Every cell is allowed.
    Full,
    /// Some cells may be allowed; [`PatternPlan::fill_bits`] says which.
    Mixed,
}

/// A run of keys `start..end` and how the queries of one tile read it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TileSpan {
    /// First key.
    pub start: u32,
    /// First key after.
    pub end: u32,
    /// Full or mixed.
    pub kind: Kind,
}

impl TileSpan {
    /// Number of keys.
    pub fn keys(&self) -> u32 {
        self.end - self.start
    }
}

/// Query rows `start..end` and the keys they read, by their places in the plan's order: spans ascending and disjoint. What is in no span is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile<'a> {
    /// First query row.
    pub start: u32,
    /// First query row after.
    pub end: u32,
    /// The keys.
    pub spans: &'a [TileSpan],
}

impl Tile<'_> {
    /// Number of query rows.
    pub fn rows(&self) -> u32 {
        self.end - self.start
    }

    /// Cells that a kernel computes: rows times the keys of all spans.
    pub fn computed(&self) -> u64 {
        self.spans.iter().map(|s| u64::from(s.keys())).sum::<u64>() * u64::from(self.rows())
    }
}

/// How a plan is cut into tiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanOptions {
    /// Most query rows in a tile.
    pub block_q: u32,
    /// Width of the key tiles in which statistics and the transposed view count.
    pub block_kv: u32,
    /// Whether queries and keys may be put in another order.
    #[serde(default = "never")]
    pub reorder: Reorder,
}

/// Plans written before there were orders have none.
fn never() -> Reorder {
    Reorder::Never
}

/// Whether a plan may put queries and keys in another order, in which its tiles are full. The set of cells is the same.
///
/// `causal & stride(8)` allows an eighth of the causal cells, but no tile of it is empty. By residue classes of the positions
/// modulo 8, it is a causal mask for each class. In `window(left=256, right=256) | global([5, 900])` two rows read
/// everything; put in a tile of their own they cost two rows, not two tiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reorder {
    /// By residue classes where every distance is a multiple of one number, whatever the sizes: all keys of a row are then in
    /// one class and stay in ascending order. Queries of a `global(..)` are gathered when that saves something, which nothing
    /// but the cost shows. What changes the order in which a row adds its keys in another way is done only where it saves an
    /// eighth of the cost, and a million cells.
    #[default]
    Auto,
    /// Every query and key at its own place.
    Never,
    /// Wherever the mask suggests an order, whatever it saves.
    Always,
    /// By residue classes of positions by this modulus (at most 4096), whatever the mask.
    Residues(u32),
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { block_q: 96, block_kv: 64, reorder: Reorder::Auto }
    }
}

/// Beyond this many spans a tile's are merged: a plan stays small whatever the mask.
const MAX_SPANS: usize = 256;
/// Shorter full runs beside mixed ones, and shorter gaps between spans, cost a kernel more than they save.
const MIN_RUN: u32 = 16;

/// Residue classes of at most this many rows share tiles.
const SMALL_CLASS: u32 = 16;

/// The plan of one distinct pattern: query tiles and their spans. It holds for every (batch, head) that
/// [`Plan::pattern_of`] maps to it.
///
/// Where [`query_order`](Self::query_order) or [`key_order`](Self::key_order) is given, tiles, spans and bits speak of *places*
/// in these orders, and [`query_at`](Self::query_at) and [`key_at`](Self::key_at) say which query row and key stands there.
#[derive(Clone, PartialEq, Debug)]
pub struct PatternPlan {
    resolved: Resolved,
    /// `None`: places are indices.
    reordering: Option<Box<Reordering>>,
    /// First row of each tile, and the number of rows at the end.
    rows: Vec<u32>,
    /// First span of each tile, and the number of spans at the end.
    first_span: Vec<u32>,
    spans: Vec<TileSpan>,
}

/// Orders with more runs than this are not tried: they would cost more than they save.
const MOST_RUNS: u64 = 4096;
/// Where rows read several residue classes, the bounds of a tile are found in each: more of them are not tried.
const MOST_SHARED_CLASSES: u32 = 64;
/// The part of a pattern's cost that an order must save before [`Reorder::Auto`] changes the order of a row's keys for it.
const GAIN: u64 = 8;
/// And the cells: small plans keep the order of keys, so that it does not hang on a little more or less of them.
const LEAST_GAIN: u64 = 1 << 20;

impl PatternPlan {
    pub(crate) fn new(resolved: &Resolved, options: &PlanOptions) -> Self {
        let Resolved { frame, pattern } = resolved;
        let none = IntervalSet::new();
        let cut = |modulus: u32, rows: &IntervalSet, keys: &IntervalSet| {
            let reordering = Reordering::new(pattern, frame, modulus, rows, keys);
            Self::cut(resolved, options.block_q, Some(reordering))
        };
        let natural = || Self::cut(resolved, options.block_q, None);
        let modulus = match options.reorder {
            Reorder::Never => return natural(),
            Reorder::Residues(modulus) if modulus < 2 => return natural(),
            Reorder::Residues(modulus) => return cut(modulus.min(MOST_CLASSES), &none, &none),
            Reorder::Auto | Reorder::Always => pattern.modulus(),
        };
        if (2..=u64::from(MOST_CLASSES)).contains(&modulus) {
            return cut(modulus as u32, &none, &none);
        }

        let (mut rows, mut keys) = (IntervalSet::new(), IntervalSet::new());
        pattern.global(&mut rows, &mut keys);
        let few = |set: &IntervalSet, len: u32| set.count() <= u64::from(len / 4);
        let rows = if few(&rows, frame.q_len) { rows } else { none.clone() };
        // one run of keys is one run already
        let keys = if few(&keys, frame.kv_len) && keys.as_slice().len() > 1 { keys } else { none.clone() };
        let modulus = pattern.any_modulus();
        let fits =
            |modulus: u32| u64::from(modulus) * (rows.as_slice().len() + keys.as_slice().len() + 1) as u64 <= MOST_RUNS;
        let found = !rows.is_empty() || !keys.is_empty();
        if options.reorder == Reorder::Always {
            return match fits(modulus) && (found || modulus > 1) {
                true => cut(modulus, &rows, &keys),
                false => natural(),
            };
        }
        let mut best = natural();
        if !rows.is_empty() && fits(1) {
            let gathered = cut(1, &rows, &none);
            best = if gathered.cost() < best.cost() { gathered } else { best };
        }
        let with_keys = (fits(1) && !keys.is_empty()).then_some(1);
        let with_classes = (fits(modulus) && (2..=MOST_SHARED_CLASSES).contains(&modulus)).then_some(modulus);
        for modulus in with_keys.into_iter().chain(with_classes) {
            let other = cut(modulus, &rows, &keys);
            let least = best.cost() / GAIN;
            if other.cost() + least.max(LEAST_GAIN) <= best.cost() {
                best = other;
            }
        }
        best
    }

    /// Cuts the rows into tiles and finds their spans.
    fn cut(resolved: &Resolved, block_q: u32, reordering: Option<Reordering>) -> Self {
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
            let Resolved { frame, pattern } = resolved;
            let bounds = match &plan.reordering {
                None => pattern.bounds(frame, start..end),
                Some(order) => pattern.ordered_bounds(frame, order, start..end),
            };
            append_spans(&mut plan.spans, &bounds.upper, &bounds.lower);
            plan.rows.push(end);
            plan.first_span.push(plan.spans.len() as u32);
            start = end;
        }
        plan.spans.shrink_to_fit();
        plan
    }

    /// A tile ends at the last border of its content (a document's start, say) in its second half, so that the next tile
    /// begins with that content.
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
            // classes of a few rows and keys cost less together than what every tile costs
            let small = |g: &&Group| {
                g.class.is_some() && g.end - g.start <= SMALL_CLASS && frame.kv_len / order.modulus() <= 4 * SMALL_CLASS
            };
            let together = groups.iter().take_while(|g| small(g) && g.end - start <= block_q);
            return together.last().map_or(end, |g| g.end);
        }
        let (after, upto) = (queries.origin(start + block_q / 2), queries.origin(end));
        // rows of a class lie far apart, and their borders are not worth looking at each row between them
        let near = upto.saturating_sub(after) <= block_q.saturating_mul(4);
        let border = if near { pattern.last_border(frame, after, upto) } else { None };
        let place = border.map(|index| queries.place(&groups[0], index));
        place.filter(|b| (start + 1..end).contains(b)).unwrap_or(end)
    }

    /// About what a kernel takes, in cells: rows and keys come in vectors, and spans and tiles have a cost of their own.
    fn cost(&self) -> u64 {
        let span = |s: &TileSpan| u64::from(s.keys()) + 24;
        let tile = |t: Tile<'_>| u64::from(t.rows().next_multiple_of(6)) * t.spans.iter().map(span).sum::<u64>() + 2048;
        self.tiles().map(tile).sum()
    }

    /// The order of query rows; `None` when every row is at its own place.
    pub fn query_order(&self) -> Option<&Order> {
        self.reordering.as_ref().map(|order| &order.queries).filter(|order| !order.is_identity())
    }

    /// The order of keys; `None` when every key is at its own place.
    pub fn key_order(&self) -> Option<&Order> {
        self.reordering.as_ref().and_then(|order| order.keys.as_ref()).filter(|order| !order.is_identity())
    }

    /// The query row at place `place`.
    ///
    /// # Panics
    /// When `place` is not below [`q_len`](Self::q_len) and the plan is reordered.
    pub fn query_at(&self, place: u32) -> u32 {
        self.query_order().map_or(place, |order| order.origin(place))
    }

    /// The key at place `place`.
    ///
    /// # Panics
    /// When `place` is not below [`kv_len`](Self::kv_len) and the plan is reordered.
    pub fn key_at(&self, place: u32) -> u32 {
        self.key_order().map_or(place, |order| order.origin(place))
    }

    /// What was reordered, `None` when nothing was: `8 residue classes`.
    pub fn reordered(&self) -> Option<String> {
        self.reordering.as_ref().map(|order| order.to_string())
    }

    /// The cells that a kernel would compute without the order.
    pub(crate) fn computed_in_place(&self, block_q: u32) -> u64 {
        Self::cut(&self.resolved, block_q, None).tiles().map(|t| t.computed()).sum()
    }

    pub(crate) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Changes the spans of the middle tile: an error for tests of the guard.
    #[cfg(test)]
    pub(crate) fn plant(&mut self, error: impl Fn(&mut TileSpan)) {
        let tile = self.tile_count() / 2;
        let spans = self.first_span[tile] as usize..self.first_span[tile + 1] as usize;
        self.spans[spans].iter_mut().for_each(error);
    }

    /// Changes the first rows of tiles, the last of which is the end: an error for tests of the guard.
    #[cfg(test)]
    pub(crate) fn plant_rows(&mut self, error: impl Fn(&mut Vec<u32>)) {
        error(&mut self.rows);
    }

    /// The groups of the order of keys; none when keys are at their own places.
    pub(crate) fn key_groups(&self) -> &[Group] {
        self.reordering.as_ref().and_then(|order| order.keys.as_ref()).map_or(&[], Order::groups)
    }

    /// Number of query rows.
    pub fn q_len(&self) -> u32 {
        self.resolved.frame.q_len
    }

    /// Number of keys.
    pub fn kv_len(&self) -> u32 {
        self.resolved.frame.kv_len
    }

    /// Number of query tiles.
    pub fn tile_count(&self) -> usize {
        self.rows.len() - 1
    }

    /// Query tile number `index`; tiles cover all query rows in order.
    pub fn tile(&self, index: usize) -> Tile<'_> {
        let spans = self.first_span[index] as usize..self.first_span[index + 1] as usize;
        Tile { start: self.rows[index], end: self.rows[index + 1], spans: &self.spans[spans] }
    }

    /// All tiles, in order.
    pub fn tiles(&self) -> impl ExactSizeIterator<Item = Tile<'_>> {
        (0..self.tile_count()).map(|i| self.tile(i))
    }

    /// The smallest key range that holds every span, `0..0` when there is none.
    pub fn key_hull(&self) -> Range<u32> {
        let ends = self.tiles().filter_map(|t| Some((t.spans.first()?.start, t.spans.last()?.end)));
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).map_or(0..0, |(a, z)| a..z)
    }

    /// Exact cells of `rows` x `keys`, both by their places: bit `i % 64` of word `i / 64` of row `r` is set when query row `rows.start + r` may read
    /// key `keys.start + i`. Each row takes `keys.len().div_ceil(64)` words; bits beyond `keys` are 0. Overwrites `words`.
    ///
    /// # Panics
    /// When `words` has another length, or `rows` or `keys` reach outside the shape.
    pub fn fill_bits(&self, rows: Range<u32>, keys: Range<u32>, words: &mut [u64]) {
        let Resolved { frame, pattern } = &self.resolved;
        assert!(rows.start <= rows.end && rows.end <= frame.q_len, "rows {rows:?} of {}", frame.q_len);
        assert!(keys.start <= keys.end && keys.end <= frame.kv_len, "keys {keys:?} of {}", frame.kv_len);
        assert_eq!(words.len(), rows.len() * row_words(keys.len() as u32), "words for {rows:?} x {keys:?}");
        if words.is_empty() {
            return;
        }
        match &self.reordering {
            None => pattern.fill(frame, rows, Interval::new(keys.start, keys.end), words),
            Some(order) => pattern.ordered_fill(frame, order, rows, keys, words),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let orders =
            self.reordering.as_ref().map_or(0, |r| r.queries.bytes() + r.keys.as_ref().map_or(0, Order::bytes));
        orders + 4 * (self.rows.len() + self.first_span.len()) + size_of::<TileSpan>() * self.spans.len()
    }
}

/// The exact, small form of a bound mask that kernels, exports and pictures read.
///
/// A plan holds one [`PatternPlan`] for each distinct (batch, head) pattern and the map to it: `O(tiles + spans)` memory,
/// never `q_len * kv_len`.
///
/// ```
/// use noren_mask::{Facts, Kind, Shape, atoms::*};
/// let plan = causal().bind(&Shape::square(256).heads(8), &Facts::new())?.plan();
/// assert_eq!(plan.patterns().len(), 1); // all heads share it
/// let tile = plan.patterns()[0].tile(1);
/// let spans: Vec<_> = tile.spans.iter().map(|s| (s.start, s.end, s.kind)).collect();
/// assert_eq!((tile.start, tile.end), (96, 192));
/// assert_eq!(spans, [(0, 97, Kind::Full), (97, 192, Kind::Mixed)]);
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    bound: BoundMask,
    options: PlanOptions,
    patterns: Vec<PatternPlan>,
    planning_time: Duration,
}

/// Two plans are equal when they are of equal masks, shapes and facts, and have the same tiles. The time that planning took does
/// not count.
impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options && self.bound == other.bound && self.patterns == other.patterns
    }
}

impl BoundMask {
    /// The plan with tiles of 96 query rows, which suits the kernels.
    pub fn plan(&self) -> Plan {
        self.plan_with(&PlanOptions::default())
    }

    /// Returns the plan of the pattern with this index alone, unverified: for pictures.
    ///
    /// # Panics
    /// If the mask has no such pattern; see [`pattern_of`](Self::pattern_of).
    pub fn plan_of_pattern(&self, pattern: usize, options: &PlanOptions) -> PatternPlan {
        PatternPlan::new(&self.resolved()[pattern], options)
    }

    /// The plan cut as `options` says; block sizes of 0 count as 1.
    pub fn plan_with(&self, options: &PlanOptions) -> Plan {
        let start = Instant::now();
        let options = PlanOptions { block_q: options.block_q.max(1), block_kv: options.block_kv.max(1), ..*options };
        let patterns = verify::plans(self, &options);
        let plan = Plan { bound: self.clone(), options, patterns, planning_time: start.elapsed() };
        verify::debug_check(&plan);
        plan
    }
}

impl Plan {
    /// The mask it was made from.
    pub fn bound(&self) -> &BoundMask {
        &self.bound
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.bound.shape()
    }

    /// How it was cut.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The same plan with every query and key at its own place, for what reads tiles and knows no order.
    pub fn in_place(&self) -> Cow<'_, Plan> {
        match self.patterns.iter().any(|p| p.reordering.is_some()) {
            true => Cow::Owned(self.bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..self.options })),
            false => Cow::Borrowed(self),
        }
    }

    /// The distinct patterns.
    pub fn patterns(&self) -> &[PatternPlan] {
        &self.patterns
    }

    /// Index into [`patterns`](Self::patterns) for this batch row and query head.
    pub fn pattern_of(&self, batch: usize, head: usize) -> usize {
        self.bound.pattern_of(batch, head)
    }

    /// The position of query row `row` of batch row `batch`.
    pub fn query_position(&self, batch: usize, row: usize) -> i64 {
        self.bound.query_position(batch, row)
    }

    /// The position of key `key` of batch row `batch`; negative for an empty slot.
    pub fn key_position(&self, batch: usize, key: usize) -> i64 {
        self.bound.key_position(batch, key)
    }

    /// How long making the plan took (binding not counted).
    pub fn planning_time(&self) -> Duration {
        self.planning_time
    }

    /// Memory that tiles and spans take, in bytes.
    pub fn bytes(&self) -> usize {
        self.patterns.iter().map(PatternPlan::bytes).sum()
    }
}

/// Appends the spans of one tile: full where `lower` holds, mixed in the rest of `upper`.
fn append_spans(out: &mut Vec<TileSpan>, upper: &IntervalSet, lower: &IntervalSet) {
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
    let mut shortest = MIN_RUN;
    merge_short(out, from, shortest);
    while out.len() - from > MAX_SPANS {
        shortest = shortest.saturating_mul(2);
        out[from..].iter_mut().filter(|s| s.keys() < shortest).for_each(|s| s.kind = Kind::Mixed);
        merge_short(out, from, shortest);
    }
}

/// Merges mixed spans across full runs and gaps that are shorter than `shortest`.
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
