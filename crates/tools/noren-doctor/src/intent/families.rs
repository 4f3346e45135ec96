//! The known families of masks (windows, chunks, prefixes, documents) with sizes that are read from an array.

use crate::intent::{Intent, PerRow, number, row};
use noren_mask::Keep;
use noren_mask::bits::ends;
use std::collections::HashMap;
use std::rc::Rc;

/// Returns variants of `base` with windows, chunks and prefixes, the simplest first. Their sizes are read from the mask
/// rows of `given`. The variants are causal if `base` is causal, and keep the documents of `base`. [`with_documents`]
/// finds documents.
pub(crate) fn families(given: &Keep, base: &Intent) -> Vec<Intent> {
    let plain = Intent { left: None, right: None, chunk: None, prefix: None, ..base.clone() };
    let mut out = vec![base.clone(), plain.clone()];
    if base.tree.is_some() || base.k_positions.is_some() {
        return out;
    }
    let rows = Rows::of(given, base);
    let causal = base.causal.is_some();
    let mut widths = rows.widths();
    if !causal {
        widths.extend(rows.reaches());
    }
    let window = |n: i64| Intent { left: Some(n), right: (!causal).then_some(n), ..plain.clone() };
    out.extend(widths.into_iter().map(window));
    out.extend(rows.chunks(base).into_iter().map(|chunk| Intent { chunk: Some(chunk), ..plain.clone() }));
    if causal && base.segments.is_none() {
        let prefixes = rows.prefixes(base).into_iter().map(Rc::new);
        out.extend(prefixes.map(|lengths| Intent { prefix: Some(lengths), ..plain.clone() }));
    }
    out
}

/// Returns `base` with documents that are read from the array; `None` if `base` already has documents, a tree or
/// positions of keys. Documents read from the array are weak evidence, because they fit nearly every mask with some
/// structure.
pub(crate) fn with_documents(given: &Keep, base: &Intent) -> Option<Intent> {
    let known = base.segments.is_some() || base.tree.is_some() || base.k_positions.is_some();
    let plain = Intent { left: None, right: None, chunk: None, prefix: None, ..base.clone() };
    (!known).then(|| Intent { segments: Some(Rows::of(given, base).documents(given)), ..plain })
}

/// The mask row of one non-padding query, with the first and the last key that the query reads.
struct Row {
    b: usize,
    slot: i64,
    position: i64,
    first: i64,
    last: i64,
    /// Two values: true if a non-padding key is before `first`, and true if a non-padding key is after `last`.
    cut: (bool, bool),
}

struct Rows(Vec<Row>);

impl Rows {
    fn of(given: &Keep, base: &Intent) -> Self {
        let [batch, heads, q_len, kv_len] = given.dims();
        let heads = if given.heads_equal() { 1 } else { heads };
        let row = |b: usize, h: usize, i: usize| {
            let (first, last) = ends(given.row(b, h, i))?;
            let (slot, position) = (base.slot(b, i), base.position(b, i));
            let (from, to) = real_ends(base, b, kv_len);
            Some(Row { b, slot, position, first: first as i64, last: last as i64, cut: (first > from, last < to) })
        };
        let of_head = |b: usize, h: usize| {
            (0..q_len).filter(move |&i| base.cares(b, i)).filter_map(move |i| row(b, h, i)).collect::<Vec<_>>()
        };
        Rows((0..batch).flat_map(|b| (0..heads).flat_map(move |h| of_head(b, h))).collect())
    }

    /// Returns candidates for the number of keys before the query in a window: the most frequent and the largest
    /// distance from a query to the first key that it reads. Rows that read the first non-padding key are not counted,
    /// because the window may begin before this key.
    fn widths(&self) -> Vec<i64> {
        let of_rows = || self.0.iter().filter(|row| row.cut.0).map(|row| row.position - row.first);
        both(usual(of_rows()), of_rows().max())
    }

    /// Returns candidates for the number of keys after the query in a window: the most frequent and the largest
    /// distance from a query to the last key that it reads. Rows that read the last non-padding key are not counted,
    /// because the window may continue after this key.
    fn reaches(&self) -> Vec<i64> {
        let of_rows = || self.0.iter().filter(|row| row.cut.1).map(|row| row.last - row.position);
        both(usual(of_rows()), of_rows().max())
    }

    /// Returns candidates for chunks, each as (chunk size, start of the first chunk for each batch row). The starts are
    /// indices of keys: `[0]` for all batch rows, or the first non-padding key of each batch row.
    fn chunks(&self, base: &Intent) -> Vec<(i64, Rc<Vec<i64>>)> {
        let mut starts: Vec<(usize, i64)> = self.0.iter().map(|row| (row.b, row.first)).collect();
        starts.sort_unstable();
        starts.dedup();
        let steps = || starts.windows(2).filter(|w| w[0].0 == w[1].0).map(|w| w[1].1 - w[0].1);
        let widest = self.0.iter().map(|row| row.position - row.first + 1).max();
        let mut sizes = both(usual(steps()), steps().max());
        sizes.extend(widest.filter(|size| *size > 0 && !sizes.contains(size)));
        // If padding shortens the first chunk, all chunk boundaries are still multiples of the size, counted from the
        // start of the chunks.
        let borders = |from: &[i64]| {
            let of_rows = self.0.iter().filter(|row| row.cut.0).map(|row| row.first - number(from, row.b));
            of_rows.fold(0, gcd)
        };
        let text: Vec<i64> = (0..base.batch).map(|b| base.first_real(b) as i64).collect();
        let from = |origins: Vec<i64>| {
            let mut sizes = sizes.clone();
            sizes.push(borders(&origins));
            sizes.retain(|size| *size > 1);
            let origins = Rc::new(origins);
            sizes.into_iter().map(move |size| (size, origins.clone())).collect::<Vec<_>>()
        };
        let mut out = from(vec![0]);
        if text.iter().any(|origin| *origin > 0) {
            out.extend(from(text));
        }
        out
    }

    /// Returns candidates for the prefix length, read from the last key that the first query of each batch row reads. A
    /// candidate has one length for all batch rows, or one length for each batch row: the same number of tokens in
    /// every batch row, plus the padding at its start.
    fn prefixes(&self, base: &Intent) -> Vec<Vec<i64>> {
        if base.q_len != base.kv_len {
            return Vec::new();
        }
        let mut first: HashMap<usize, (i64, i64)> = HashMap::new();
        for row in self.0.iter().rev() {
            first.insert(row.b, (row.slot, row.last + 1));
        }
        let ends: Vec<(usize, i64)> =
            first.into_iter().filter(|(_, (slot, end))| *end > slot + 1).map(|(b, (_, end))| (b, end)).collect();
        let slots = both(usual(ends.iter().map(|e| e.1)), ends.iter().map(|e| e.1).max());
        let counted = || ends.iter().map(|&(b, end)| end - base.first_real(b) as i64);
        let texts = both(usual(counted()), counted().max());
        let whole = base.kv_len as i64;
        let mut out: Vec<Vec<i64>> = slots.into_iter().filter(|n| *n < whole).map(|n| vec![n]).collect();
        let moved = |n: i64| (0..base.batch).map(|b| n + base.first_real(b) as i64).collect();
        if (0..base.batch).any(|b| base.first_real(b) > 0) {
            out.extend(texts.into_iter().map(moved));
        }
        out
    }

    /// Returns the document number of each key, for each batch row. A document begins at a key that is the first key of
    /// several mask rows, or of the mask row of its own query.
    fn documents(&self, given: &Keep) -> PerRow<i64> {
        let [batch, _, _, kv_len] = given.dims();
        let mut votes = vec![HashMap::<i64, usize>::new(); batch];
        for row in &self.0 {
            *votes[row.b].entry(row.first).or_default() += 1 + usize::from(row.first == row.slot);
        }
        let ids = (0..batch).map(|b| {
            let mut number = 0;
            let begins = |k: i64| k == 0 || votes[b].get(&k).is_some_and(|n| *n > 1);
            (0..kv_len as i64)
                .map(|k| {
                    number += i64::from(begins(k));
                    number
                })
                .collect()
        });
        Rc::new(ids.collect())
    }
}

/// Returns the first and the last non-padding key of batch row `b`.
fn real_ends(base: &Intent, b: usize, kv_len: usize) -> (usize, usize) {
    let rows = base.valid.as_ref().map(|rows| row(rows, b));
    rows.and_then(ends).unwrap_or((0, kv_len - 1))
}

/// Returns the greatest common divisor of `a` and `b`.
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// Returns the most frequent number; `None` without numbers.
fn usual(numbers: impl Iterator<Item = i64>) -> Option<i64> {
    let mut counts: HashMap<i64, usize> = HashMap::new();
    numbers.for_each(|n| *counts.entry(n).or_default() += 1);
    counts.into_iter().max_by_key(|&(n, count)| (count, -n.abs(), n)).map(|(n, _)| n)
}

/// Returns a list of `first` and `second` without negative numbers; equal numbers are listed once.
fn both(first: Option<i64>, second: Option<i64>) -> Vec<i64> {
    let mut out: Vec<i64> = first.into_iter().chain(second).filter(|n| *n >= 0).collect();
    out.dedup();
    out
}
