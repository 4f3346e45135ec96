//! The borders of packed documents in `cu_seqlens`, and the checks of these numbers.

use crate::intent::held::Held;
use crate::intent::known::{self, Companions, ENDS, IDS};
use crate::intent::{Intent, row};
use crate::read::context::Context;
use crate::report::{Certainty, Finding};
use noren_mask::bits::count;

/// Names of arrays that hold the number of tokens of the longest document.
pub(crate) const LONGEST: &[&str] = &["max_seqlen", "max_seqlen_q"];

/// Checks that `cu_seqlens` (the borders of packed documents) begins with 0, increases, and ends with the number of
/// tokens, or with that of the non-padding tokens, if `intent` has the padding, which arrays other than `cu_seqlens` give. Then compares `cu_seqlens` with `max_seqlen` and the
/// segment numbers. Returns a finding for all differences, or `None`.
pub(crate) fn packed_lengths(
    beside: &Companions<'_>,
    context: &Context,
    verdict: Option<&Held>,
    intent: Option<&Intent>,
) -> Option<Finding> {
    let ends = beside.list(ENDS)?;
    let all = verdict.map(|v| v.keep.dims()).map(|[batch, _, _, kv_len]| (batch * kv_len) as i64);
    let all = all.or_else(|| intent.map(|intent| (intent.batch * intent.kv_len) as i64));
    let all = all.or_else(|| beside.get(IDS).map(|ids| ids.len() as i64));
    let real = intent.and_then(|intent| {
        let valid = intent.valid.as_ref()?;
        Some((0..intent.batch).map(|b| count(row(valid, b)) as i64).sum::<i64>())
    });
    let padded = real.filter(|real| all.is_some_and(|all| all != *real));
    let (total, tokens) = if padded.is_some() { (padded, "non-padding tokens") } else { (all, "tokens") };
    let longest = ends.windows(2).map(|w| w[1] - w[0]).max();
    let given = beside.list(LONGEST).and_then(|l| l.first().copied()).or(context.max_seqlen);
    let (first, last) = (ends.first().copied().unwrap_or(0), ends.last().copied().unwrap_or(0));
    let wrong = |is: bool, text: String| is.then_some(text);
    let problems = [
        wrong(
            ends.is_empty(),
            "cu_seqlens is empty, but its first value must be 0 and its last value the number of tokens".to_string(),
        ),
        wrong(first != 0, format!("the first value of cu_seqlens is {first}, but it must be 0")),
        wrong(
            ends.windows(2).any(|w| w[1] <= w[0]),
            "the values of cu_seqlens do not increase, so a document has no tokens".to_string(),
        ),
        total.filter(|total| !ends.is_empty() && *total != last && all != Some(last)).map(|total| {
            format!("the last value of cu_seqlens is {last}, but it must be {total}, the number of {tokens}")
        }),
        longest
            .zip(given)
            .filter(|(longest, given)| longest != given)
            .map(|(longest, given)| format!("max_seqlen is {given}, but the longest document has {longest} tokens")),
    ];
    let problems: Vec<String> = problems.into_iter().flatten().collect();
    if problems.is_empty() {
        return borders(beside, &ends);
    }
    let problem = problems.join("; ");
    Some(Finding::of("document_boundary_off_by_one", Certainty::Certain, problem))
}

/// Returns a finding if `position_ids` begin again at 0 inside of a document of `cu_seqlens`: one of the two arrays is wrong.
pub(super) fn restarts(beside: &Companions<'_>) -> Option<Finding> {
    let ends = beside.list(ENDS)?;
    let positions = beside.get(known::POSITIONS).filter(|v| v.shape().len() <= 2)?.rows()?;
    let [row] = &positions[..] else { return None };
    if row.len() as i64 != *ends.last()? || row.iter().all(|at| *at == 0) {
        return None;
    }
    // Padding at the end may hold a 0 in each token.
    let padding = row.iter().rev().take_while(|at| **at == 0).count();
    let begins: Vec<i64> =
        (0..row.len().min(row.len() + 1 - padding)).filter(|k| row[*k] == 0).map(|k| k as i64).collect();
    let missing: Vec<i64> = begins.iter().copied().filter(|k| !ends.contains(k)).collect();
    (!missing.is_empty()).then(|| {
        let right: Vec<i64> = begins.iter().chain(ends.last()).copied().collect();
        let text = format!(
            "position_ids begin a document at the tokens {missing:?}, where cu_seqlens has no border: if position_ids are right, documents read each \
             other, and cu_seqlens should be {right:?}; if cu_seqlens is right, position_ids do not number its documents"
        );
        Finding::of("cross_document", Certainty::Likely, text)
    })
}

/// Compares the document borders `ends`, read from the array `cu_seqlens`, with the segment numbers. Returns a finding
/// if `ends` and the segment numbers give different first tokens of documents; otherwise `None`.
fn borders(beside: &Companions<'_>, ends: &[i64]) -> Option<Finding> {
    let segments = beside.list(known::SEGMENTS)?;
    let changes: Vec<i64> = (1..segments.len()).filter(|&k| segments[k] != segments[k - 1]).map(|k| k as i64).collect();
    let inner = ends.get(1..ends.len().saturating_sub(1))?;
    let wrong = changes.iter().find(|k| !inner.contains(k)).or_else(|| inner.iter().find(|k| !changes.contains(k)))?;
    (segments.len() as i64 == *ends.last()?).then(|| {
        let text = format!(
            "cu_seqlens and the segment numbers disagree at token {wrong}: only one of the two arrays begins a document at this token"
        );
        Finding::of("document_boundary_off_by_one", Certainty::Certain, text)
    })
}
