//! [`Groups`]: finds the tokens of each group of a policy in one batch row.

use super::Flow;
use super::policy::{Group, Policy, Rule};
use noren_mask::interval::IntervalSet;
use noren_mask::resolve::RowFacts;
use noren_mask::{Error, atoms};

/// The data of one batch row that determine the tokens of each group of a policy: the facts (data given with a mask,
/// such as labels) and the documents.
pub(super) struct Groups<'a> {
    facts: RowFacts<'a>,
    tokens: u32,
    outputs: IntervalSet,
    /// The documents; `None` if the facts (data given with a mask) give no documents.
    pub(super) documents: Option<DocumentTokens>,
}

/// The non-padding tokens of each document of one batch row.
pub(super) struct DocumentTokens {
    /// The ranges of tokens in one document, as (first token, end, index of the document), sorted by first token. The
    /// end is excluded.
    runs: Vec<(u32, u32, u32)>,
    /// The tokens of all documents.
    pub(super) all: IntervalSet,
    /// Number of documents, including documents without tokens.
    count: usize,
}

/// Returns an error if `policy` names documents or clearance levels that the facts (data given with a mask) lack, or
/// that the facts have with wrong sizes.
pub(super) fn check_facts(policy: &Policy, flow: &Flow) -> Result<(), Error> {
    let names = |wanted: fn(&Group) -> bool| policy.rules.iter().find(|r| wanted(&r.from) || wanted(&r.to));
    let facts = flow.facts();
    if let Some(rule) = names(|g| matches!(g, Group::Document(_) | Group::EachDocument(_))) {
        if !facts.has_documents() {
            return refuse(rule, "the facts give no documents: give the lengths of the documents in the facts".into());
        }
        atoms::documents().bind(flow.shape(), facts)?;
    }
    if let Some(rule) = names(|g| matches!(g, Group::Level(_))) {
        if !facts.has_levels() {
            return refuse(
                rule,
                "the facts give no levels: give one clearance level for each position in the facts".into(),
            );
        }
        atoms::clearance().bind(flow.shape(), facts)?;
    }
    Ok(())
}

pub(super) fn refuse<T>(rule: &Rule, problem: String) -> Result<T, Error> {
    Err(Error::invalid(format!("policy: `{rule}`: {problem}")))
}

impl<'a> Groups<'a> {
    pub(super) fn of(flow: &'a Flow, row: usize) -> Self {
        let facts = flow.row_facts(row);
        Groups { facts, tokens: flow.tokens(), outputs: flow.outputs(row), documents: DocumentTokens::of(facts) }
    }

    /// Returns the index of the batch row.
    pub(super) fn row(&self) -> usize {
        self.facts.row
    }

    /// Returns the tokens of `group`, for `document(i)` those of all documents. `rule` is the line that contains the
    /// group, for error messages.
    pub(super) fn tokens(&self, group: &Group, rule: &Rule) -> Result<IntervalSet, Error> {
        let n = self.tokens;
        Ok(match group {
            Group::All => IntervalSet::all(n),
            Group::Output => self.outputs.clone(),
            Group::Tokens(start, end) if start < end && *end <= n => IntervalSet::from(*start..*end),
            Group::Tokens(..) => {
                return refuse(
                    rule,
                    format!("{group} is not a range of tokens of the sequence, which has {n} tokens, counted from 0"),
                );
            }
            Group::Label(name) => match self.facts.label(name) {
                Some(spans) => self.facts.keys_in(spans),
                None => {
                    let known: Vec<&str> = self.facts.facts.label_names().collect();
                    return refuse(
                        rule,
                        format!("the facts do not declare the label {name:?}: they declare {known:?}"),
                    );
                }
            },
            Group::Document(number) => {
                let of = |documents: &DocumentTokens| documents.pick(&documents.all, |d| d as usize == *number);
                self.documents.as_ref().map(of).unwrap_or_default()
            }
            Group::EachDocument(_) => self.documents.as_ref().map(|d| d.all.clone()).unwrap_or_default(),
            Group::Level(level) => self.facts.keys_of_level(*level),
        })
    }

    /// Returns the reason why a group has no tokens in this batch row, as text.
    pub(super) fn absence(&self, group: &Group) -> String {
        let row = self.row();
        match (group, &self.documents) {
            (Group::Document(number), Some(documents)) if *number >= documents.count => {
                format!("{group} has no tokens in batch row {row}, which has {} document(s)", documents.count)
            }
            (Group::Document(_) | Group::EachDocument(_), _) => {
                format!("{group} has no tokens in batch row {row}: padding belongs to no document")
            }
            _ => format!("{group} has no tokens in batch row {row}"),
        }
    }
}

impl DocumentTokens {
    fn of(facts: RowFacts<'_>) -> Option<Self> {
        let documents = facts.documents(None)?;
        let ranges: Vec<_> = documents.ranges().collect();
        let real = facts.real_tokens();
        let mut runs = Vec::new();
        facts.frame.pieces((0, facts.frame.kv_len), &mut |first, last, shift| {
            let (from, to) = (i64::from(first) + shift, i64::from(last) + shift);
            let mut number = ranges.partition_point(|range| range.end <= from);
            while let Some(range) = ranges.get(number).filter(|range| range.start < to) {
                let (start, end) = ((range.start.max(from) - shift) as u32, (range.end.min(to) - shift) as u32);
                if start < end {
                    runs.extend(real.within(start, end).map(|i| (i.start, i.end, number as u32)));
                }
                number += 1;
            }
        });
        let all = runs.iter().map(|&(start, end, _)| start..end).collect();
        Some(DocumentTokens { runs, all, count: ranges.len() })
    }

    /// Calls `run(start, end, document)` for each range of consecutive tokens of `set` in one document, in ascending
    /// order. `end` is excluded, and `document` is the index of the document.
    pub(super) fn each(&self, set: &IntervalSet, mut run: impl FnMut(u32, u32, u32)) {
        let mut at = 0;
        for i in set.iter() {
            while self.runs.get(at).is_some_and(|r| r.1 <= i.start) {
                at += 1;
            }
            let overlapping = self.runs[at..].iter().take_while(|r| r.0 < i.end);
            overlapping.for_each(|&(start, end, number)| run(start.max(i.start), end.min(i.end), number));
        }
    }

    /// Returns the tokens of `set` that are in selected documents: those for which `wanted(index of the document)` is
    /// true.
    pub(super) fn pick(&self, set: &IntervalSet, wanted: impl Fn(u32) -> bool) -> IntervalSet {
        let mut out = IntervalSet::new();
        self.each(set, |start, end, number| {
            if wanted(number) {
                out.push(start, end);
            }
        });
        out
    }

    /// Returns the number of tokens of `set` in each document.
    pub(super) fn counts(&self, set: &IntervalSet) -> Vec<u64> {
        let mut counts = vec![0; self.count];
        self.each(set, |start, end, number| counts[number as usize] += u64::from(end - start));
        counts
    }

    /// Returns pairs (index of a document, tokens of `set` in this document), in ascending order of the documents.
    /// Documents without tokens of `set` are left out.
    pub(super) fn split(&self, set: &IntervalSet) -> Vec<(u32, IntervalSet)> {
        let mut found: Vec<(u32, u32, u32)> = Vec::new();
        self.each(set, |start, end, number| found.push((number, start, end)));
        found.sort_unstable();
        let same = found.chunk_by(|a, b| a.0 == b.0);
        same.map(|runs| (runs[0].0, runs.iter().map(|&(_, start, end)| start..end).collect())).collect()
    }

    /// Returns the index of the document that contains a token; `None` if no document contains the token.
    pub(super) fn of_token(&self, token: u32) -> Option<u32> {
        let at = self.runs.partition_point(|r| r.1 <= token);
        self.runs.get(at).filter(|r| r.0 <= token).map(|r| r.2)
    }

    /// Returns the tokens of the document with the index `number`.
    pub(super) fn tokens(&self, number: u32) -> IntervalSet {
        self.pick(&self.all, |n| n == number)
    }
}
