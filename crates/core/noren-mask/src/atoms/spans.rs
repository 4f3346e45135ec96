//! `spans`: query and key in the same span of positions.

use super::prelude::*;
use crate::mask::basis::check_spans;
use crate::sets::set::Span;

/// The parameters of the atom `spans`: spans of positions, which may overlap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spans {
    /// The spans, as half-open ranges of positions.
    pub spans: Vec<Span>,
}

/// Returns the mask in which query and key are in the same span, such as an image within text. Text: `spans([4..20, 30..46])`.
pub fn spans<S: Into<Span>>(spans: impl IntoIterator<Item = S>) -> Mask {
    Mask::of(Spans { spans: spans.into_iter().map(Into::into).collect() })
}

impl Atom for Spans {
    fn name(&self) -> &'static str {
        "spans"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spans({})", List(&self.spans))
    }

    fn check(&self) -> Result<(), String> {
        check_spans(&self.spans)
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        self.spans.iter().any(|span| span.holds(pair.q) && span.holds(pair.k))
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let yes = sentence!["query ", query_position(), " and key ", key_position(), " are in the same span"];
        let no = sentence!["no span contains both query ", query_position(), " and key ", key_position()];
        Some(Sentence::by_result(yes, no))
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(SpanTable::new(&self.spans)))
    }

    /// Removes each span that is inside another span, because the outer span already allows its cells. Spans that only
    /// overlap stay separate: joined, they would allow a query of one span to read a key that is only in the other.
    fn simplify(&self) -> Simplified {
        let end = |span: &Span| span.end.unwrap_or(usize::MAX);
        let mut sorted: Vec<Span> = self.spans.iter().copied().filter(|span| span.start < end(span)).collect();
        sorted.sort_by_key(|span| (span.start, std::cmp::Reverse(end(span))));
        let mut reach = 0;
        sorted.retain(|span| {
            let outer = end(span) > reach;
            reach = reach.max(end(span));
            outer
        });
        Simplified::Mask(if sorted.is_empty() { super::none() } else { spans(sorted) })
    }

    fn rank(&self) -> Rank {
        Family::Structure.at(0)
    }

    fn every_length(&self, _: Case) -> EveryLength {
        EveryLength::Places(Places::new().spans(&self.spans))
    }
}

/// The spans of the mask, sorted by their start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SpanTable {
    /// The spans of positions as `(start, end, furthest)`, sorted by start. `furthest` is the maximum of the ends of
    /// this span and of all spans before it in the list.
    list: Vec<(i64, i64, i64)>,
    /// The starts and ends of all spans, ascending.
    borders: Vec<i64>,
}

impl SpanTable {
    fn new(spans: &[Span]) -> Self {
        let end = |s: &Span| s.end.map_or(i64::MAX / 4, |e| e.min(i64::MAX as usize / 4) as i64);
        let ranges = spans.iter().map(|s| (s.start.min(1 << 60) as i64, end(s)));
        let mut list: Vec<(i64, i64, i64)> = ranges.filter(|r| r.0 < r.1).map(|(a, z)| (a, z, z)).collect();
        list.sort_unstable();
        for i in 1..list.len() {
            list[i].2 = list[i].1.max(list[i - 1].2);
        }
        let mut borders: Vec<i64> = list.iter().flat_map(|s| [s.0, s.1]).collect();
        borders.sort_unstable();
        borders.dedup();
        SpanTable { list, borders }
    }
}

impl ResolvedAtom for SpanTable {
    fn row(&self, q: i64, _: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let after = self.list.partition_point(|s| s.0 <= q);
        for &(start, end, _) in self.list[..after].iter().rev().take_while(|s| s.2 > q) {
            if q < end {
                emit(start, end);
            }
        }
    }

    fn bounds(&self, _: Range<i64>, _: Range<i64>) -> Reach {
        Reach::ByRows
    }

    fn next_change(&self, q: i64) -> i64 {
        self.borders.get(self.borders.partition_point(|&b| b <= q)).copied().unwrap_or(i64::MAX)
    }

    fn has_blocks(&self) -> bool {
        true
    }
}

impl Builtin for Spans {
    const WORD: Word = Word {
        entry: Entry::new("spans", "spans([4..20, 30..46])", &[need("spans", "list of ranges")]).lists(),
        title: "`spans([a..b, ...])`",
        doc: "Query and key are in the same span of positions, such as an image within text.",
        pictures: &[Picture::square("causal | spans([2..5])", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Spans { spans: arguments.need(0)?.spans()? })
    }
}
