//! The blocks of keys that a tile reads.

use crate::kernel::math::micro::BLOCK;
use noren_mask::{PatternPlan, SpanKind, TileSpan};
use std::ops::Range;

/// A block of keys that a tile reads: up to `BLOCK` keys, or up to `WIDE` keys if all cells are allowed. A block begins
/// with the first key of a lane group (consecutive keys that the kernels read together).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyBlock {
    /// The range of keys. It may contain keys, also at its ends, that no query may read.
    pub(crate) keys: Range<usize>,
    /// The lane groups (consecutive keys that the kernels read together) that contain the keys of the block.
    pub(crate) groups: Range<usize>,
    pub(crate) cells: Cells,
}

/// The allowed cells of a block of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cells {
    /// All cells of the block are allowed. Such a block consists of whole lane groups (consecutive keys that the
    /// kernels read together).
    Full,
    /// All rows read the same keys: those whose bits are set. Bit 0 is the first key of the block.
    Uniform(u64),
    /// Rows may read different keys. [`fill_words`] copies the mask bits of each row from the plan.
    Mixed,
}

/// An iterator over the blocks of keys in the spans of a tile (ranges of keys that the tile reads). The blocks are in
/// ascending order and inside `key_range`.
#[derive(Clone)]
pub(crate) struct KeyBlocks<'a> {
    pub(crate) spans: &'a [TileSpan],
    pub(crate) key_range: Range<usize>,
    pub(crate) lanes: usize,
    /// The maximum number of keys in a block whose cells are all allowed.
    pub(crate) widest: usize,
    /// No block crosses a multiple of this number of keys. The number is a multiple of `lanes`, or `usize::MAX` if
    /// there is no such border.
    pub(crate) page: usize,
    /// The first key that is in no block yet.
    pub(crate) next: usize,
}

impl Iterator for KeyBlocks<'_> {
    type Item = KeyBlock;

    #[inline]
    fn next(&mut self) -> Option<KeyBlock> {
        let from = loop {
            let span = self.spans.first()?;
            let from = (span.start as usize).max(self.key_range.start).max(self.next);
            if from < self.key_range.end.min(span.end as usize) {
                break from;
            }
            self.spans = &self.spans[1..];
        };
        let start = from / self.lanes * self.lanes;
        let page_end = (start - start % self.page).saturating_add(self.page);
        let limit = page_end.min(start + BLOCK);
        let inside = self.spans.iter().take_while(|span| (span.start as usize) < limit);
        let last = inside.clone().last().map_or(start, |span| span.end as usize);
        let end = last.min(limit).min(self.key_range.end);
        let groups = start / self.lanes..end.div_ceil(self.lanes);
        let covers = |span: &TileSpan| span.start as usize <= start && span.end as usize >= groups.end * self.lanes;
        let cells = if inside.clone().any(|span| span.kind == SpanKind::Mixed) {
            Cells::Mixed
        } else if covers(&self.spans[0]) {
            Cells::Full
        } else {
            let set = |span: &TileSpan| bits(span.start as usize, span.end as usize, start, end);
            Cells::Uniform(inside.fold(0, |word, span| word | set(span)))
        };
        if cells == Cells::Full {
            let end = (self.spans[0].end as usize).min(self.key_range.end) / self.lanes * self.lanes;
            let end = end.min(start + self.widest).min(page_end).max(groups.end * self.lanes);
            self.next = end;
            return Some(KeyBlock { keys: start..end, groups: groups.start..end / self.lanes, cells });
        }
        self.next = limit;
        Some(KeyBlock { keys: start..end, groups, cells })
    }
}

/// Returns a mask word for the block of the keys `start..end`, in which the bits of the keys `from..to` are set. Bit 0
/// is the key `start`.
fn bits(from: usize, to: usize, start: usize, end: usize) -> u64 {
    let (from, to) = (from.clamp(start, end) - start, to.clamp(start, end) - start);
    let below = |n: usize| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    below(to) & !below(from)
}

/// Writes the mask bits that `plan` gives for keys `keys` to `words`, one word for each of `rows`. Bit 0 of a word is
/// the first key.
pub(crate) fn fill_words(plan: &PatternPlan, rows: &Range<usize>, keys: &Range<usize>, words: &mut [u64]) {
    let narrow = |range: &Range<usize>| range.start as u32..range.end as u32;
    plan.fill_bits(narrow(rows), narrow(keys), words);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(spans: &[(u32, u32, SpanKind)]) -> Vec<KeyBlock> {
        blocks_of_pages(spans, usize::MAX)
    }

    fn blocks_of_pages(spans: &[(u32, u32, SpanKind)], page: usize) -> Vec<KeyBlock> {
        let spans: Vec<_> = spans.iter().map(|&(start, end, kind)| TileSpan { start, end, kind }).collect();
        KeyBlocks { spans: &spans, key_range: 0..1000, lanes: 16, widest: 128, page, next: 0 }.collect()
    }

    #[test]
    fn blocks_begin_at_lane_groups_and_are_full_only_where_all_lanes_are() {
        use SpanKind::{Full, Mixed};
        let block = |keys: Range<usize>, groups, cells| KeyBlock { keys, groups, cells };
        assert_eq!(blocks(&[(0, 64, Full)]), [block(0..64, 0..4, Cells::Full)]);
        assert_eq!(blocks(&[(20, 40, Full)]), [block(16..40, 1..3, Cells::Uniform(0xff_fff0))]);
        assert_eq!(
            blocks(&[(0, 70, Full), (70, 90, Mixed), (300, 310, Mixed)]),
            [block(0..64, 0..4, Cells::Full), block(64..90, 4..6, Cells::Mixed), block(288..310, 18..20, Cells::Mixed)]
        );
        assert_eq!(blocks(&[(0, 2, Full), (40, 41, Full)]), [block(0..41, 0..3, Cells::Uniform(1 << 40 | 3))]);
        assert_eq!(
            blocks_of_pages(&[(70, 200, Full), (200, 201, Mixed)], 96),
            [
                block(64..96, 4..6, Cells::Uniform(!0x3f & 0xffff_ffff)),
                block(96..192, 6..12, Cells::Full),
                block(192..201, 12..13, Cells::Mixed),
            ]
        );
        assert_eq!(blocks(&[(990, 2000, Full)]), [block(976..1000, 61..63, Cells::Uniform(0xff_c000))]);
    }
}
