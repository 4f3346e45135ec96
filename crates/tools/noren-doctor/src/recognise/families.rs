//! Expressions with several terms: strides, global tokens, spans, blocks, trees, complements, and unions of repeated
//! mask rows.
//!
//! An expression is returned only if it allows exactly the given cells.

use super::simple::{self, and, band};
use super::slice::{Slice, runs_of};
use noren_mask::Mask;
use noren_mask::bits::{bit, count, ones};
use noren_mask::{Span, atoms};
use std::collections::HashMap;
use std::ops::Range;

/// Ranges of positions; the end of each range is exclusive.
type Ranges = Vec<Range<usize>>;

/// Maximum number of distinct mask rows in an expression of `repeated_rows`, which has one term for each distinct row.
const MOST_TERMS: usize = 64;
/// The minimum number of mask rows for each range of keys or queries in an expression of `repeated_rows`, on average.
/// An expression with more ranges is too long and is not returned.
const ROWS_PER_RUN: usize = 4;

/// Returns the first expression that allows exactly the cells of `slice`; `None` if no such expression is found.
/// `simple` holds the simple candidate expressions, which are tried first.
pub(super) fn exact(slice: &Slice<'_>, simple: &[Mask]) -> Option<Mask> {
    let accept = |mask: Mask| accepted(slice, mask);
    let with_empty_rows = || simple.iter().map(|mask| slice.restricted(mask, true)).find(|mask| slice.is(mask));
    (slice.rows.len() < slice.q_len())
        .then(with_empty_rows)
        .flatten()
        .or_else(|| positive(slice, simple).into_iter().find_map(accept).or_else(|| complement(slice)))
}

/// Returns the first of three expressions that allows exactly the cells of `slice`; `None` if none does. The three are
/// `mask`, `mask` restricted to the keys that at least one query reads, and the second one also restricted to the
/// queries that read at least one key.
fn accepted(slice: &Slice<'_>, mask: Mask) -> Option<Mask> {
    let restricted = [false, true].map(|rows| slice.restricted(&mask, rows));
    std::iter::once(mask).chain(restricted).find(|mask| slice.is(mask))
}

/// Returns candidate expressions that are read from the allowed cells. (The function `complement` reads an expression
/// from the denied cells.)
fn positive(slice: &Slice<'_>, simple: &[Mask]) -> Vec<Mask> {
    let mut out = Vec::new();
    let strides = stride_of(slice).map(atoms::stride);
    if let Some(stride) = &strides {
        out.push(stride.clone());
        out.extend(simple.iter().map(|mask| and(mask, stride.clone())));
        out.extend(nearest_band(slice).map(|band| and(&band, stride.clone())));
    }
    out.extend(blocks(slice));
    out.extend(spans(slice));
    out.extend(beside_bands(slice));
    out.extend(tree(slice));
    out.extend(repeated_rows(slice));
    out
}

/// Returns the greatest common divisor of `key - position of the query` over all allowed cells, as the parameter of the
/// elementary mask (atom) `stride`; `None` if this number is 1 or every difference is 0.
fn stride_of(slice: &Slice<'_>) -> Option<usize> {
    let mut all = 0;
    for &i in &slice.rows {
        for k in ones(slice.row(i)) {
            all = gcd(all, (k as i64 - slice.position(i)).unsigned_abs() as usize);
            if all == 1 {
                return None;
            }
        }
    }
    (all > 1).then_some(all)
}

/// Returns the narrowest mask of the form `q - left <= k <= q + ahead` that contains all allowed cells; `None` if no
/// cell is allowed.
fn nearest_band(slice: &Slice<'_>) -> Option<Mask> {
    let left = slice.reading().map(|(i, e)| slice.position(i) - e.0 as i64).max()?;
    let ahead = slice.furthest_ahead();
    (ahead >= -left).then(|| band(Some(ahead), Some(left)))
}

/// Returns the expression `causal | chunk(n)`, in which a query reads its own chunk of `n` keys and all earlier chunks.
/// `n` is read from the last keys of the rows: it is the first difference, other than 0, between the last keys of two
/// neighbouring rows. `None` if all differences are 0, or if the first of the others is negative.
fn blocks(slice: &Slice<'_>) -> Option<Mask> {
    let mut ends: Vec<usize> = slice.ends.iter().map(|e| e.1 + 1).collect();
    ends.dedup();
    let size = ends.windows(2).next().and_then(|pair| pair[1].checked_sub(pair[0])).filter(|size| *size > 0)?;
    Some(Mask::any([atoms::causal(), atoms::chunk(size)]))
}

/// Returns candidate expressions with the elementary mask (atom) `spans`, which has ranges of tokens that read each
/// other. The candidates are `spans` alone, `spans` and causal, and `spans` in union with a causal mask or a window.
fn spans(slice: &Slice<'_>) -> Vec<Mask> {
    let mut alone: Vec<Span> = Vec::new();
    let mut causal: Vec<(usize, usize)> = Vec::new();
    let mut ahead: Vec<(usize, usize)> = Vec::new();
    let mut before = None;
    for (&i, run) in slice.rows.iter().zip(slice.runs_around()) {
        let Some((start, end)) = *run else { continue };
        let (start, end, own) = (start, end, slice.position(i).max(0) as usize);
        let span = Span::from(start..end);
        if alone.last() != Some(&span) {
            alone.push(span);
        }
        match causal.last_mut() {
            Some(last) if last.0 == start => last.1 = end,
            _ => causal.push((start, end)),
        }
        if end > own + 1 && before != Some(end) {
            ahead.push((own, end));
        }
        before = Some(end);
    }
    let list =
        |pairs: &[(usize, usize)]| atoms::spans(pairs.iter().map(|&(a, z)| Span::from(a..z)).collect::<Vec<_>>());
    let mut out = Vec::new();
    // documents must cover all tokens; spans may have gaps
    if !alone.is_empty() {
        out.push(atoms::spans(alone));
        out.push(and(&atoms::causal(), list(&causal)));
    }
    if !ahead.is_empty() {
        let beside = |base: Mask| Mask::any([base, list(&ahead)]);
        out.push(beside(atoms::causal()));
        out.extend(usual(slice).0.map(|left| beside(band(Some(0), Some(left)))));
    }
    out
}

/// Returns two distances, each `None` if no query shows it. The consecutive keys that a query reads around its own
/// position have a first and a last key; the distances are the most frequent distances from the query to the first and
/// to the last of them. If the first key is the first key that any query reads, the query does not count for the first
/// distance; the same holds for the last key.
fn usual(slice: &Slice<'_>) -> (Option<i64>, Option<i64>) {
    let Some((first, last)) = slice.seen_ends() else { return (None, None) };
    let (mut left, mut right) = (HashMap::new(), HashMap::new());
    for (&i, run) in slice.rows.iter().zip(slice.runs_around()) {
        let Some((start, end)) = *run else { continue };
        let own = slice.position(i);
        if start > first {
            *left.entry(own - start as i64).or_insert(0u32) += 1;
        }
        if end <= last {
            *right.entry(end as i64 - 1 - own).or_insert(0u32) += 1;
        }
    }
    let most = |counts: HashMap<i64, u32>| counts.into_iter().max_by_key(|&(at, n)| (n, at)).map(|(at, _)| at);
    (most(left), most(right))
}

/// Returns candidate expressions: a window or chunks, in union with a stride or with global tokens (tokens that read
/// all keys or that all queries read).
fn beside_bands(slice: &Slice<'_>) -> Vec<Mask> {
    let (left, right) = usual(slice);
    let causal = slice.furthest_ahead() <= 0;
    let around = band(if causal { Some(0) } else { right }, left);
    let mut bases = vec![atoms::none()];
    if around != atoms::full() && around != atoms::causal() {
        bases.push(around);
    }
    let (starts, ends): (Vec<usize>, Vec<usize>) = slice.runs_around().iter().flatten().copied().unzip();
    let mut sizes: Vec<usize> = [starts, ends].into_iter().filter_map(usual_step).collect();
    sizes.dedup();
    for chunk in sizes.into_iter().map(atoms::chunk) {
        bases.push(if causal { and(&atoms::causal(), chunk) } else { chunk });
    }
    bases.iter().flat_map(|base| beside(slice, base, causal)).collect()
}

/// Returns the most frequent positive difference between neighbouring numbers of the list; `None` if this difference is
/// 1.
fn usual_step(mut numbers: Vec<usize>) -> Option<usize> {
    numbers.dedup();
    let mut counts: HashMap<usize, u32> = HashMap::new();
    numbers.windows(2).filter(|w| w[0] < w[1]).for_each(|w| *counts.entry(w[1] - w[0]).or_insert(0) += 1);
    let step = counts.into_iter().max_by_key(|&(step, n)| (n, step))?.0;
    (step > 1).then_some(step)
}

/// Returns candidate expressions `base | x`. The term `x` has the allowed cells that `base` denies: global keys and
/// queries, or a stride. If `causal` is true, `x` allows no key after the query.
fn beside(slice: &Slice<'_>, base: &Mask, causal: bool) -> Vec<Mask> {
    let Some(rest) = slice.without(base) else { return Vec::new() };
    let rest = Slice::new(&rest, 0, 0, slice.offset);
    let envelope = if causal { atoms::causal() } else { atoms::full() };
    let with = |part: Mask| match *base == atoms::none() {
        true => and(&envelope, part),
        false => Mask::any([base.clone(), and(&envelope, part)]),
    };
    let mut out: Vec<Mask> = stride_of(&rest).map(|step| with(atoms::stride(step))).into_iter().collect();
    let may = |i: usize| match causal {
        true => ones(&slice.seen).take_while(|&k| k as i64 <= slice.position(i)).count(),
        false => count(&slice.seen) as usize,
    };
    // A row that reads only some of the keys that it may read shows global keys. A row that reads all of these keys,
    // and more than the global keys, is a global query.
    let (full, others): (Vec<usize>, Vec<usize>) =
        rest.rows.iter().partition(|&&i| count(slice.row(i)) as usize == may(i));
    let mut keys = vec![0u64; slice.seen.len()];
    others.iter().for_each(|&i| keys.iter_mut().zip(rest.row(i)).for_each(|(k, w)| *k |= w));
    let beyond = |i: usize| rest.row(i).iter().zip(&keys).any(|(w, k)| w & !k != 0);
    let queries = full.into_iter().filter(|&i| beyond(i)).filter_map(|i| u32::try_from(slice.position(i)).ok());
    let queries: Vec<u32> = queries.collect();
    let keys: Vec<u32> = ones(&keys).map(|k| k as u32).collect();
    let all = |sets: &[&[u32]]| {
        let mut all = sets.concat();
        all.sort_unstable();
        all.dedup();
        runs_of(all)
    };
    match (keys.is_empty(), queries.is_empty()) {
        (true, true) => {}
        (false, true) => out.push(with(atoms::keys(all(&[&keys])))),
        (true, false) => out.push(with(atoms::queries(all(&[&queries])))),
        (false, false) => {
            let both = all(&[&keys, &queries]);
            out.push(with(atoms::global(both)));
            out.push(with(Mask::any([atoms::keys(all(&[&keys])), atoms::queries(all(&[&queries]))])));
        }
    }
    out
}

/// Returns the mask of a tree in which each query reads itself, its ancestors, and all keys before the first query.
/// Returns `None` if the queries are not the last tokens, or if a query does not read its own key.
fn tree(slice: &Slice<'_>) -> Option<Mask> {
    let start = usize::try_from(slice.offset).ok()?;
    if start + slice.q_len() != slice.kv_len() {
        return None;
    }
    let parents = (0..slice.q_len()).map(|i| {
        let row = slice.row(i);
        let parent = (start..start + i).rev().find(|&k| bit(row, k));
        bit(row, start + i).then(|| parent.map_or(-1, |k| (k - start) as i64))
    });
    let tree = atoms::tree(parents.collect::<Option<Vec<i64>>>()?, start);
    Some(if start > 0 { Mask::any([atoms::keys(0..start), tree]) } else { tree })
}

/// Returns the union of all distinct mask rows. Each term of the union is a set of queries and the keys that these
/// queries read. Returns `None` if the union needs too many terms or ranges.
fn repeated_rows(slice: &Slice<'_>) -> Option<Mask> {
    let mut terms: Vec<(usize, Vec<u32>)> = Vec::new();
    for &i in &slice.rows {
        let position = u32::try_from(slice.position(i)).ok()?;
        // most rows repeat the previous row
        match terms.iter().rposition(|(first, _)| slice.row(*first) == slice.row(i)) {
            Some(term) => terms[term].1.push(position),
            None if terms.len() == MOST_TERMS => return None,
            None => terms.push((i, vec![position])),
        }
    }
    let terms =
        terms.into_iter().map(|(first, rows)| (runs_of(ones(slice.row(first)).map(|k| k as u32)), runs_of(rows)));
    let terms: Vec<(Ranges, Ranges)> = terms.collect();
    let runs: usize = terms.iter().map(|(keys, rows)| keys.len().max(rows.len())).sum();
    if runs * ROWS_PER_RUN > slice.q_len() {
        return None;
    }
    Some(Mask::any(terms.into_iter().map(|(keys, rows)| Mask::all([atoms::queries(rows), atoms::keys(keys)]))))
}

/// Returns an exact expression of the form `causal & !x` or `!x`. The term `x` describes the cells that are missing
/// from the causal mask or from the full mask. `None` if no such expression is found.
fn complement(slice: &Slice<'_>) -> Option<Mask> {
    let causal = (slice.furthest_ahead() <= 0).then(atoms::causal);
    [causal, Some(atoms::full())].into_iter().flatten().find_map(|whole| {
        let missing = slice.missing_of(&whole)?;
        let missing = Slice::new(&missing, 0, 0, slice.offset);
        let simple = simple::candidates(&missing);
        let mut parts = simple.iter().cloned().chain(positive(&missing, &simple));
        let less = |part: Mask| match whole == atoms::full() {
            true => !part,
            // the missing cells are below the diagonal, so their own causality is not needed
            false => Mask::all([whole.clone(), !part]).simplify(),
        };
        parts.find_map(|part| accepted(slice, less(part)))
    })
}

/// Returns the greatest common divisor of `a` and `b`.
fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
