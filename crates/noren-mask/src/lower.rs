//! From a checked mask to the [`Pattern`] of one (batch, head).

use crate::Error;
use crate::leaf::{Levels, Neighborhood, Spans, Tree};
use crate::mask::{Arm, Mask, Node};
use crate::pattern::{Pattern, Shared, SharedClosure};
use crate::philox;
use crate::resolve::RowFacts;
use crate::set::Span;
use std::sync::Arc;

/// What `mask` allows in a batch row for head `head`, empty key slots taken out.
pub(crate) fn lower(mask: &Mask, row: RowFacts<'_>, head: usize) -> Result<Pattern, Error> {
    let pattern = Lowering { row, head }.mask(mask)?;
    Ok(match row.frame.live() {
        Some(live) => Pattern::And(vec![Pattern::Keys(Arc::new(live)), pattern]),
        None => pattern,
    })
}

struct Lowering<'a> {
    row: RowFacts<'a>,
    head: usize,
}

impl Lowering<'_> {
    fn mask(&self, mask: &Mask) -> Result<Pattern, Error> {
        let RowFacts { facts, frame, row } = self.row;
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
            Node::Keys(set) => self.keys(self.row.spans(set)),
            Node::Queries(set) => self.queries(self.row.spans(set)),
            Node::Global(set) => {
                let spans = self.row.spans(set);
                Pattern::Or(vec![self.queries(spans), self.keys(spans)])
            }
            Node::Padding(padding) => {
                let keys = Pattern::Keys(Arc::new(self.row.real_keys(padding)));
                if !padding.both {
                    return Ok(keys);
                }
                Pattern::And(vec![Pattern::Queries(Arc::new(self.row.real_queries(padding))), keys])
            }
            Node::Documents { lengths } => {
                let documents = self.row.documents(lengths.as_deref());
                let borders = documents.map_or(vec![0], |documents| documents.borders());
                Pattern::Documents(borders.into())
            }
            Node::Spans { spans } => {
                let end = |s: &Span| s.end.map_or(i64::MAX / 4, |e| e.min(i64::MAX as u64 / 4) as i64);
                Pattern::Spans(Arc::new(Spans::new(spans.iter().map(|s| (s.start.min(1 << 60) as i64, end(s))))))
            }
            Node::Tree { parents, start } => Pattern::Tree(Arc::new(Tree::new(parents, *start))),
            Node::Clearance => Pattern::Levels(Arc::new(Levels::new(self.row.levels().unwrap_or(&[])))),
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
        Arm::pick(arms, index as u64).map_or(Ok(Pattern::none()), |mask| self.mask(mask))
    }

    /// Keys by position, as indices.
    fn keys(&self, spans: &[Span]) -> Pattern {
        Pattern::Keys(Arc::new(self.row.keys_in(spans)))
    }

    /// Queries by position, as rows.
    fn queries(&self, spans: &[Span]) -> Pattern {
        Pattern::Queries(Arc::new(self.row.queries_in(spans)))
    }
}
