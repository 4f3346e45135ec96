//! The simplest expressions for the cells of one batch row and head: causality, windows, chunks, documents, prefixes,
//! first keys.
//!
//! The parameters of an expression are read from the cells; [`Slice::differences`] checks the expression.

use super::slice::Slice;
use noren_mask::Mask;
use noren_mask::bits::{bit, count, ones};
use noren_mask::{Span, atoms};
use std::collections::BTreeMap;

/// Returns the mask of the cells with `k <= q + causal` and `q - left <= k`, as the elementary mask (atom) with the
/// shortest name: for example, `causal` for 0 and `None`. `None` means no limit.
pub(super) fn band(causal: Option<i64>, left: Option<i64>) -> Mask {
    match (causal, left) {
        (Some(0), Some(left)) if left >= 0 => atoms::sliding(left as usize + 1),
        (Some(0), None) => atoms::causal(),
        (Some(offset), None) => atoms::causal_offset(offset),
        (right, Some(left)) => atoms::window(left, right),
        (None, None) => atoms::full(),
    }
}

/// Returns `mask & other`, or only `other` if `mask` is `full`.
pub(super) fn and(mask: &Mask, other: Mask) -> Mask {
    if *mask == atoms::full() { other } else { Mask::all([mask.clone(), other]) }
}

/// Returns candidate expressions, the simplest first: causal masks and windows, prefixes, windows with first keys,
/// chunks and documents. The candidates leave out padding and empty rows.
pub(super) fn candidates(slice: &Slice<'_>) -> Vec<Mask> {
    let Some((first_real, _)) = slice.seen_ends() else { return vec![atoms::none()] };
    let reach = |(i, e): (usize, (usize, usize))| e.1 as i64 - slice.position(i);
    let back = |(i, e): (usize, (usize, usize))| slice.position(i) - e.0 as i64;
    // rows that end at the last key that is read do not show how far they would read beyond it
    let last_real = slice.ends.iter().map(|e| e.1).max().unwrap_or(0);
    let uncut = slice.reading().filter(|(_, e)| e.1 < last_real).map(reach).max();
    let right = uncut.unwrap_or_else(|| slice.furthest_ahead());
    let left = slice.reading().map(back).max().unwrap_or(0);
    let steady = slice.reading().filter(|(_, e)| e.0 > first_real).map(back).max();
    let mut bases = vec![None];
    if right < slice.kv_len() as i64 - 1 {
        bases.push(Some(right));
    }
    let mut out = Vec::new();
    for causal in &bases {
        out.push(band(*causal, None));
        out.extend(steady.map(|left| band(*causal, Some(left))));
        if left < 0 {
            out.push(band(*causal, Some(left)));
        }
    }
    out.extend(prefixed(slice, first_real, right));
    out.extend(first_keys(slice, first_real, right));
    let bases: Vec<Mask> = bases.into_iter().map(|causal| band(causal, None)).collect();
    out.extend(bases.iter().filter_map(|base| Some(and(base, chunked(slice)?))));
    if let Some(documents) = documented(slice) {
        out.extend(bases.iter().map(|base| and(base, documents.clone())));
    }
    // if some cells are wrong, most rows still have the usual distances
    let usual = most_common(slice.reading().map(reach));
    out.push(band(usual, None));
    out.push(band(usual, most_common(slice.reading().filter(|(_, e)| e.0 > first_real).map(back))));
    out
}

/// Returns the most frequent number; if several are equally frequent, the smallest of them. `None` without numbers.
fn most_common(numbers: impl Iterator<Item = i64>) -> Option<i64> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    numbers.for_each(|n| *counts.entry(n).or_default() += 1);
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(n, _)| n)
}

/// Returns a causal mask with a prefix that every row reads; `None` if the rows show no prefix. `first_real` is the
/// first key that any row reads, and `right` the maximum of (last key that a row reads) - (position of its query).
fn prefixed(slice: &Slice<'_>, first_real: usize, right: i64) -> Option<Mask> {
    let prefix = common_start(slice, first_real, false);
    let beyond = slice.reading().any(|(i, e)| e.1 >= prefix && slice.position(i) < e.1 as i64);
    (prefix > first_real && right > 0 && !beyond).then(|| Mask::any([atoms::causal(), atoms::prefix(prefix)]))
}

/// Returns candidate expressions: a window in union with the first keys, which every later query reads. `first_real` is
/// the first key that any row reads, and `right` the maximum of (last key that a row reads) - (position of its query).
fn first_keys(slice: &Slice<'_>, first_real: usize, right: i64) -> Vec<Mask> {
    let first_keys = common_start(slice, first_real, true);
    if first_keys <= first_real {
        return Vec::new();
    }
    let inner = slice.rows.iter().filter_map(|&i| {
        let next = ones(slice.row(i)).find(|&k| k >= first_keys)?;
        (next > first_keys).then(|| slice.position(i) - next as i64)
    });
    let Some(left) = inner.max() else { return Vec::new() };
    let kept = atoms::keys(first_real..first_keys);
    let causal = and(&atoms::causal(), kept.clone());
    let parts = if right == 0 { vec![causal] } else { vec![kept, causal] };
    parts.into_iter().map(|part| Mask::any([band(Some(right), Some(left)), part])).collect()
}

/// Returns the end (exclusive) of the longest range of keys that begins at `first` and that every row reads. Returns
/// `first` if a row does not read key `first`. If `later` is true, a row need not read keys after the position of its
/// query.
fn common_start(slice: &Slice<'_>, first: usize, later: bool) -> usize {
    let mut end = slice.kv_len();
    for &i in &slice.rows {
        let limit = if later { (slice.position(i) + 1).clamp(0, end as i64) as usize } else { end };
        let missing = (first..end.min(limit.max(first))).find(|&k| !bit(slice.row(i), k));
        end = missing.unwrap_or(end);
        if end == first {
            break;
        }
    }
    end
}

fn chunked(slice: &Slice<'_>) -> Option<Mask> {
    let mut starts: Vec<usize> = slice.ends.iter().map(|e| e.0).collect();
    starts.dedup();
    let size = starts.windows(2).map(|w| w[1] as i64 - w[0] as i64).next().filter(|n| *n > 0)?;
    (starts[0] as i64 % size == 0).then(|| atoms::chunk(size as usize))
}

/// Returns a mask of documents, each of which begins at the first key of a row. If some positions are in no document,
/// the elementary mask (atom) is `spans` instead of `documents`. Returns `None` if the first keys show no documents.
fn documented(slice: &Slice<'_>) -> Option<Mask> {
    let (kv_len, end) = (slice.kv_len(), (slice.offset + slice.q_len() as i64).max(0) as usize);
    // for each position: the first key of its document plus 1, or 0 outside of all documents
    let mut ids = vec![0usize; kv_len.max(end)];
    for (i, e) in slice.reading() {
        if let Ok(slot) = usize::try_from(slice.position(i)) {
            ids[slot] = e.0 + 1;
        }
    }
    for k in (0..ids.len().saturating_sub(1)).rev() {
        if ids[k] == 0 && ids[k + 1] > 0 && ids[k + 1] <= k + 1 {
            ids[k] = ids[k + 1];
        }
    }
    if ids.windows(2).any(|w| w[1] != 0 && w[1] < w[0]) {
        return None;
    }
    let mut lengths: Vec<usize> = Vec::new();
    for (k, id) in ids.iter().enumerate() {
        match lengths.last_mut() {
            Some(n) if ids[k - 1] == *id => *n += 1,
            _ => lengths.push(1),
        }
    }
    // a key that no row reads may be in any document; any other key without a query is in no document
    let unread = |k: usize| k >= kv_len || !bit(&slice.seen, k);
    if (0..ids.len()).all(|k| ids[k] > 0 || unread(k)) || count(&slice.seen) == 0 {
        return Some(atoms::documents_of(lengths));
    }
    let mut at = 0;
    let spans = lengths.iter().filter_map(|n| {
        let start = at;
        at += n;
        (ids[start] > 0).then(|| Span::from(start..start + n))
    });
    Some(atoms::spans(spans.collect::<Vec<_>>()))
}
