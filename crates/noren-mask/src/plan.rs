//! [`Plan`]: for each distinct pattern, query tiles and the keys they read, full or mixed.

use crate::bind::{BoundMask, Resolved};
use crate::bits::row_words;
use crate::interval::Interval;
use crate::order::{Group, Order};
use crate::reorder::Reordering;
use crate::shape::Shape;
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

/// Whether every query of a tile may read the keys of a span, or only some cells are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PlanOptions {
    /// Most query rows in a tile.
    pub block_q: u32,
    /// Width of the key tiles in which statistics and the transposed view count.
    pub block_kv: u32,
    /// Whether queries and keys may be put in another order.
    #[cfg_attr(feature = "serde", serde(default = "never"))]
    pub reorder: Reorder,
}

/// Plans written before there were orders have none.
#[cfg(feature = "serde")]
fn never() -> Reorder {
    Reorder::Never
}

/// Whether a plan may put queries and keys in another order, in which its tiles are full. The set of cells is the same.
///
/// `causal & stride(8)` allows an eighth of the causal cells, but no tile of it is empty. By residue classes of the positions
/// modulo 8, it is a causal mask for each class. In `window(left=256, right=256) | global([5, 900])` two rows read
/// everything; put in a tile of their own they cost two rows, not two tiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
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
    /// Keys in two orders where a stride stands beside something else: in place for what the mask allows without its largest
    /// stride, and by residue classes for the rest. Whatever it saves; masks without a stride are planned in place.
    Copies,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { block_q: 96, block_kv: 64, reorder: Reorder::Auto }
    }
}

/// The plan of one distinct pattern: query tiles and their spans. It holds for every (batch, head) that
/// [`Plan::pattern_of`] maps to it.
///
/// Where [`query_order`](Self::query_order) or [`key_order`](Self::key_order) is given, tiles, spans and bits speak of *places*
/// in these orders, and [`query_at`](Self::query_at) and [`key_at`](Self::key_at) say which query row and key stands there.
#[derive(Clone, PartialEq, Debug)]
pub struct PatternPlan {
    pub(super) resolved: Resolved,
    /// `None`: places are indices.
    pub(super) reordering: Option<Box<Reordering>>,
    /// First row of each tile, and the number of rows at the end.
    pub(super) rows: Vec<u32>,
    /// First span of each tile, and the number of spans at the end.
    pub(super) first_span: Vec<u32>,
    pub(super) spans: Vec<TileSpan>,
}

impl PatternPlan {
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
    /// When `place` is not below [`key_places`](Self::key_places) and the plan is reordered.
    pub fn key_at(&self, place: u32) -> u32 {
        self.key_order().map_or(place, |order| order.origin(place))
    }

    /// What was reordered, `None` when nothing was: `8 residue classes`.
    pub fn reordered(&self) -> Option<String> {
        self.reordering.as_ref().map(|order| order.to_string())
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

    /// Number of places of keys: that of keys, unless each has a second place.
    pub fn key_places(&self) -> u32 {
        self.reordering.as_ref().and_then(|order| order.keys.as_ref()).map_or(self.kv_len(), Order::len)
    }

    /// Whether keys have two places, of which a row reads one.
    pub(crate) fn has_copies(&self) -> bool {
        self.reordering.as_ref().is_some_and(|order| order.split.is_some())
    }

    /// Number of query tiles.
    pub fn tile_count(&self) -> usize {
        self.rows.len() - 1
    }

    /// Number of spans of all tiles.
    pub(crate) fn span_count(&self) -> usize {
        self.spans.len()
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
        let places = self.key_places();
        assert!(keys.start <= keys.end && keys.end <= places, "keys {keys:?} of {places}");
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
    pub(super) bound: BoundMask,
    pub(super) options: PlanOptions,
    pub(super) patterns: Vec<PatternPlan>,
    pub(super) planning_time: Duration,
}

/// Two plans are equal when they are of equal masks, shapes and facts, and have the same tiles. The time that planning took does
/// not count.
impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options && self.bound == other.bound && self.patterns == other.patterns
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
