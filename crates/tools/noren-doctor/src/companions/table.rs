//! [`Table`]: integers for the tokens of a batch, such as labels, with the place of the wrong ones and the repair; [`Checked`]: a comparison.

use crate::intent::Intent;
use crate::intent::known::{Companions, DOCUMENTS, ENDS, IDS, Known, LENGTHS, PADDING, SEGMENTS, Sizes};
use crate::read::context::Context;
use crate::read::values::Values;
use crate::report::wrong::{listed, of_rows};
use crate::report::{Finding, SHOWN};
use std::collections::BTreeSet;

/// The text of a report in which the padding of the tokens is unknown.
pub(crate) const PADDING_UNKNOWN: &str = "the padding: give lengths, attention_mask, or input_ids with pad_token_id";

/// The maximum number of integers that a repair prints as a whole array.
const SMALL: usize = 64;

/// An array of integers with one row for each batch row, `[batch, tokens]`.
pub(crate) struct Table<'a> {
    pub(crate) name: &'a str,
    values: &'a Values,
    pub(crate) rows: Vec<Vec<i64>>,
}

/// An entry of a [`Table`] as (batch row, token, correct integer).
pub(crate) type Entry = (usize, usize, i64);

impl<'a> Table<'a> {
    /// Returns the first array whose name is in `names`; `None` if no such array is given, or if it has no rows of integers.
    pub(crate) fn of(beside: &Companions<'a>, names: &[&str]) -> Option<Self> {
        let (name, values) = beside.named(names)?;
        Some(Table { name, values, rows: values.rows()? })
    }

    /// Returns a table of `batch` rows; a table of one row has this row for all batch rows.
    pub(crate) fn spread(self, batch: usize) -> Self {
        match self.rows.len() {
            1 => Table { rows: vec![self.rows[0].clone(); batch], ..self },
            _ => self,
        }
    }

    /// Returns true if `rows` has the same shape.
    pub(crate) fn fits<T>(&self, rows: &[Vec<T>]) -> bool {
        rows.len() == self.rows.len() && rows[0].len() == self.rows[0].len()
    }

    /// Returns all entries as (batch row, token, integer).
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.rows.iter().enumerate().flat_map(|(b, r)| r.iter().enumerate().map(move |(k, x)| (b, k, *x)))
    }

    /// Returns a copy with the integers of `entries`.
    pub(crate) fn with<'b>(&self, entries: impl IntoIterator<Item = &'b Entry>) -> Vec<Vec<i64>> {
        let mut rows = self.rows.clone();
        entries.into_iter().for_each(|&(b, k, x)| rows[b][k] = x);
        rows
    }

    /// Returns the batch rows and tokens of `entries` as text, such as `labels 0 to 2 of batch row 1`. `name` is the name of an entry.
    pub(crate) fn places(&self, name: &str, entries: &[Entry]) -> String {
        let all = self.rows.len();
        let of_row = |b: usize| entries.iter().filter(|entry| entry.0 == b).map(|entry| entry.1).collect();
        let text = of_rows(name, &(0..all).map(of_row).collect::<Vec<BTreeSet<usize>>>()).unwrap_or_default();
        match () {
            () if all == 1 => text + " of batch row 0",
            () if text.ends_with("...") => {
                format!("{text} ({})", listed("batch row", &entries.iter().map(|entry| entry.0).collect()))
            }
            () if !text.contains("batch row") => format!("{text} of {}", listed("batch row", &(0..all).collect())),
            () => text,
        }
    }

    /// Returns the finding with the repaired array `right` as its repair: the whole array, if it is small, otherwise the integers that
    /// differ, or the first rows that differ.
    pub(crate) fn repaired(&self, finding: Finding, right: &[Vec<i64>]) -> Finding {
        let name = self.name;
        let stored = self.values.len() / self.rows[0].len() == self.rows.len();
        let rows: Vec<usize> = (0..right.len()).filter(|&b| !stored || right[b] != self.rows[b]).collect();
        let wrong: Vec<Entry> =
            self.entries().filter(|&(b, k, x)| right[b][k] != x).map(|(b, k, _)| (b, k, right[b][k])).collect();
        let short = |row: &[i64]| match row.len() {
            n if n > SMALL => format!("[{}, ...]", format!("{:?}", &row[..SMALL / 2]).trim_matches(['[', ']'])),
            _ => format!("{row:?}"),
        };
        let list = |texts: &mut dyn Iterator<Item = String>, more: bool| {
            texts.take(SHOWN).collect::<Vec<_>>().join(", ") + if more { ", ..." } else { "" }
        };
        let repair = match () {
            () if wrong.is_empty() => return finding,
            () if right.concat().len() <= SMALL && self.values.shape().len() == 1 && stored => {
                format!("{name} = {:?}", right[0])
            }
            () if right.concat().len() <= SMALL => format!("{name} = {right:?}"),
            () if stored && wrong.len() <= SHOWN => {
                list(&mut wrong.iter().map(|(b, k, x)| format!("{name}[{b}, {k}] = {x}")), false)
            }
            () => list(&mut rows.iter().map(|&b| format!("{name}[{b}] = {}", short(&right[b]))), rows.len() > SHOWN),
        };
        Finding { repair: Some(repair), ..finding }
    }
}

/// A comparison of given arrays with each other.
#[derive(Default)]
pub(crate) struct Checked {
    /// Names of the compared arrays.
    pub(crate) arrays: Vec<String>,
    /// What is equal if no mistake was found, and how much was compared; empty if nothing was.
    pub(crate) says: String,
    pub(crate) findings: Vec<Finding>,
    /// Properties that could not be checked, each with the declarations that the check needs.
    pub(crate) open: Vec<String>,
}

impl From<Finding> for Checked {
    fn from(finding: Finding) -> Self {
        Checked { findings: vec![finding], ..Checked::default() }
    }
}

/// Returns the names of the arrays that give the padding and the documents of the tokens.
pub(crate) fn sources(beside: &Companions<'_>, context: &Context, intent: &Intent) -> Vec<String> {
    let has = |names: &[&str]| beside.named(names).map(|(name, _)| name.to_string());
    let by_ids = || context.pad_id.and_then(|_| has(IDS));
    let padding = has(PADDING).or_else(|| has(LENGTHS)).or_else(by_ids).filter(|_| intent.valid.is_some());
    let documents =
        has(SEGMENTS).or_else(|| has(ENDS)).or_else(|| has(DOCUMENTS)).filter(|_| intent.segments.is_some());
    padding.into_iter().chain(documents).collect()
}

/// Returns the padding and the documents of the tokens of a mask of the sizes `sizes` as a mask that allows all other cells.
pub(crate) fn tokens_of(beside: &Companions<'_>, context: &Context, sizes: Sizes) -> Intent {
    let known = Known::new(beside, context, sizes);
    let all = Intent::new(known.batch, known.q_len, known.kv_len, known.past.clone());
    Intent { valid: known.valid, q_valid: known.q_valid, segments: known.segments, ..all }
}

/// Returns the names of the given arrays that give the padding, documents or positions of a mask of the sizes `sizes`.
pub(crate) fn used(beside: &Companions<'_>, context: &Context, sizes: Sizes) -> Vec<String> {
    // Given positions are compared with the tokens. Those that also give documents or the order of keys are compared with the cells.
    let known = |arrays: &Companions<'_>| Known { positions: None, ..Known::new(arrays, context, sizes) };
    let all = known(beside);
    let is_used = |name: &&String| {
        let mut others = beside.0.clone();
        others.remove(*name);
        all != known(&Companions(&others))
    };
    beside.0.keys().filter(is_used).cloned().collect()
}
