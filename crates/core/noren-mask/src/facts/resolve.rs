//! [`RowFacts`]: functions that find the tokens of one batch row that its facts describe, such as the tokens of a
//! document or the tokens with a label.
//!
//! The definition of cells, plans, explanations, the flow of information and policies use this module, so that a
//! document or a label is the same set of tokens everywhere. Keys are indices `0..kv_len`, and query rows are indices
//! `0..q_len`. Lists in the facts are ordered by position, and a [`Frame`] maps between indices and positions.

use crate::facts::shape::Shape;
use crate::facts::{Facts, RealTokens, real_run};
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use crate::sets::scalar::Side;
use crate::sets::set::{Positions, Span};
use std::ops::Range;

/// The facts of one batch row, together with the positions of its queries and keys.
#[derive(Clone, Copy)]
pub struct RowFacts<'a> {
    /// The facts of all batch rows.
    pub facts: &'a Facts,
    /// The positions of the queries and keys of this batch row.
    pub frame: &'a Frame,
    /// The index of the batch row.
    pub row: usize,
}

/// The documents of one batch row, which follow one another without gaps, and the position at which the first document
/// begins.
#[derive(Clone, Copy)]
pub struct Documents<'a> {
    start: i64,
    lengths: &'a [usize],
}

/// Consecutive query rows that are consecutive tokens: query row `rows.start + i` is the token with key index
/// `token + i`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryTokens {
    /// The query rows.
    pub rows: Range<u32>,
    /// The key index of the token of the first query row, `rows.start`.
    pub token: u32,
}

/// Returns the positions of the queries and keys of batch row `row`.
pub fn frame(shape: &Shape, facts: &Facts, row: usize) -> Frame {
    let given = facts.runs.as_ref().map(|rows| rows[row].clone());
    let listed = facts.positions.as_ref().and_then(|p| p.get(row)).and_then(|positions| {
        let one_to_one = positions.iter().enumerate().all(|(i, &p)| p == i as i64);
        (!one_to_one).then(|| Frame::runs_of(positions))
    });
    let runs = given.or(listed);
    Frame { q_len: shape.q_len() as u32, kv_len: shape.kv_len() as u32, offset: shape.query_offset(row), runs }
}

/// Returns the position at which the first document of batch row `row` begins. `sum` is the number of tokens of all
/// documents in the row. If the row has padding on the left and exactly `sum` non-padding tokens, and the facts give no
/// positions of keys, the documents begin after the padding. Otherwise the result is 0.
pub fn documents_start(facts: &Facts, row: usize, sum: usize, kv_len: u32) -> i64 {
    match &facts.real {
        Some(RealTokens::Lengths { lengths, side: Side::Left })
            if !facts.place_keys() && lengths.get(row) == Some(&sum) =>
        {
            real_run(sum, Side::Left, kv_len).start.into()
        }
        _ => 0,
    }
}

/// Returns the sum of `lengths`, or `usize::MAX` if the sum is larger.
pub fn sum(lengths: &[usize]) -> usize {
    lengths.iter().fold(0, |n, l| n.saturating_add(*l))
}

impl<'a> RowFacts<'a> {
    /// Returns the keys that are non-padding tokens according to the facts, or every key if the facts give no padding.
    pub fn real_tokens(&self) -> IntervalSet {
        match &self.facts.real {
            None => IntervalSet::all(self.frame.kv_len),
            Some(_) => self.real_keys(None, None),
        }
    }

    /// Returns the non-padding keys. The arguments are parameters of the atom `padding`: `side` is the end of the row
    /// that has the padding, and `lengths` has the number of non-padding tokens of each batch row. An argument that is
    /// `None` is taken from the facts.
    pub fn real_keys(&self, side: Option<Side>, lengths: Option<&[usize]>) -> IntervalSet {
        let side = side.unwrap_or(self.facts.padding_side());
        let run = |length: usize| IntervalSet::from(real_run(length, side, self.frame.kv_len));
        match (lengths, &self.facts.real) {
            (Some(lengths), _) => run(lengths[self.row]),
            (None, Some(RealTokens::Lengths { lengths, .. })) => run(lengths[self.row]),
            (None, Some(RealTokens::Keys(keys))) => keys[self.row].clone(),
            (None, None) => unreachable!("binding returns an error if `padding` has no lengths"),
        }
    }

    /// Returns the non-padding query rows, the rows that `padding(on=both)` allows. The parameters `side` and `lengths`
    /// have the same meaning as for [`real_keys`](Self::real_keys).
    pub fn real_queries(&self, side: Option<Side>, lengths: Option<&[usize]>) -> IntervalSet {
        let frame = self.frame;
        if let Some(lengths) = &self.facts.query_lengths {
            return real_run(lengths[self.row], side.unwrap_or(self.facts.padding_side()), frame.q_len).into();
        }
        let mut rows = Vec::new();
        for keys in self.real_keys(side, lengths).iter() {
            frame.pieces((keys.start, keys.end), &mut |first, last, shift| {
                let to_row = |index: u32| (i64::from(index) + shift - frame.offset).clamp(0, frame.q_len.into()) as u32;
                rows.push(to_row(first)..to_row(last));
            });
        }
        rows.retain(|r| !r.is_empty());
        rows.into_iter().collect()
    }

    /// Returns the documents of this batch row. `own` has the lengths of the documents, in tokens; with `None`, the
    /// facts give the lengths. Returns `None` if neither `own` nor the facts give lengths.
    pub fn documents(&self, own: Option<&'a [usize]>) -> Option<Documents<'a>> {
        let given = || self.facts.documents.as_ref().and_then(|d| d.get(self.row)).map(Vec::as_slice);
        let lengths = own.or_else(given)?;
        Some(Documents { start: documents_start(self.facts, self.row, sum(lengths), self.frame.kv_len), lengths })
    }

    /// Returns the ranges of positions in `set`. A label that the facts do not declare gives no range.
    pub fn spans(&self, set: &'a Positions) -> &'a [Span] {
        match set {
            Positions::Spans(spans) => spans,
            Positions::Label(label) => self.label(label).unwrap_or(&[]),
        }
    }

    /// Returns the ranges of positions that have the label `label`, or `None` if the facts do not declare the label.
    pub fn label(&self, label: &str) -> Option<&'a [Span]> {
        self.facts.labels.get(label).and_then(|rows| rows.get(self.row)).map(Vec::as_slice)
    }

    /// Returns the level (clearance) of each position, or `None` if the facts give no levels. Element `i` is for
    /// position `i`.
    pub fn levels(&self) -> Option<&'a [i64]> {
        self.facts.levels.as_ref().and_then(|levels| levels.get(self.row)).map(Vec::as_slice)
    }

    /// Returns the level (clearance) of the token at `position`, or `None` if the facts give no level for this
    /// position.
    pub fn level(&self, position: i64) -> Option<i64> {
        self.levels()?.get(usize::try_from(position).ok()?).copied()
    }

    /// Returns the indices of the keys whose positions are in `spans`.
    pub fn keys_in(&self, spans: &[Span]) -> IntervalSet {
        let mut found = Vec::new();
        for span in spans {
            let end = span.end.map_or(i64::MAX / 4, |e| e.min(1 << 60) as i64);
            let start = span.start.min(1 << 60) as i64;
            self.frame.emit(start, end, (0, self.frame.kv_len), &mut |a, z| found.push(a..z));
        }
        found.into_iter().collect()
    }

    /// Returns the indices of the query rows whose positions are in `spans`.
    pub fn queries_in(&self, spans: &[Span]) -> IntervalSet {
        let (offset, q_len) = (self.frame.offset, self.frame.q_len);
        let to_row = |p: usize| (p.min(1 << 60) as i64 - offset).clamp(0, q_len.into()) as u32;
        let rows = spans.iter().map(|s| to_row(s.start)..s.end.map_or(q_len, to_row));
        rows.filter(|r| !r.is_empty()).collect()
    }

    /// Returns the indices of the keys whose tokens have the level (clearance) `level`.
    pub fn keys_of_level(&self, level: i64) -> IntervalSet {
        let levels = self.levels().unwrap_or(&[]);
        let mut found = IntervalSet::new();
        self.frame.pieces((0, self.frame.kv_len), &mut |first, last, shift| {
            let at = |key: u32| usize::try_from(i64::from(key) + shift).ok().and_then(|p| levels.get(p));
            (first..last).filter(|key| at(*key) == Some(&level)).for_each(|key| found.push(key, key + 1));
        });
        found
    }

    /// Returns ascending ranges of query rows that are consecutive tokens, each with the index of the key that is the
    /// same token as its first row. A query row and a key are the same token if their positions are equal. Query rows
    /// without such a key are left out.
    pub fn query_tokens(&self) -> Vec<QueryTokens> {
        let (offset, q_len) = (self.frame.offset, i64::from(self.frame.q_len));
        let mut out = Vec::new();
        self.frame.pieces((0, self.frame.kv_len), &mut |first, last, shift| {
            let start = (i64::from(first) + shift - offset).max(0);
            let end = (i64::from(last) + shift - offset).min(q_len);
            if start < end {
                let token = (start + offset - shift) as u32;
                out.push(QueryTokens { rows: start as u32..end as u32, token });
            }
        });
        out.sort_by_key(|piece| piece.rows.start);
        out
    }
}

impl Documents<'_> {
    /// Returns the range of positions of each document, in the order of the list of document lengths. Empty documents
    /// are included.
    pub fn ranges(&self) -> impl Iterator<Item = Range<i64>> + '_ {
        self.lengths.iter().scan(self.start, |at, &n| {
            let start = *at;
            *at = start.saturating_add(i64::try_from(n).unwrap_or(i64::MAX));
            Some(start..*at)
        })
    }

    /// Returns the first position of the first document, and the end position of each document that is not empty. For
    /// example, lengths 3, 0, 2 from position 0 give [0, 3, 5].
    pub fn borders(&self) -> Vec<i64> {
        std::iter::once(self.start).chain(self.ranges().filter(|r| !r.is_empty()).map(|r| r.end)).collect()
    }

    /// Returns the index and the range of positions of the document that contains `position`, or `None` if no document
    /// contains it.
    pub fn at(&self, position: i64) -> Option<(usize, Range<i64>)> {
        self.ranges().enumerate().find(|(_, range)| range.contains(&position))
    }
}
