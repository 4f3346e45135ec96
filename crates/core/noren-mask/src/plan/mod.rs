//! [`Plan`]: for each distinct pattern (set of cells of a batch row and head), tiles of queries. Each tile has the
//! spans (ranges) of keys that its queries read, full or mixed.

mod content;
pub(crate) mod cut;
pub(crate) mod guard;
pub(crate) mod patch;
pub(crate) mod reorder;
pub(crate) mod split;
pub(crate) mod stats;
pub(crate) mod verify;

use crate::bind::{BoundMask, Resolved};
use crate::facts::shape::Shape;
use crate::plan::reorder::Reordering;
use crate::sets::bits::row_words;
use crate::sets::interval::Interval;
use crate::sets::order::{Group, Order};
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

/// The kind of a span (range of keys that a tile reads): full (every query of the tile may read all keys) or mixed
/// (some cells may be denied).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum SpanKind {
    /// Every cell of the span is allowed.
    Full,
    /// Some cells of the span may be denied; [`PatternPlan::fill_bits`] gives the allowed cells.
    Mixed,
}

/// A span of keys `start..end` and its kind, full or mixed, for the queries of one tile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TileSpan {
    /// The first key of the span.
    pub start: u32,
    /// The first key after the span.
    pub end: u32,
    /// The kind: full or mixed.
    pub kind: SpanKind,
}

impl TileSpan {
    /// Returns the number of keys of the span.
    pub fn keys(&self) -> u32 {
        self.end - self.start
    }
}

/// The query rows `start..end` of a plan, with the spans of keys that these rows read. If the plan is reordered,
/// `start`, `end` and the keys are places in the orders of the [`PatternPlan`], not indices. Spans are ascending and
/// disjoint. Keys outside of all spans are denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile<'a> {
    /// The first query row.
    pub start: u32,
    /// The first query row after the tile.
    pub end: u32,
    /// The spans (ranges of keys) that the query rows read.
    pub spans: &'a [TileSpan],
}

impl Tile<'_> {
    /// Returns the number of query rows.
    pub fn rows(&self) -> u32 {
        self.end - self.start
    }

    /// Returns the number of cells that a kernel computes for this tile: the number of rows times the number of keys of
    /// all spans.
    pub fn computed(&self) -> u64 {
        self.spans.iter().map(|s| u64::from(s.keys())).sum::<u64>() * u64::from(self.rows())
    }
}

/// Options that determine the tiles of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PlanOptions {
    /// The maximum number of query rows of a tile.
    pub block_q: u32,
    /// The number of keys of a key tile, in which statistics count.
    pub block_kv: u32,
    /// The changes of the order of queries and keys that are permitted in the plan.
    #[cfg_attr(feature = "serde", serde(default = "never"))]
    pub reorder: Reorder,
}

/// Returns [`Reorder::Never`]. Serialized plans of versions without reordering have no such field and get this value.
#[cfg(feature = "serde")]
fn never() -> Reorder {
    Reorder::Never
}

/// The permitted changes of the order of queries and keys in a plan. In a suitable order, more tiles are full or empty,
/// and a kernel computes fewer cells. The set of allowed cells does not change.
///
/// First example: `causal & stride(8)` allows an eighth of the causal cells, but these cells are in all tiles. If queries
/// and keys are sorted by their position modulo 8, queries read only keys of their own residue class, and the mask inside
/// each class is causal. The tiles outside of the classes are empty.
///
/// Second example: in `window(left=256, right=256) | global([5, 900])`, the queries 5 and 900 read every key. Without
/// reordering, these two queries are in two tiles, and a kernel computes all keys for all rows of both tiles. If the two
/// queries are gathered into one tile, a kernel computes all keys for two rows only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Reorder {
    /// The automatic choice, with three rules:
    ///
    /// 1. If all distances from queries to their keys are multiples of one number, queries and keys are sorted by their
    ///    positions modulo this number, for all sizes of the mask. All keys of a query are then in one residue class,
    ///    in ascending order.
    /// 2. If it reduces the cost, the queries of a `global(..)` are gathered: they are placed next to one another, so
    ///    that they are in few tiles.
    /// 3. Any other reordering changes the order in which the keys of a row are added. The plan uses such a reordering
    ///    only if it saves at least 1/8 of the cost and at least 2^20 cells.
    #[default]
    Auto,
    /// No reordering: query rows and keys keep the order of their indices.
    Never,
    /// A reordering for every mask whose structure allows one, even if it saves no cost.
    Always,
    /// For every mask, queries and keys are sorted by position modulo the given number, which is at most 4096.
    Residues(u32),
    /// An order of keys that contains each key twice, for masks such as `window(64) | stride(128)`. Each allowed cell
    /// is read at one of the two places of its key:
    ///
    /// 1. The first half of the order has all keys by index. It is for the cells that the mask still allows if its
    ///    largest stride is removed from the expression.
    /// 2. The second half has all keys by residue class (position modulo the step of that stride). It is for all other
    ///    allowed cells.
    ///
    /// The plan has this order even if it saves no cost. A mask without a stride is not reordered.
    Copies,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { block_q: 96, block_kv: 64, reorder: Reorder::Auto }
    }
}

/// The plan of one distinct pattern (set of cells of a batch row and head): tiles of query rows, with the ranges of
/// keys (spans) that they read. The plan applies to each (batch row, head) for which [`Plan::pattern_of`] returns its
/// index.
///
/// If there is a [`query_order`](Self::query_order) or a [`key_order`](Self::key_order), tiles, spans and bits refer to
/// *places* in these orders. [`query_at`](Self::query_at) and [`key_at`](Self::key_at) return the query row and the key
/// at a place.
#[derive(Clone, PartialEq, Debug)]
pub struct PatternPlan {
    pub(super) resolved: Resolved,
    /// The orders of query rows and keys in the plan. If this field is `None`, the place of each query row and key
    /// equals its index.
    pub(super) reordering: Option<Box<Reordering>>,
    /// The first query row of each tile. The last element is the number of query rows.
    pub(super) rows: Vec<u32>,
    /// The index in `spans` of the first span of each tile. The last element is the number of spans.
    pub(super) first_span: Vec<u32>,
    pub(super) spans: Vec<TileSpan>,
}

impl PatternPlan {
    /// Returns the order of query rows, or `None` if query rows are not reordered.
    pub fn query_order(&self) -> Option<&Order> {
        self.reordering.as_ref().map(|order| &order.queries).filter(|order| !order.is_identity())
    }

    /// Returns the order of keys, or `None` if keys are not reordered. With [`Reorder::Copies`](crate::Reorder), the
    /// order contains keys twice.
    pub fn key_order(&self) -> Option<&Order> {
        self.reordering.as_ref().and_then(|order| order.keys.as_ref()).filter(|order| !order.is_identity())
    }

    /// Returns the index of the query row at place `place` in [`query_order`](Self::query_order). Without an order, the
    /// result is `place`.
    ///
    /// # Panics
    /// Panics if `place` is not below [`q_len`](Self::q_len) and the plan is reordered.
    pub fn query_at(&self, place: u32) -> u32 {
        self.query_order().map_or(place, |order| order.origin(place))
    }

    /// Returns the index of the key at place `place` in [`key_order`](Self::key_order). Without an order, the result is
    /// `place`.
    ///
    /// # Panics
    /// Panics if `place` is not below [`key_places`](Self::key_places) and the plan is reordered.
    pub fn key_at(&self, place: u32) -> u32 {
        self.key_order().map_or(place, |order| order.origin(place))
    }

    /// Returns a description of the reordering, or `None` if the plan is not reordered. For example, `8 residue
    /// classes` means sets of rows and keys with equal positions modulo 8.
    pub fn reordered(&self) -> Option<String> {
        self.reordering.as_ref().map(|order| order.to_string())
    }

    pub(crate) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Applies the function `error` to each span of the middle tile. Tests use this method to make a wrong plan, which
    /// a check must find.
    #[cfg(test)]
    pub(crate) fn plant(&mut self, error: impl Fn(&mut TileSpan)) {
        let tile = self.tile_count() / 2;
        let spans = self.first_span[tile] as usize..self.first_span[tile + 1] as usize;
        self.spans[spans].iter_mut().for_each(error);
    }

    /// Applies the function `error` to the list of the first rows of all tiles. The last entry of the list is the
    /// number of rows. Tests use this method to make a wrong plan, which a check must find.
    #[cfg(test)]
    pub(crate) fn plant_rows(&mut self, error: impl Fn(&mut Vec<u32>)) {
        error(&mut self.rows);
    }

    /// Returns the groups of indices in [`key_order`](Self::key_order), such as one group for each residue class.
    /// Returns an empty slice if keys are not reordered.
    pub(crate) fn key_groups(&self) -> &[Group] {
        self.reordering.as_ref().and_then(|order| order.keys.as_ref()).map_or(&[], Order::groups)
    }

    /// Returns the number of query rows.
    pub fn q_len(&self) -> u32 {
        self.resolved.frame.q_len
    }

    /// Returns the number of keys.
    pub fn kv_len(&self) -> u32 {
        self.resolved.frame.kv_len
    }

    /// Returns the number of places in the order of keys. The result equals [`kv_len`](Self::kv_len), or is larger if
    /// the order contains keys twice ([`Reorder::Copies`]).
    pub fn key_places(&self) -> u32 {
        self.reordering.as_ref().and_then(|order| order.keys.as_ref()).map_or(self.kv_len(), Order::len)
    }

    /// Returns whether the order of keys contains keys twice, at two places ([`Reorder::Copies`]). A query row reads a
    /// key at only one of the two places.
    pub(crate) fn has_copies(&self) -> bool {
        self.reordering.as_ref().is_some_and(|order| order.split.is_some())
    }

    /// Returns the number of query tiles.
    pub fn tile_count(&self) -> usize {
        self.rows.len() - 1
    }

    /// Returns the number of spans of all tiles.
    pub(crate) fn span_count(&self) -> usize {
        self.spans.len()
    }

    /// Returns the query tile with index `index`. Tiles cover all query rows in order.
    pub fn tile(&self, index: usize) -> Tile<'_> {
        let spans = self.first_span[index] as usize..self.first_span[index + 1] as usize;
        Tile { start: self.rows[index], end: self.rows[index + 1], spans: &self.spans[spans] }
    }

    /// Returns all tiles in order.
    pub fn tiles(&self) -> impl ExactSizeIterator<Item = Tile<'_>> {
        (0..self.tile_count()).map(|i| self.tile(i))
    }

    /// Returns the smallest range of key places that contains all spans of all tiles, or `0..0` if there is no span.
    pub fn covering_keys(&self) -> Range<u32> {
        let ends = self.tiles().filter_map(|t| Some((t.spans.first()?.start, t.spans.last()?.end)));
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).map_or(0..0, |(a, z)| a..z)
    }

    /// Writes the cells of the query rows `rows` and the keys `keys` into `words` as bits, 1 for allowed. If the plan
    /// is reordered, `rows` and `keys` are places. Bit `i % 64` of word `i / 64` of row `r` is set if query row
    /// `rows.start + r` may read key `keys.start + i`. Each row has `keys.len().div_ceil(64)` words, and bits beyond
    /// `keys` are 0. `words` is overwritten.
    ///
    /// # Panics
    /// Panics if `words` has another length, or if `rows` or `keys` are outside the shape.
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

/// The exact and small form of a bound mask, for kernels, exports and pictures.
///
/// A plan contains one [`PatternPlan`] for each distinct pattern (set of cells of a batch row and head), and the index
/// of the pattern for each (batch row, head). Memory is `O(tiles + spans)`, never `q_len * kv_len`.
///
/// ```
/// use noren_mask::{Facts, SpanKind, Shape, atoms::*};
/// let plan = causal().bind(&Shape::square(256).heads(8), &Facts::new())?.plan();
/// assert_eq!(plan.patterns().len(), 1); // all heads share it
/// let tile = plan.patterns()[0].tile(1);
/// let spans: Vec<_> = tile.spans.iter().map(|s| (s.start, s.end, s.kind)).collect();
/// assert_eq!((tile.start, tile.end), (96, 192));
/// assert_eq!(spans, [(0, 97, SpanKind::Full), (97, 192, SpanKind::Mixed)]);
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) bound: BoundMask,
    pub(super) options: PlanOptions,
    pub(super) patterns: Vec<PatternPlan>,
    pub(super) planning_time: Duration,
}

/// Compares two plans. Plans are equal if masks, shapes, facts and tiles are equal. The planning time is ignored.
impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options && self.bound == other.bound && self.patterns == other.patterns
    }
}

impl Plan {
    /// Returns the bound mask of the plan.
    pub fn bound(&self) -> &BoundMask {
        &self.bound
    }

    /// Returns the shape of the bound mask.
    pub fn shape(&self) -> &Shape {
        self.bound.shape()
    }

    /// Returns the options with which the plan was made.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Returns this plan if it is not reordered, otherwise a new plan of the same mask without reordering. Use the
    /// result in code that does not support reordered rows and keys.
    pub fn in_place(&self) -> Cow<'_, Plan> {
        match self.patterns.iter().any(|p| p.reordering.is_some()) {
            true => Cow::Owned(self.bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..self.options })),
            false => Cow::Borrowed(self),
        }
    }

    /// Returns the plans of the distinct patterns (sets of cells of a batch row and head).
    pub fn patterns(&self) -> &[PatternPlan] {
        &self.patterns
    }

    /// Returns the index in [`patterns`](Self::patterns) for this batch row and query head.
    pub fn pattern_of(&self, batch: usize, head: usize) -> usize {
        self.bound.pattern_of(batch, head)
    }

    /// Returns the position of query row `row` of batch row `batch`.
    pub fn query_position(&self, batch: usize, row: usize) -> i64 {
        self.bound.query_position(batch, row)
    }

    /// Returns the position of key `key` of batch row `batch`. The position is negative if `key` is a cache slot that
    /// holds no key.
    pub fn key_position(&self, batch: usize, key: usize) -> i64 {
        self.bound.key_position(batch, key)
    }

    /// Returns the time that planning took. The time of binding is not included.
    pub fn planning_time(&self) -> Duration {
        self.planning_time
    }

    /// Returns the memory of tiles and spans, in bytes.
    pub fn bytes(&self) -> usize {
        self.patterns.iter().map(PatternPlan::bytes).sum()
    }
}
