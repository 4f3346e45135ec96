//! The borders of packed documents in `cu_seqlens`, and the checks of these numbers.

use crate::companions::table::{Checked, Table};
use crate::intent::held::Held;
use crate::intent::known::{Companions, ENDS, IDS, LENGTHS, PADDING, POSITIONS, SEGMENTS};
use crate::intent::{Intent, row};
use crate::read::context::Context;
use crate::read::words::counted;
use crate::report::{Certainty, Finding};
use noren_mask::bits::count;

/// Names of arrays that hold the number of tokens of the longest document.
pub(crate) const LONGEST: &[&str] = &["max_seqlen", "max_seqlen_q"];

/// Checks that `cu_seqlens` (the borders of packed documents) begins with 0, increases, and ends with the number of
/// tokens, or with that of the non-padding tokens, if `intent` has the padding, which arrays other than `cu_seqlens` give. Then compares
/// `cu_seqlens` with `max_seqlen`, the segment numbers, and the batch rows. Returns a finding for all differences.
pub(crate) fn packed_lengths(
    beside: &Companions<'_>,
    context: &Context,
    verdict: Option<&Held>,
    intent: Option<&Intent>,
) -> Option<Checked> {
    let (name, _) = beside.named(ENDS)?;
    let ends = beside.list(ENDS)?;
    let all = verdict.map(|v| v.keep.dims()).map(|[batch, _, _, kv_len]| (batch * kv_len) as i64);
    let all = all.or_else(|| intent.map(|intent| (intent.batch * intent.kv_len) as i64));
    let all = all.or_else(|| beside.get(IDS).map(|ids| ids.len() as i64));
    let lengths = intent.and_then(|intent| {
        let valid = intent.valid.as_ref()?;
        Some((0..intent.batch).map(|b| count(row(valid, b)) as i64).collect::<Vec<i64>>())
    });
    let real = lengths.as_ref().map(|lengths| lengths.iter().sum::<i64>());
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
    let has = |names: &[&str]| beside.named(names).map(|(name, _)| name.to_string());
    let sized = total.is_some_and(|total| total == last || all == Some(last));
    let mut arrays: Vec<String> = [has(LONGEST), has(PADDING).or_else(|| has(LENGTHS)).filter(|_| padded.is_some())]
        .into_iter()
        .chain([has(IDS).filter(|_| sized)])
        .flatten()
        .collect();
    let mut what = "the number of tokens";
    // A document begins where the segment numbers change. Without their padding, batch rows begin documents.
    let segments = Table::of(beside, SEGMENTS).filter(|table| table.rows.concat().len() as i64 == last);
    let mut findings = Vec::new();
    if !problems.is_empty() {
        findings.push(Finding::of("document_boundary_off_by_one", Certainty::Certain, problems.join("; ")));
    } else if let Some(table) = segments {
        let numbers = table.rows.concat();
        let changes = |k: &usize| *k == 0 || k.is_multiple_of(table.rows[0].len()) || numbers[*k] != numbers[k - 1];
        let begins: Vec<i64> = (0..numbers.len()).filter(changes).map(|k| k as i64).collect();
        arrays.push(table.name.to_string());
        what = "the borders";
        findings.extend(other_borders(&ends, &begins, table.name, true));
    } else if let Some(lengths) = lengths.filter(|_| padded == Some(last)) {
        let begins: Vec<i64> = (0..lengths.len()).map(|b| lengths[..b].iter().sum()).collect();
        findings.extend(other_borders(&ends, &begins, "the batch rows", false));
    }
    if arrays.is_empty() && findings.is_empty() {
        return None;
    }
    let documents = counted(ends.len().saturating_sub(1) as u64, "document");
    let says = format!("`{name}` has {what} of {}: {documents} compared", arrays.join(" and "));
    Some(Checked { arrays: [arrays, vec![name.to_string()]].concat(), says, findings, open: Vec::new() })
}

/// Returns a finding if documents begin at other tokens in `cu_seqlens` than in the array `name`, which begins them at the tokens
/// `begins`. If `exact` is false, documents may also begin at tokens that are not in `begins`.
fn other_borders(ends: &[i64], begins: &[i64], name: &str, exact: bool) -> Option<Finding> {
    let (last, own) = ends.split_last()?;
    let without =
        |list: &[i64], other: &[i64]| list.iter().copied().filter(|k| !other.contains(k)).collect::<Vec<i64>>();
    let (missing, extra) = (without(begins, own), if exact { without(own, begins) } else { Vec::new() });
    let part = |at: &[i64], text: &str| (!at.is_empty()).then(|| format!("{text} {at:?}"));
    let parts = [
        part(&missing, &format!("{name} begin documents at the tokens")),
        part(&extra, &format!("cu_seqlens begins documents that {name} do not begin, at the tokens")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let right: Vec<i64> = begins.iter().chain([last]).copied().collect();
    (!parts.is_empty()).then(|| {
        let text = format!(
            "cu_seqlens and {name} disagree: {}; if {name} are right, cu_seqlens should be {right:?}",
            parts.join("; ")
        );
        Finding::of("document_boundary_off_by_one", Certainty::Certain, text)
    })
}

/// Returns a finding if `position_ids` begin again at 0 inside of a document of `cu_seqlens`: one of the two arrays is wrong.
pub(super) fn restarts(beside: &Companions<'_>, context: &Context) -> Option<Checked> {
    let ends = beside.list(ENDS)?;
    let positions =
        Table::of(beside, POSITIONS).filter(|_| beside.get(POSITIONS).is_some_and(|v| v.shape().len() <= 2))?;
    let [row] = &positions.rows[..] else { return None };
    if row.len() as i64 != *ends.last()? || row.iter().all(|at| *at == 0) {
        return None;
    }
    // Padding at the end may hold a 0 in each token.
    let padding = row.iter().rev().take_while(|at| **at == 0).count();
    let begins: Vec<i64> =
        (0..row.len().min(row.len() + 1 - padding)).filter(|k| row[*k] == 0).map(|k| k as i64).collect();
    let missing: Vec<i64> = begins.iter().copied().filter(|k| !ends.contains(k)).collect();
    let (first, right) = (*missing.first()?, begins.iter().chain(ends.last()).copied().collect::<Vec<i64>>());
    let ids = beside.rows(IDS).filter(|ids| ids.len() == 1 && ids[0].len() == row.len());
    let is_eos = |k: i64| ids.as_ref().is_some_and(|ids| k > 0 && context.eos_id == Some(ids[0][k as usize - 1]));
    let (certainty, other) = match missing.iter().all(|k| is_eos(*k)) {
        true => (Certainty::Certain, format!(" (input_ids have the end of a text at token {})", first - 1)),
        false => (Certainty::Likely, "; if cu_seqlens is right, position_ids do not number its documents".to_string()),
    };
    let text = format!(
        "position_ids begin a document at the tokens {missing:?}, where cu_seqlens has no border: if position_ids are right, documents read each \
         other, and cu_seqlens should be {right:?}{other}"
    );
    let finding = Finding::of("cross_document", certainty, text);
    let arrays = [beside.named(ENDS)?.0, positions.name].map(String::from).to_vec();
    Some(Checked { arrays, findings: vec![finding], ..Checked::default() })
}
