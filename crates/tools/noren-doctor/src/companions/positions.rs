//! Checks the positions of tokens that are given with the mask.

use crate::intent::known::{self, Companions, POSITIONS};
use crate::intent::{Intent, row};
use crate::read::context::Context;
use crate::report::{Certainty, Finding, Severity};
use noren_mask::bits::bit;

/// Checks the given positions: the position of each non-padding token must be the number of non-padding tokens before
/// this token in its document. If the model has a relative position encoding, a constant shift of all positions is only
/// a note. Returns `None` if no position is wrong.
pub(super) fn positions(beside: &Companions<'_>, context: &Context, intent: Option<&Intent>) -> Option<Finding> {
    let intent = intent?;
    let given = beside.get(POSITIONS).filter(|v| v.shape().len() <= 2)?.rows()?;
    if intent.k_positions.is_some() || given.len() > intent.batch {
        return None;
    }
    let width = given[0].len();
    let slot0 = match width {
        w if w == intent.kv_len => 0,
        w if w == intent.q_len => crate::intent::number(&intent.past, 0).max(0) as usize,
        _ => return None,
    };
    let (mut shifted, mut wrong) = (None, None);
    // For each text: the shift of its positions, and the slot of its first token.
    let mut starts = Vec::new();
    let rows: Vec<_> =
        given.iter().enumerate().map(|(b, given)| Numbered { intent, b, from: slot0, given }.right()).collect();
    for (b, right) in rows.iter().enumerate() {
        let (mut document, mut shift) = (None, 0);
        for (at, (own, should)) in right.iter().enumerate().filter_map(|(at, right)| Some((at, (*right)?))) {
            let (k, by) = (slot0 + at, given[b][at] - should);
            if document.replace(own) != Some(own) {
                shift = by;
                starts.push((by, k as i64 - should));
            }
            let first = if by != shift { &mut wrong } else { &mut shifted };
            if by != 0 || shift != 0 {
                first.get_or_insert((b, k, given[b][at], should));
            }
        }
    }
    let (b, k, is, should) = wrong.or(shifted)?;
    let numbered = Numbered { intent, b, from: slot0, given: &given[b] };
    let moved = numbered.moved();
    let off =
        |(at, right): (usize, &Option<(i64, i64)>)| right.filter(|own| own.1 != given[b][at]).map(|own| (at, own.1));
    let off: Vec<(usize, i64)> = rows[b].iter().enumerate().filter_map(off).collect();
    let at = match &moved {
        Some((end, _)) => {
            format!("the position ids of batch row {b} are padded on the {end}, its tokens on the other side")
        }
        None if intent.tree.is_some() && off.len() > 1 => {
            let at: Vec<usize> = off.iter().map(|own| own.0).collect();
            let is: Vec<i64> = at.iter().map(|at| given[b][*at]).collect();
            let should: Vec<i64> = off.iter().map(|own| own.1).collect();
            format!(
                "the tokens at {at:?} of batch row {b} have the positions {is:?}, expected {should:?}: a draft is one position after its parent, so \
                 drafts with one parent have equal positions"
            )
        }
        None => format!("token {k} of batch row {b} has position {is}, expected {should}"),
    };
    let ids = moved.map_or_else(|| numbered.expected(), |(_, ids)| ids);
    let relative = context.position_encoding.as_deref().is_some_and(crate::read::words::counts_distances);
    // Some models begin the positions of every text with another number, such as 2. These positions are correct if this
    // number does not depend on the slot of the first token.
    let convention = starts.iter().all(|s| s.0 == starts[0].0) && starts.iter().any(|(by, slot)| by != slot);
    let mut finding = match wrong {
        Some(_) => {
            let text = format!("the position ids do not number the non-padding tokens in order: {at}");
            Finding::of("position_ids", Certainty::Certain, text)
        }
        None => {
            let severity = if relative || convention { Severity::Note } else { Severity::Error };
            Finding::of("position_ids", Certainty::Likely, format!("the position ids are shifted: {at}"))
                .severity(severity)
        }
    };
    let shown: Vec<String> = ids.iter().take(32).map(i64::to_string).collect();
    let more = if ids.len() > 32 { ", ..." } else { "" };
    finding.repair = Some(format!("position_ids of batch row {b}: [{}{more}]", shown.join(", ")));
    Some(match numbered.cause() {
        Some(cause) => finding.because(cause),
        None => finding,
    })
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
