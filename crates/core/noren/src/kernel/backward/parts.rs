//! The division of the query rows of a plan into parts that the threads of a backward pass process together.

use super::context::pieces;
use noren_mask::{PatternPlan, SpanKind, TileSpan};
use std::borrow::Cow;
use std::ops::Range;

/// A range of query rows that a thread processes together, and the ranges of keys that the rows read, in ascending order.
pub(super) struct Part<'p> {
    pub(super) rows: Range<usize>,
    pub(super) spans: Cow<'p, [TileSpan]>,
}

/// The parts of a pattern (a set of allowed cells that some heads share), and the parts that each item (range of keys)
/// reads.
pub(super) struct Pattern<'p> {
    pub(super) parts: Vec<Part<'p>>,
    /// For each item (range of keys) of a head, a range of indices into `parts`. The range contains every part with a
    /// row that reads a key of the item.
    pub(super) reach: Vec<Range<usize>>,
}

impl<'p> Pattern<'p> {
    /// Divides the rows of `plan` into parts of at most `most` rows that begin at multiples of `step` rows. `keys` is the
    /// number of keys of an item, and `most` a multiple of `step`.
    ///
    /// Rows before and after the next multiple of `step` may be in two tiles of the plan. They are one part, which reads
    /// the keys of both.
    pub(super) fn new(plan: &'p PatternPlan, keys: usize, step: usize, most: usize) -> Self {
        let mut cuts = vec![0];
        for tile in plan.tiles() {
            let end = tile.end as usize;
            cuts.extend([end / step * step, end.next_multiple_of(step).min(plan.q_len() as usize)]);
        }
        cuts.sort_unstable();
        cuts.dedup();
        assert_eq!(cuts.last().copied(), Some(plan.q_len() as usize), "tiles of a plan must cover all query rows");
        let mut parts: Vec<Part<'p>> = Vec::new();
        let mut first = 0;
        for cut in cuts.windows(2) {
            while plan.tile(first).end as usize <= cut[0] {
                first += 1;
            }
            let last = (first..plan.tile_count()).find(|tile| plan.tile(*tile).end as usize >= cut[1]);
            let last = last.expect("tiles of a plan cover all query rows");
            for rows in pieces(cut[0]..cut[1], most) {
                let spans = match first == last {
                    true => Cow::Borrowed(plan.tile(first).spans),
                    false => Cow::Owned(union(plan, first..last + 1)),
                };
                parts.push(Part { rows, spans });
            }
        }
        let mut reach = vec![0..0; (plan.kv_len() as usize).div_ceil(keys)];
        for (index, part) in parts.iter().enumerate() {
            for span in &*part.spans {
                for reach in &mut reach[span.start as usize / keys..=(span.end as usize - 1) / keys] {
                    let from = if reach.end == 0 { index } else { reach.start };
                    *reach = from..index + 1;
                }
            }
        }
        Pattern { parts, reach }
    }
}

/// Returns the ranges of keys that the rows of some tiles read, of which each row may read some.
fn union(plan: &PatternPlan, tiles: Range<usize>) -> Vec<TileSpan> {
    let mut spans: Vec<TileSpan> = tiles.flat_map(|tile| plan.tile(tile).spans).copied().collect();
    spans.sort_by_key(|span| span.start);
    let mut union: Vec<TileSpan> = Vec::new();
    for span in spans {
        match union.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => union.push(TileSpan { kind: SpanKind::Mixed, ..span }),
        }
    }
    union
}
