//! Compares the padding of a mask with the correct padding.

use crate::candidates::scope::exchanged;
use crate::candidates::target::{Mistake, Rows, Target};
use crate::intent::edits::other_side;
use crate::intent::{Intent, number, row};
use crate::read::words::counted;
use crate::report::wrong::keys_of_rows;
use noren_mask::Keep;
use noren_mask::bits::{bit, count, ends, ones, row_of};
use std::ops::Range;

/// The padding of the given mask, as two sets of keys for each batch row (one bit per key). The mask treats the keys of
/// `seen` as non-padding and the keys of `hidden` as padding. A key is in neither set if the intended mask hides the
/// key from all queries for a reason other than padding.
pub(crate) struct Plane {
    pub(crate) seen: Vec<Vec<u64>>,
    pub(crate) hidden: Vec<Vec<u64>>,
    /// The batch rows that are compared.
    pub(crate) rows: Vec<usize>,
}

impl Plane {
    /// Returns the padding of a mask that stores one row of keys for each batch row. Every key is either seen or hidden.
    pub(crate) fn stored(plane: &Keep, batch: usize) -> Plane {
        let [own, .., kv_len] = plane.dims();
        let all = row_of(kv_len, 0, kv_len);
        let seen: Vec<Vec<u64>> = (0..batch).map(|b| plane.row(b.min(own - 1), 0, 0).to_vec()).collect();
        let hidden = seen.iter().map(|row| row.iter().zip(&all).map(|(s, a)| !s & a).collect()).collect();
        Plane { seen, hidden, rows: (0..batch).collect() }
    }

    /// Returns true if `other` is a possible padding of the given mask: `other` contains every key of `seen` and no key
    /// of `hidden`. `other` holds the non-padding keys of each batch row, as bits.
    fn is(&self, other: &[Vec<u64>]) -> bool {
        (0..self.seen.len()).all(|b| self.has(b, row(other, b)))
    }

    /// Returns true if `other` is a possible padding of batch row `b`.
    fn has(&self, b: usize, other: &[u64]) -> bool {
        self.seen[b].iter().zip(&self.hidden[b]).zip(other).all(|((s, h), o)| s & !o == 0 && h & o == 0)
    }

    /// Returns the mistake in the padding of the given mask, and the cost of this explanation; `None` if the padding is
    /// correct. The explanation with the lowest cost is reported. `right` is the intended mask. `valid` has the
    /// non-padding keys of `right`: one row of bits for each batch row, with a 1 for each non-padding key.
    pub(crate) fn judge(&self, right: &Intent, valid: &[Vec<u64>], target: &Target<'_>) -> Option<(Mistake, f64)> {
        let batch = right.batch;
        let kv_len = right.kv_len;
        if self.is(valid) {
            return None;
        }
        let each = |f: &dyn Fn(&[u64]) -> Vec<u64>| -> Vec<Vec<u64>> { (0..batch).map(|b| f(row(valid, b))).collect() };
        let all = row_of(kv_len, 0, kv_len);
        let not = |r: &[u64]| r.iter().zip(&all).map(|(w, a)| !w & a).collect::<Vec<u64>>();
        let say = |class, text: &str, cost| Some(((class, text.to_string()), cost));
        let extra: u64 = (0..batch).map(|b| overlap(&self.seen[b], &not(row(valid, b)))).sum();
        let missing: u64 = (0..batch).map(|b| overlap(&self.hidden[b], row(valid, b))).sum();
        // If queries see only their own keys, a narrow window gives the same cells.
        let seen = target.keys_only || self.seen.iter().flatten().any(|w| *w != 0);
        if seen && self.is(&each(&not)) {
            // In an array of queries by keys, an inverted mask is a more frequent mistake than inverted padding alone.
            let cost = if target.keys_only { 0.95 } else { 1.15 };
            let text = "padding is inverted: non-padding keys are hidden and padding keys are visible";
            return say("inverted_polarity", text, cost);
        }
        if extra == 0
            && missing > 0
            && let Some(text) = self.holes(valid, target)
        {
            return Some((("pad_equals_eos_holes", text), 0.9));
        }
        if batch > 1 && !target.part {
            let (first, nothing) = (row(valid, 0), row_of(kv_len, 0, 0));
            let padded = count(first) < kv_len as u64;
            for (others, hides, text) in [
                (first, padded, "every batch row has the padding of batch row 0"),
                (&all, padded, "padding is hidden only in batch row 0"),
                (&nothing, true, "only batch row 0 has a mask: queries of the other batch rows read no key"),
            ] {
                let rows: Vec<Vec<u64>> = (0..batch).map(|b| if b == 0 { first } else { others }.to_vec()).collect();
                if hides && self.is(&rows) {
                    return say("batch_row_wrong", text, 1.0);
                }
            }
        }
        if missing == 0 && self.hidden.iter().all(|h| h.iter().all(|w| *w == 0)) {
            let written = (0..batch).map(|b| number(&right.past, b).max(0) as usize + right.q_len).max().unwrap_or(0);
            return match written < kv_len && right.past.iter().any(|p| *p != 0) {
                true => say("unwritten_cache_visible", "unwritten slots of the cache are visible", 1.0),
                false => say(
                    "padding_keys_visible",
                    "padding keys are visible to non-padding queries: the mask hides no padding",
                    1.0,
                ),
            };
        }
        if self.is(&each(&|r| other_side(r, kv_len))) {
            return say(
                "padding_side",
                "padding is hidden at the other end of the rows than the declared padding",
                1.0,
            );
        }
        let is_row = &mut |b: usize, from: usize| self.has(b, row(valid, from));
        if let Some(mistake) = exchanged(if target.part { 1 } else { batch }, is_row) {
            return Some((mistake, 1.2));
        }
        self.lengths(right, valid, (extra, missing))
    }

    /// If all wrongly hidden tokens have the same id, and this id is the padding id or the id that ends a text, returns
    /// a description of the mistake. Otherwise, or if no token ids were given, returns `None`.
    fn holes(&self, valid: &[Vec<u64>], target: &Target<'_>) -> Option<String> {
        let ids = target.ids?;
        let mut seen_id: Option<i64> = None;
        for b in 0..self.hidden.len() {
            let real = both(&self.hidden[b], row(valid, b));
            for k in ones(&real) {
                let id = *row(ids, b).get(k)?;
                let special = Some(id) == target.eos || Some(id) == target.pad;
                if !special || seen_id.is_some_and(|s| s != id) {
                    return None;
                }
                seen_id = Some(id);
            }
        }
        let id = seen_id?;
        // If a token with this id is visible, the id is not the reason.
        let visible = |b: usize| {
            let real = both(&self.seen[b], row(valid, b));
            ones(&real).any(|k| row(ids, b).get(k) == Some(&id))
        };
        let rows: Vec<Vec<u64>> = (0..self.hidden.len()).map(|b| both(&self.hidden[b], row(valid, b))).collect();
        let keys = keys_of_rows(&rows)?;
        (!(0..self.seen.len()).any(visible)).then(|| {
            format!(
                "all non-padding tokens with id {id}, which ends texts, are hidden like padding ({keys}); use lengths instead of ids"
            )
        })
    }

    /// Returns the mistake and its cost for a mask whose padding does not fit the lengths of the texts; `None` if the
    /// padding is not that of other lengths, and no known mistake gives it. `valid` holds
    /// the correct non-padding keys as bits. `extra` is the number of visible padding keys, and `missing` the number of
    /// hidden non-padding keys.
    fn lengths(&self, right: &Intent, valid: &[Vec<u64>], (extra, missing): (u64, u64)) -> Option<(Mistake, f64)> {
        let past = right.past.iter().copied().max().unwrap_or(0);
        // If every new token is hidden, the mask covers only the tokens of the cache.
        let new_hidden = |b: usize| {
            let start = number(&right.past, b).max(0) as usize;
            (start..(start + right.q_len).min(right.kv_len)).all(|k| bit(&self.hidden[b], k) || !bit(row(valid, b), k))
        };
        let stale = extra == 0 || self.rows.iter().all(|&b| new_hidden(b));
        if past > 0 && missing > 0 && stale && right.k_positions.is_none() {
            let text = format!(
                "the mask hides {}: the padding mask was not extended when the cache grew",
                counted(missing, "non-padding key")
            );
            return Some((("stale_decode_mask", text), 1.1));
        }
        // The padding of another batch is at the same end of the rows.
        let at_end = |b: usize| {
            let Some((first, last)) = ends(&self.seen[b]) else { return true };
            let (real, hides) = (row(valid, b), |keys: Range<usize>| keys.into_iter().any(|k| bit(&self.hidden[b], k)));
            bit(real, 0) && !hides(0..first) || bit(real, right.kv_len - 1) && !hides(last + 1..right.kv_len)
        };
        let runs = (0..right.batch).all(|b| is_run(&self.seen[b]) && at_end(b));
        let part = |n: u64, name: &str, state: &str, cells: &dyn Fn(usize) -> Vec<u64>| {
            let keys = keys_of_rows(&(0..right.batch).map(cells).collect::<Vec<_>>());
            format!("{} {state}{}", counted(n, name), keys.map(|keys| format!(" ({keys})")).unwrap_or_default())
        };
        let padding = |b: usize| row(valid, b).iter().map(|word| !word).collect::<Vec<u64>>();
        let shown = part(extra, "padding key", "visible", &|b| both(&self.seen[b], &padding(b)));
        let lost = part(missing, "non-padding key", "hidden", &|b| both(&self.hidden[b], row(valid, b)));
        let longer = |b: usize| {
            (count(row(valid, b)) < right.kv_len as u64)
                .then(|| count(&self.seen[b]) as i64 - count(row(valid, b)) as i64)
        };
        let by: Vec<i64> = (0..right.batch).filter_map(longer).collect();
        let all = match by.first().filter(|first| **first != 0 && by.len() > 1 && by.iter().all(|by| by == *first)) {
            Some(by) if *by > 0 => format!("; each padded text is {} too long", counted(*by, "key")),
            Some(by) => format!("; each padded text is {} too short", counted(-by, "key")),
            None => String::new(),
        };
        let text = |what: &str| format!("{what}: {shown}, {lost}{all}");
        match () {
            () if runs => Some((("stale_or_bucketed_mask", text("the mask has other lengths than the texts")), 1.2)),
            () if extra > 0 && missing == 0 => {
                Some((("padding_keys_visible", text("some padding keys are visible")), 1.3))
            }
            () => None,
        }
    }
}

impl Target<'_> {
    /// Returns the padding that the given mask shows: the keys that no query reads, although `wrong` without its
    /// padding allows them. `wrong` is the intended mask `right`, or `right` with another mistake. Returns `None` in
    /// two cases: a key is hidden from some queries and visible to others, or a cell is visible that `wrong` hides for
    /// a reason other than padding.
    pub(crate) fn plane(&self, right: &Intent, wrong: &Intent) -> Option<Plane> {
        if let Some(plane) = self.plane {
            return Some(Plane::stored(plane, right.batch));
        }
        let open = Intent { valid: None, ..wrong.clone() };
        self.plane_of(right, &|b, _, i, words| open.fill(b, i, words))
    }

    /// Returns the padding that the given mask shows if `open(batch row, head, query, row)` writes the rows of the mask without padding.
    pub(crate) fn plane_of(&self, right: &Intent, open: Rows<'_>) -> Option<Plane> {
        let kv_len = right.kv_len;
        let mut words = vec![0; right.words()];
        let mut seen = vec![words.clone(); right.batch];
        let mut hidden = seen.clone();
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            for &h in &self.heads[b] {
                open(b, h, i, &mut words);
                // A query that the given mask treats as padding may still read its own key.
                let own = usize::try_from(right.slot(b, i)).unwrap_or(usize::MAX);
                for (w, given) in self.given.row(b, h, i).iter().enumerate() {
                    let others = if own / 64 == w { !(1 << (own % 64)) } else { u64::MAX };
                    if given & !words[w] & others != 0 {
                        return None;
                    }
                    let others = if kv_len == 1 || right.q_len == 1 { u64::MAX } else { others };
                    seen[b][w] |= given & others;
                    // If the own key of a query is hidden, it counts like any other hidden key.
                    hidden[b][w] |= words[w] & !given;
                }
            }
            if seen[b].iter().zip(&hidden[b]).any(|(s, h)| s & h != 0) {
                return None;
            }
        }
        let rows = (0..right.batch).filter(|&b| !self.heads[b].is_empty()).collect();
        Some(Plane { seen, hidden, rows })
    }
}

fn both(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a & b).collect()
}

fn overlap(a: &[u64], b: &[u64]) -> u64 {
    count(&both(a, b))
}

fn is_run(row: &[u64]) -> bool {
    ends(row).is_none_or(|(first, last)| count(row) == (last - first + 1) as u64)
}
