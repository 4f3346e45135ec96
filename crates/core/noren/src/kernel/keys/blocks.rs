//! The blocks of keys that a tile reads.

use crate::kernel::math::micro::BLOCK;
use noren_mask::{PatternPlan, SpanKind, TileSpan};
use std::ops::Range;

/// The division of the keys of a head into segments. Lane groups (consecutive keys that the kernels read together) are
/// counted over all segments, and each segment begins with a whole lane group: so a document has the same lane groups
/// wherever it is. Without segments, the lane groups begin at key 0.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Segments {
    /// The number of keys in a lane group.
    lanes: usize,
    /// The segments that do not begin at key 0, ascending, each as `(first key, first lane group)`.
    later: Vec<(usize, usize)>,
}

/// A part of the keys of a head whose lane groups follow one another.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    first: usize,
    group: usize,
    /// The first key of the next segment, or `usize::MAX` if there is none.
    pub(crate) end: usize,
}

impl Segments {
    /// Returns segments of lane groups of `lanes` keys that begin at the keys `starts`, ascending. A segment continues the
    /// one before it if its first key is a multiple of `unit` keys after the first key of that segment.
    pub(crate) fn new(starts: impl IntoIterator<Item = u32>, unit: usize, lanes: usize) -> Segments {
        let mut later: Vec<(usize, usize)> = Vec::new();
        for start in starts {
            let start = start as usize;
            let (first, group) = later.last().copied().unwrap_or((0, 0));
            if !(start - first).is_multiple_of(unit) {
                later.push((start, group + (start - first).div_ceil(lanes)));
            }
        }
        Segments { lanes, later }
    }

    /// Returns the segment of the key `key`.
    #[inline(always)]
    pub(crate) fn at(&self, key: usize) -> Segment {
        let next = self.later.partition_point(|(first, _)| *first <= key);
        let (first, group) = if next == 0 { (0, 0) } else { self.later[next - 1] };
        Segment { first, group, end: self.later.get(next).map_or(usize::MAX, |(first, _)| *first) }
    }

    /// Returns the parts of `keys` in each segment, as `(keys, lane groups)`. Both begin with a whole lane group, and the keys
    /// of the last lane group end at most at `kv_len`.
    pub(crate) fn runs(&self, keys: Range<usize>, kv_len: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let (mut from, lanes) = (keys.start, self.lanes);
        std::iter::from_fn(move || {
            let segment = (from < keys.end).then(|| self.at(from))?;
            let (start, group) = segment.lane_group(from, lanes);
            let groups = group..group + (keys.end.min(segment.end) - start).div_ceil(lanes);
            from = segment.end;
            Some((start..(start + groups.len() * lanes).min(segment.end).min(kv_len), groups))
        })
    }
}

impl Segment {
    /// Returns the first key and the index of the lane group of the key `key`, for lane groups of `lanes` keys.
    #[inline(always)]
    fn lane_group(&self, key: usize, lanes: usize) -> (usize, usize) {
        let groups = (key - self.first) / lanes;
        (self.first + groups * lanes, self.group + groups)
    }
}

/// A block of keys that a tile reads: up to `BLOCK` keys, or up to `WIDE` keys if all cells are allowed. A block begins
/// with the first key of a lane group (consecutive keys that the kernels read together).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyBlock {
    /// The range of keys. It may contain keys, also at its ends, that no query may read.
    pub(crate) keys: Range<usize>,
    /// The lane groups (consecutive keys that the kernels read together) that contain the keys of the block.
    pub(crate) groups: Range<usize>,
    /// The first key after the segment of the block, or `usize::MAX` if there is none.
    pub(crate) segment_end: usize,
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
    pub(crate) segments: &'a Segments,
    pub(crate) lanes: usize,
    /// The maximum number of keys in a block whose cells are all allowed.
    pub(crate) widest: usize,
    /// No block crosses a multiple of this number of keys, if blocks begin at multiples of `lanes`. The number is a multiple
    /// of `lanes`, or `usize::MAX` if there is no such border.
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
        let segment = self.segments.at(from);
        let (start, group) = segment.lane_group(from, self.lanes);
        let page = if start.is_multiple_of(self.lanes) { self.page } else { usize::MAX };
        let page_end = (start - start % page).saturating_add(page).min(segment.end);
        let limit = page_end.min(start + BLOCK);
        let inside = self.spans.iter().take_while(|span| (span.start as usize) < limit);
        let last = inside.clone().last().map_or(start, |span| span.end as usize);
        let end = last.min(limit).min(self.key_range.end);
        let groups = group..group + (end - start).div_ceil(self.lanes);
        let whole = start + groups.len() * self.lanes;
        let covers = |span: &TileSpan| span.start as usize <= start && (span.end as usize).min(page_end) >= whole;
        let cells = if inside.clone().any(|span| span.kind == SpanKind::Mixed) {
            Cells::Mixed
        } else if covers(&self.spans[0]) {
            Cells::Full
        } else {
            let set = |span: &TileSpan| bits(span.start as usize, span.end as usize, start, end);
            Cells::Uniform(inside.fold(0, |word, span| word | set(span)))
        };
        if cells == Cells::Full {
            let end = (self.spans[0].end as usize).min(self.key_range.end).min(start + self.widest).min(page_end);
            let count = ((end - start) / self.lanes).max(groups.len());
            self.next = start + count * self.lanes;
            let (keys, groups) = (start..self.next, group..group + count);
            return Some(KeyBlock { keys, groups, segment_end: segment.end, cells });
        }
        self.next = limit;
        Some(KeyBlock { keys: start..end, groups, segment_end: segment.end, cells })
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
        blocks_of(&spans, &Segments::default(), page)
    }

    fn blocks_of(spans: &[TileSpan], segments: &Segments, page: usize) -> Vec<KeyBlock> {
        KeyBlocks { spans, key_range: 0..1000, segments, lanes: 16, widest: 128, page, next: 0 }.collect()
    }

    #[test]
    fn blocks_begin_at_lane_groups_and_are_full_only_where_all_lanes_are() {
        use SpanKind::{Full, Mixed};
        let block = |keys: Range<usize>, groups, cells| KeyBlock { keys, groups, segment_end: usize::MAX, cells };
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

    #[test]
    fn segments_begin_with_whole_lane_groups() {
        // Key 48 is a multiple of 16 keys after key 0, and key 71 after key 55.
        let segments = Segments::new([0, 48, 55, 71, 100], 16, 16);
        let runs: Vec<_> = segments.runs(20..200, 150).collect();
        assert_eq!(runs, [(16..55, 1..4), (55..100, 4..7), (100..150, 7..14)]);
        let spans = [TileSpan { start: 30, end: 110, kind: SpanKind::Full }];
        let block = |keys: Range<usize>, groups, segment_end, cells| KeyBlock { keys, groups, segment_end, cells };
        assert_eq!(
            blocks_of(&spans, &segments, 64),
            [
                block(16..55, 1..4, 55, Cells::Uniform(0x7f_ffff_c000)),
                block(55..100, 4..7, 100, Cells::Uniform((1 << 45) - 1)),
                block(100..110, 7..8, usize::MAX, Cells::Uniform((1 << 10) - 1)),
            ]
        );
    }
}
