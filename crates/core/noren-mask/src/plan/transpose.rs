//! A plan ordered by key: for each key tile (consecutive keys), the query rows that read the tile. The backward pass
//! uses such a plan for the gradients of keys and values.

use crate::plan::{PatternPlan, SpanKind, TileSpan};
use crate::sets::interval::Interval;

/// A plan ordered by key: key tiles of a fixed number of keys, each with the query rows that read the tile.
#[derive(Clone, PartialEq, Debug)]
pub struct Transposed {
    block_kv: u32,
    kv_len: u32,
    /// For each key tile, the index of its first span in `spans`. The last element is the number of spans.
    first: Vec<u32>,
    spans: Vec<TileSpan>,
}

/// A key tile: the keys `start..end` and the query rows that read at least one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyTile<'a> {
    /// The first key.
    pub start: u32,
    /// The first key after the tile.
    pub end: u32,
    /// Ranges of query rows, ascending and disjoint. Here `start` and `end` of a [`TileSpan`] are query rows. The kind
    /// of a range is full if every row in the range may read every key of the tile.
    pub queries: &'a [TileSpan],
}

impl Transposed {
    /// Returns the number of key tiles.
    pub fn tile_count(&self) -> usize {
        self.first.len() - 1
    }

    /// Returns the key tile with index `index`, counted from 0. The tiles cover all keys in ascending order.
    pub fn tile(&self, index: usize) -> KeyTile<'_> {
        let start = index as u32 * self.block_kv;
        let queries = &self.spans[self.first[index] as usize..self.first[index + 1] as usize];
        KeyTile { start, end: (start + self.block_kv).min(self.kv_len), queries }
    }

    /// Returns all key tiles in order.
    pub fn tiles(&self) -> impl ExactSizeIterator<Item = KeyTile<'_>> {
        (0..self.tile_count()).map(|i| self.tile(i))
    }
}

/// Consecutive key tiles that have the same kind for one query tile: full, mixed, or `None` if the query tile reads no
/// key of these key tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Covered {
    tiles: Interval,
    kind: Option<SpanKind>,
}

impl PatternPlan {
    /// Returns the plan ordered by key, in key tiles of `block_kv` keys.
    ///
    /// For a query tile, each key tile has a kind: read fully, partly or not at all. From one query tile to the next,
    /// the kinds of most key tiles stay the same, and the function visits only the key tiles whose kind changes.
    /// Therefore the time is proportional to query tiles plus spans plus changes, not to query tiles times key tiles.
    pub fn transposed(&self, block_kv: u32) -> Transposed {
        let block_kv = block_kv.max(1);
        let key_tiles = self.key_places().div_ceil(block_kv);
        let mut open: Vec<(Option<SpanKind>, u32)> = vec![(None, 0); key_tiles as usize];
        let mut closed: Vec<(u32, TileSpan)> = Vec::new();
        let mut before = vec![Covered { tiles: Interval::new(0, key_tiles), kind: None }];
        for tile in self.tiles() {
            let now = runs(tile.spans, block_kv, self.key_places());
            changes(&before, &now, |key_tile, kind| {
                let (old, since) = std::mem::replace(&mut open[key_tile as usize], (kind, tile.start));
                if let Some(kind) = old {
                    closed.push((key_tile, TileSpan { start: since, end: tile.start, kind }));
                }
            });
            before = now;
        }
        for (key_tile, (kind, since)) in open.into_iter().enumerate() {
            if let Some(kind) = kind {
                closed.push((key_tile as u32, TileSpan { start: since, end: self.q_len(), kind }));
            }
        }
        closed.sort_by_key(|(key_tile, span)| (*key_tile, span.start));
        let first = (0..=key_tiles).map(|t| closed.partition_point(|c| c.0 < t) as u32).collect();
        Transposed { block_kv, kv_len: self.key_places(), first, spans: closed.into_iter().map(|c| c.1).collect() }
    }
}

/// Returns the key tiles of `block` keys as runs with the same kind, for a query tile with the spans `spans`. The kind
/// of a key tile is full if one full span contains all its keys, `None` if no span contains any of its keys, and
/// otherwise mixed.
fn runs(spans: &[TileSpan], block: u32, kv_len: u32) -> Vec<Covered> {
    let tiles = kv_len.div_ceil(block);
    let mut out: Vec<Covered> = Vec::new();
    let mut push = |first: u32, last: u32, kind: Option<SpanKind>| {
        if first >= last {
            return;
        }
        let covered = |first, last, kind| Covered { tiles: Interval::new(first, last), kind };
        match out.last_mut() {
            // a key tile with parts of two spans is mixed
            Some(run) if first < run.tiles.end => {
                let end = run.tiles.end;
                let shared = covered(end - 1, end, Some(SpanKind::Mixed));
                if run.tiles.len() == 1 {
                    *run = shared;
                } else {
                    run.tiles.end -= 1;
                    out.push(shared);
                }
                if end < last {
                    out.push(covered(end, last, kind));
                }
            }
            Some(run) if run.kind == kind && run.tiles.end == first => run.tiles.end = last,
            _ => out.push(covered(first, last, kind)),
        }
    };
    let mut at = 0;
    for span in spans {
        let (outer_first, outer_last) = (span.start / block, span.end.div_ceil(block));
        push(at, outer_first, None);
        if span.kind == SpanKind::Mixed {
            push(outer_first, outer_last, Some(SpanKind::Mixed));
        } else {
            let inner_first = span.start.div_ceil(block);
            let inner_last = if span.end == kv_len { tiles } else { span.end / block };
            if inner_first >= inner_last {
                push(outer_first, outer_last, Some(SpanKind::Mixed));
            } else {
                push(outer_first, inner_first, Some(SpanKind::Mixed));
                push(inner_first, inner_last, Some(SpanKind::Full));
                push(inner_last, outer_last, Some(SpanKind::Mixed));
            }
        }
        at = outer_last;
    }
    push(at, tiles, None);
    out
}

/// Calls `changed(key tile, new kind)` for each key tile whose kind differs between two neighboring query tiles.
/// `before` has the kinds of all key tiles for the first query tile, and `now` for the second.
fn changes(before: &[Covered], now: &[Covered], mut changed: impl FnMut(u32, Option<SpanKind>)) {
    let (mut b, mut n, mut at) = (0, 0, 0);
    while b < before.len() && n < now.len() {
        let end = before[b].tiles.end.min(now[n].tiles.end);
        if before[b].kind != now[n].kind {
            (at..end).for_each(|t| changed(t, now[n].kind));
        }
        at = end;
        b += usize::from(before[b].tiles.end == end);
        n += usize::from(now[n].tiles.end == end);
    }
}
