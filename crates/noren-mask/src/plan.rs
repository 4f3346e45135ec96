//! stub of the API (the real one is being written)
use crate::shape::Shape;
use std::ops::Range;

/// Whether every query of the tile may read the keys of a span, or only some cells are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Every cell is allowed.
    Full,
    /// Some cells may be allowed; `PatternPlan::fill_bits` says which.
    Mixed,
}
/// A run of keys `start..end` for the queries of one tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileSpan {
    /// First key.
    pub start: u32,
    /// First key after.
    pub end: u32,
    /// Full or mixed.
    pub kind: Kind,
}
/// Query rows `start..end` and the keys they read, spans ascending and disjoint; what is in no span is not allowed.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// First query row.
    pub start: u32,
    /// First query row after.
    pub end: u32,
    /// The spans.
    pub spans: &'a [TileSpan],
}
/// How a plan is cut.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Most query rows in a tile.
    pub block_q: u32,
    /// Width of the key tiles in which statistics and the transposed view count.
    pub block_kv: u32,
}
/// The plan of one distinct pattern.
pub struct PatternPlan {}
impl PatternPlan {
    /// Number of query tiles.
    pub fn tile_count(&self) -> usize {
        todo!()
    }
    /// Query tile number `index`; tiles cover all query rows in order.
    pub fn tile(&self, _index: usize) -> Tile<'_> {
        todo!()
    }
    /// The smallest key range that holds every allowed key, `0..0` when nothing is allowed.
    pub fn key_hull(&self) -> Range<u32> {
        todo!()
    }
    /// Exact cells: bit `i % 64` of word `i / 64` of row `r` (words per row: `keys.len().div_ceil(64)`) is set when query
    /// row `rows.start + r` may read key `keys.start + i`. Bits beyond `keys` are cleared. Overwrites `words`.
    pub fn fill_bits(&self, _rows: Range<u32>, _keys: Range<u32>, _words: &mut [u64]) {
        todo!()
    }
}
/// A plan.
pub struct Plan {}
impl Plan {
    /// The shape.
    pub fn shape(&self) -> &Shape {
        todo!()
    }
    /// Distinct patterns.
    pub fn patterns(&self) -> &[PatternPlan] {
        todo!()
    }
    /// Index of the pattern of this batch row and query head.
    pub fn pattern_of(&self, _batch: usize, _head: usize) -> usize {
        todo!()
    }
    /// The position of query row `row` of batch row `batch`.
    pub fn query_position(&self, _batch: usize, _row: usize) -> i64 {
        todo!()
    }
    /// The position of key `key` of batch row `batch`; negative for an empty slot.
    pub fn key_position(&self, _batch: usize, _key: usize) -> i64 {
        todo!()
    }
}
