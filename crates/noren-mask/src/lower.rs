//! From a checked mask to the [`Pattern`] of one (batch, head).

use crate::Error;
use crate::facts::{Facts, RealTokens, real_run};
use crate::frame::Frame;
use crate::interval::IntervalSet;
use crate::leaf::{Levels, Neighborhood, Spans, Tree};
use crate::mask::{Arm, Mask, Node, Padding};
use crate::pattern::{Pattern, Shared, SharedClosure};
use crate::philox;
use crate::set::{Selector, Set, Span};
use std::sync::Arc;

/// What `mask` allows for batch row `row` and head `head`, empty key slots taken out.
pub(crate) fn lower(mask: &Mask, facts: &Facts, frame: &Frame, row: usize, head: usize) -> Result<Pattern, Error> {
    let pattern = Lowering { facts, frame, row, head }.mask(mask)?;
    Ok(match frame.live() {
        Some(live) => Pattern::And(vec![Pattern::Keys(Arc::new(live)), pattern]),
        None => pattern,
    })
}

/// The mask that an arm gives `index`, if one does.
pub(crate) fn pick_arm(arms: &[Arm], index: u64) -> Option<&Mask> {
    let named = arms.iter().find(|a| a.selector.names(index));
    named.or_else(|| arms.iter().find(|a| a.selector == Selector::Else)).map(|a| &a.mask)
}

/// The spans that a set means in batch row `row`.
pub(crate) fn set_spans<'a>(set: &'a Set, facts: &'a Facts, row: usize) -> &'a [Span] {
    match set {
        Set::Spans(spans) => spans,
        Set::Label(label) => facts.labels.get(label).and_then(|rows| rows.get(row)).map_or(&[], Vec::as_slice),
    }
}

/// The position at which the documents of batch row `row` begin: 0, or the first real token where they speak of the real
/// tokens of a left-padded row.
pub(crate) fn documents_start(lengths: &[u64], facts: &Facts, frame: &Frame, row: usize) -> i64 {
    match &facts.real {
        Some(RealTokens::Lengths { lengths: real, side })
            if frame.runs.is_none() && lengths.iter().sum::<u64>() == real[row] =>
        {
            real_run(real[row], *side, frame.kv_len).start.into()
        }
        _ => 0,
    }
}

/// The real keys of batch row `row` by the atom's own parameters or the facts.
pub(crate) fn real_keys(padding: &Padding, facts: &Facts, row: usize, kv_len: u32) -> IntervalSet {
    let run = |length: u64| {
        let run = real_run(length, padding.side.unwrap_or(facts.padding_side()), kv_len);
        IntervalSet::from(run.start..run.end)
    };
    match (&padding.lengths, &facts.real) {
        (Some(lengths), _) => run(lengths[row]),
        (None, Some(RealTokens::Lengths { lengths, .. })) => run(lengths[row]),
        (None, Some(RealTokens::Keys(keys))) => keys[row].clone(),
        (None, None) => unreachable!("bind refuses padding without lengths"),
    }
}

/// The real query rows for `padding(on=both)`.
pub(crate) fn real_queries(padding: &Padding, facts: &Facts, frame: &Frame, row: usize) -> IntervalSet {
    if let Some(lengths) = &facts.query_lengths {
        let run = real_run(lengths[row], padding.side.unwrap_or(facts.padding_side()), frame.q_len);
        return IntervalSet::from(run.start..run.end);
    }
    let mut rows = Vec::new();
    for keys in real_keys(padding, facts, row, frame.kv_len).iter() {
        frame.pieces((keys.start, keys.end), &mut |first, last, shift| {
            let to_row = |index: u32| (i64::from(index) + shift - frame.offset).clamp(0, frame.q_len.into()) as u32;
            rows.push(to_row(first)..to_row(last));
        });
    }
    rows.retain(|r| !r.is_empty());
    rows.into_iter().collect()
}

struct Lowering<'a> {
    facts: &'a Facts,
    frame: &'a Frame,
    row: usize,
    head: usize,
}

impl Lowering<'_> {
    fn mask(&self, mask: &Mask) -> Result<Pattern, Error> {
        let (frame, facts, row) = (self.frame, self.facts, self.row);
        Ok(match mask.node() {
            Node::Full => Pattern::FULL,
            Node::None => Pattern::none(),
            Node::Causal { offset } => Pattern::Band { lo: None, hi: Some(*offset) },
            Node::Window { left, right } => Pattern::Band { lo: left.map(|l| -l), hi: *right },
            Node::Sliding { window } => Pattern::Band { lo: Some(1 - *window as i64), hi: Some(0) },
            Node::Chunk { size } => Pattern::Chunk(*size as i64),
            Node::Stride { step } => Pattern::Stride(*step as i64),
            Node::Prefix { lengths } => {
                let n = lengths.get(row).unwrap_or(0);
                self.keys(&[Span { start: 0, end: Some(n) }])
            }
            Node::Keys(set) => self.keys(set_spans(set, facts, row)),
            Node::Queries(set) => self.queries(set_spans(set, facts, row)),
            Node::Global(set) => {
                let spans = set_spans(set, facts, row);
                Pattern::Or(vec![self.queries(spans), self.keys(spans)])
            }
            Node::Padding(padding) => {
                let keys = Pattern::Keys(Arc::new(real_keys(padding, facts, row, frame.kv_len)));
                if !padding.both {
                    return Ok(keys);
                }
                Pattern::And(vec![Pattern::Queries(Arc::new(real_queries(padding, facts, frame, row))), keys])
            }
            Node::Documents { lengths } => {
                let given = facts.documents.as_ref().and_then(|d| d.get(row));
                let lengths = lengths.as_ref().or(given).map_or(&[][..], Vec::as_slice);
                let mut at = documents_start(lengths, facts, frame, row);
                let mut borders = vec![at];
                for n in lengths.iter().filter(|n| **n > 0) {
                    at += *n as i64;
                    borders.push(at);
                }
                Pattern::Documents(borders.into())
            }
            Node::Spans { spans } => {
                let end = |s: &Span| s.end.map_or(i64::MAX / 4, |e| e.min(i64::MAX as u64 / 4) as i64);
                Pattern::Spans(Arc::new(Spans::new(spans.iter().map(|s| (s.start.min(1 << 60) as i64, end(s))))))
            }
            Node::Tree { parents, start } => Pattern::Tree(Arc::new(Tree::new(parents, *start))),
            Node::Clearance => {
                let levels = facts.levels.as_ref().and_then(|l| l.get(row)).map_or(&[][..], Vec::as_slice);
                Pattern::Levels(Arc::new(Levels::new(levels)))
            }
            Node::Neighborhood { grid, size, dilation } => {
                Pattern::Neighborhood(Arc::new(Neighborhood::new(grid, size, dilation, frame.end())))
            }
            Node::Random { p, seed } => Pattern::Random { threshold: philox::threshold(p.get()), seed: *seed },
            Node::RandomBlocks { block, count, seed } => {
                Pattern::RandomBlocks { block: *block as i64, count: *count, seed: *seed }
            }
            Node::Dense { name } => {
                let array = facts.arrays[name].clone();
                let slice = array.slice_index(row, self.head);
                Pattern::Array(Shared(array), slice)
            }
            Node::Closure { name } => {
                let closure = Box::new(SharedClosure(facts.closures[name].clone()));
                Pattern::Closure { closure, batch: row, head: self.head }
            }
            Node::Heads(arms) => self.arm(arms, self.head)?,
            Node::Batch(arms) => self.arm(arms, row)?,
            Node::Layers(_) => unreachable!("bind refuses layers(...)"),
            Node::Not(a) => Pattern::Not(Box::new(self.mask(a)?)),
            Node::And(parts) => Pattern::And(self.all(parts)?),
            Node::Or(parts) => Pattern::Or(self.all(parts)?),
            Node::Minus(a, b) => self.mask(a)?.minus(&self.mask(b)?),
        })
    }

    fn all(&self, masks: &[Mask]) -> Result<Vec<Pattern>, Error> {
        masks.iter().map(|m| self.mask(m)).collect()
    }

    fn arm(&self, arms: &[Arm], index: usize) -> Result<Pattern, Error> {
        pick_arm(arms, index as u64).map_or(Ok(Pattern::none()), |mask| self.mask(mask))
    }

    /// Keys by position, as indices.
    fn keys(&self, spans: &[Span]) -> Pattern {
        let mut found = Vec::new();
        for s in spans {
            let end = s.end.map_or(i64::MAX / 4, |e| e.min(1 << 60) as i64);
            self.frame.emit(s.start.min(1 << 60) as i64, end, (0, self.frame.kv_len), &mut |a, z| found.push(a..z));
        }
        Pattern::Keys(Arc::new(found.into_iter().collect()))
    }

    /// Queries by position, as rows.
    fn queries(&self, spans: &[Span]) -> Pattern {
        let to_row = |p: u64| (p.min(1 << 60) as i64 - self.frame.offset).clamp(0, self.frame.q_len.into()) as u32;
        let rows = spans.iter().map(|s| to_row(s.start)..s.end.map_or(self.frame.q_len, to_row));
        Pattern::Queries(Arc::new(rows.filter(|r| !r.is_empty()).collect()))
    }
}
