//! Checks the positions of tokens that are given with the mask.

use crate::companions::table::{Checked, Entry, Table, sources};
use crate::intent::known::{self, Companions, Known, POSITIONS, Sizes};
use crate::intent::{Intent, number, row};
use crate::read::context::Context;
use crate::read::words::counted;
use crate::report::wrong::listed;
use crate::report::{Certainty, Finding, Severity};
use noren_mask::bits::bit;
use std::collections::BTreeSet;

/// Checks the given positions: the position of each non-padding token must be the number of non-padding tokens before
/// this token in its document. If the model has a relative position encoding, a constant shift of all positions is only
/// a note. One row of positions is used for all batch rows. Returns `None` if the positions cannot be compared, or if they are compared
/// only with the documents that they show.
pub(super) fn positions(beside: &Companions<'_>, context: &Context, intent: Option<&Intent>) -> Option<Checked> {
    let intent = intent?;
    let table = Table::of(beside, POSITIONS).filter(|_| beside.get(POSITIONS).is_some_and(|v| v.shape().len() <= 2))?;
    if intent.k_positions.is_some() || ![1, intent.batch].contains(&table.rows.len()) {
        return None;
    }
    let slot0 = match table.rows[0].len() {
        w if w == intent.kv_len => 0,
        w if w == intent.q_len => number(&intent.past, 0).max(0) as usize,
        _ => return None,
    };
    let one = table.rows.len() < intent.batch;
    let table = table.spread(intent.batch);
    let numbered = |b: usize| Numbered { intent, b, from: slot0, given: &table.rows[b] };
    let (mut wrong, mut uneven, mut tokens) = (Vec::<Entry>::new(), BTreeSet::new(), 0);
    // For each text: the shift of its positions, and the slot of its first token.
    let mut starts = Vec::new();
    for b in 0..intent.batch {
        let (mut document, mut shift) = (None, 0);
        for (at, right) in numbered(b).right().into_iter().enumerate() {
            let Some((own, should)) = right else { continue };
            let by = table.rows[b][at] - should;
            if document.replace(own) != Some(own) {
                shift = by;
                starts.push((by, (slot0 + at) as i64 - should));
            }
            tokens += 1;
            uneven.extend((by != shift).then_some(b));
            wrong.extend((by != 0).then_some((b, at, should)));
        }
    }
    let mut arrays = sources(beside, context, intent);
    let of = if arrays.is_empty() { "the mask or the declarations".to_string() } else { arrays.join(" and ") };
    arrays.push(table.name.to_string());
    let shared = match one {
        true => format!("; one row of positions is used for all {} batch rows", intent.batch),
        false => String::new(),
    };
    let says =
        format!("`{}` number the tokens of {of}: {} compared{shared}", table.name, counted(intent.batch as u64, "row"));
    let checked = Checked { arrays, says, ..Checked::default() };
    if wrong.is_empty() {
        let sizes = Sizes { batch: intent.batch, q_len: intent.q_len, kv_len: intent.kv_len };
        return (!Known::new(beside, context, sizes).segments_from_positions).then_some(checked);
    }
    let relative = context.position_encoding.as_deref().is_some_and(crate::read::words::counts_distances);
    // Some models begin the positions of every text with another number, such as 2. These positions are correct if this
    // number does not depend on the slot of the first token.
    let convention = starts.iter().all(|s| s.0 == starts[0].0) && starts.iter().any(|(by, slot)| by != slot);
    let undeclared = uneven.is_empty() && !convention && context.position_encoding.is_none();
    let (what, certainty, severity) = match uneven.is_empty() {
        false => ("do not number the non-padding tokens in order", Certainty::Certain, Severity::Error),
        true if relative || convention => ("are shifted", Certainty::Likely, Severity::Note),
        true if undeclared => ("are shifted", Certainty::Likely, Severity::Warning),
        true => ("are shifted", Certainty::Likely, Severity::Error),
    };
    let moved = numbered(wrong[0].0).moved();
    // The texts of the rows whose padding is at the right end may begin with another number than 0.
    wrong.retain(|entry| moved.is_none() || uneven.is_empty() || uneven.contains(&entry.0));
    let rows: BTreeSet<usize> = wrong.iter().map(|entry| entry.0).collect();
    let says = match moved {
        Some((end, _)) => {
            format!("those of {} are padded on the {end}, the tokens on the other side", listed("batch row", &rows))
        }
        None => other_numbers(&table, &wrong, tokens, intent),
    };
    let alike = if one { ", which is right only if all rows are padded alike" } else { "" };
    let harmless = match undeclared {
        true => "; a shift of a whole text changes nothing if position_encoding is relative, such as rope",
        false => "",
    };
    let text = format!("the position ids {what}: {says}{shared}{alike}{harmless}");
    let right = |b: usize| match rows.contains(&b) {
        true => numbered(b).moved().map_or_else(|| numbered(b).expected(), |(_, ids)| ids),
        false => table.rows[b].clone(),
    };
    let finding = Finding::of("position_ids", certainty, text).severity(severity);
    let finding = table.repaired(finding, &(0..intent.batch).map(right).collect::<Vec<_>>());
    let finding = match numbered(wrong[0].0).cause() {
        Some(cause) => finding.because(cause),
        None => finding,
    };
    Some(Checked { findings: vec![finding], ..checked })
}

/// Returns the places and the first of the positions `wrong`, of which `tokens` were compared, as text.
fn other_numbers(table: &Table<'_>, wrong: &[Entry], tokens: usize, intent: &Intent) -> String {
    let (b, at, should) = wrong[0];
    let tree = match intent.tree {
        Some(_) => "; a draft is one position after its parent, so drafts with one parent have equal positions",
        None => "",
    };
    format!(
        "{} of {tokens} non-padding tokens have another position ({}); the first has position {}, expected {should}{tree}",
        wrong.len(),
        table.places("token", wrong),
        table.rows[b][at]
    )
}

/// The given positions of one batch row.
struct Numbered<'a> {
    intent: &'a Intent,
    b: usize,
    /// The slot of the first given position.
    from: usize,
    given: &'a [i64],
}

impl Numbered<'_> {
    fn real(&self, at: usize) -> bool {
        self.intent.valid.as_ref().is_none_or(|v| bit(row(v, self.b), self.from + at))
    }

    fn moved(&self) -> Option<(&'static str, Vec<i64>)> {
        known::moved_padding(self.given, &|at| self.real(at))
    }

    /// Returns the document and the correct position of each token with a given position; `None` for padding. The position is the
    /// number of non-padding tokens before the token in its document; for a draft, the number of its ancestors in the tree is added to
    /// that of the tokens before the tree.
    fn right(&self) -> Vec<Option<(i64, i64)>> {
        let drafts = self.intent.tree.as_ref().map(|parents| depths(parents)).unwrap_or_default();
        let start = self.intent.kv_len - drafts.len();
        let segment =
            |k: usize| self.intent.segments.as_ref().and_then(|g| row(g, self.b).get(k)).copied().unwrap_or(1);
        let real = |k: usize| self.intent.valid.as_ref().is_none_or(|v| bit(row(v, self.b), k)) && segment(k) != 0;
        let (mut next, mut document) = (0, None);
        let mut of = |k: usize| {
            real(k).then(|| {
                if document.replace(segment(k)) != Some(segment(k)) {
                    next = 0;
                }
                match k.checked_sub(start) {
                    Some(node) => (segment(k), next + drafts[node]),
                    None => {
                        next += 1;
                        (segment(k), next - 1)
                    }
                }
            })
        };
        (0..self.intent.kv_len.min(self.from + self.given.len())).map(&mut of).skip(self.from).collect()
    }

    /// Returns the correct position of each token; padding repeats the last number.
    fn expected(&self) -> Vec<i64> {
        let mut last = 0;
        let mut of = |right: Option<(i64, i64)>| {
            last = right.map_or(last, |own| own.1);
            last
        };
        self.right().into_iter().map(&mut of).collect()
    }

    /// Returns the index of the cause in the catalogue; `None` if no known cause gives these positions.
    fn cause(&self) -> Option<usize> {
        let arange = self.given.iter().enumerate().all(|(at, given)| *given == (self.from + at) as i64);
        match () {
            () if self.moved().is_some() => Some(1),
            () if arange && !self.real(0) => Some(0),
            () if arange && self.intent.segments.is_some() => Some(2),
            () => None,
        }
    }
}

/// Returns the number of ancestors of each node of a tree of drafts.
fn depths(parents: &[i64]) -> Vec<i64> {
    let mut depths = vec![-1; parents.len()];
    for node in 0..parents.len() {
        let known = |at: &usize| depths[*at] < 0;
        let up = |at: &usize| usize::try_from(parents[*at]).ok();
        let path: Vec<usize> = std::iter::successors(Some(node), up).take_while(known).collect();
        let above = path.last().and_then(up).map_or(-1, |at| depths[at]);
        path.iter().rev().zip(above + 1..).for_each(|(at, depth)| depths[*at] = depth);
    }
    depths
}
