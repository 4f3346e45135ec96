//! Mistakes in only some batch rows and heads: one head, one batch row, single queries, or permuted batch rows.

use crate::candidates::target::{Mistake, Target};
use crate::intent::Intent;
use crate::read::words::counted;
use crate::report::wrong::{listed, of_rows};
use noren_mask::bits::ones;
use std::collections::BTreeSet;

/// Number that is added to the cost of a mistake that is in only some batch rows and heads. The explanation of a mask
/// with the lowest cost is reported.
const PART: f64 = 0.15;

/// Maximum batch size for which the doctor searches for permuted batch rows.
const MOST_ROWS: usize = 64;

impl Target<'_> {
    /// Searches for one mistake in the batch rows and heads that differ from the intended mask `right`. Calls `found`
    /// with (mistakes, cost) for each result; results with a lower cost are more likely. Nothing is searched if no
    /// batch row and head or all of them differ. `declared` is true if a mask kind is declared.
    pub(crate) fn in_part(&self, right: &Intent, declared: bool, found: &mut dyn FnMut(Vec<Mistake>, f64)) {
        let wrong = self.slices_off(right);
        let all: usize = self.heads.iter().map(Vec::len).sum();
        if wrong.is_empty() || wrong.len() == all {
            return;
        }
        let place = self.place(&wrong);
        self.part(&wrong).singles(right, declared, &mut |mistakes, cost| {
            let named = mistakes.into_iter().map(|(class, says)| (class, format!("{place} only: {says}")));
            found(named.collect(), cost + PART);
        });
    }

    /// Returns this target with only the given batch rows and heads.
    pub(crate) fn part(&self, slices: &BTreeSet<(usize, usize)>) -> Self {
        let mut part = Target { part: true, ..self.clone() };
        for (b, heads) in part.heads.iter_mut().enumerate() {
            heads.retain(|&h| slices.contains(&(b, h)));
        }
        part.order.retain(|&(b, _)| !part.heads[b].is_empty());
        part
    }

    /// Returns the pairs (batch row, head) in which at least one row of a non-padding query differs from the intended mask `right`.
    fn slices_off(&self, right: &Intent) -> BTreeSet<(usize, usize)> {
        let mut words = vec![0; right.words()];
        let mut off = BTreeSet::new();
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            right.fill(b, i, &mut words);
            off.extend(self.heads[b].iter().filter(|&&h| self.given.row(b, h, i) != words).map(|&h| (b, h)));
        }
        off
    }

    /// Returns a text that names the given batch rows and heads.
    pub(crate) fn place(&self, slices: &BTreeSet<(usize, usize)>) -> String {
        let rows: BTreeSet<usize> = slices.iter().map(|s| s.0).collect();
        let heads: BTreeSet<usize> = slices.iter().map(|s| s.1).collect();
        let all_heads = heads.len() == self.heads.iter().map(Vec::len).max().unwrap_or(1);
        match (rows.len() == self.heads.len(), all_heads) {
            (true, _) => format!("in {}", listed("head", &heads)),
            (_, true) => format!("in {}", listed("batch row", &rows)),
            _ => format!("in {}, {}", listed("batch row", &rows), listed("head", &heads)),
        }
    }

    /// Returns the mistake that some non-padding queries read no key, with its cost. `None` if a row that reads keys
    /// differs from the intended mask `right`, or if no row that is equal in both masks reads a key. The cost is higher
    /// if several queries read no key, because wrong lengths are then more likely.
    pub(crate) fn emptied_rows(&self, right: &Intent) -> Option<(Mistake, f64)> {
        let mut words = vec![0; right.words()];
        let (mut empty, mut kept) = (BTreeSet::new(), 0);
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            right.fill(b, i, &mut words);
            for &h in &self.heads[b] {
                let row = self.given.row(b, h, i);
                if row == words {
                    kept += usize::from(words.iter().any(|w| *w != 0));
                } else if row.iter().all(|w| *w == 0) {
                    empty.insert((b, i));
                } else {
                    return None;
                }
            }
        }
        let count = empty.len();
        let of = |b: usize| empty.iter().filter(|row| row.0 == b).map(|row| row.1).collect();
        let place = of_rows("query", &(0..right.batch).map(of).collect::<Vec<_>>()).filter(|_| kept > 0)?;
        let says = format!(
            "no visible key in {} of non-padding queries ({place}): all other rows are correct",
            counted(count as u64, "row")
        );
        Some((("fully_masked_row", says), if count == 1 { 1.2 } else { 1.45 }))
    }

    /// Returns the mistake that the batch rows of the array are exchanged, so that each has the mask of another batch
    /// row; `None` if they are not. If a query is padding in that other batch row, its mask row is also accepted if it
    /// allows no key except the query's own key.
    pub(crate) fn permuted_rows(&self, right: &Intent) -> Option<Mistake> {
        let mut words = vec![0; right.words()];
        exchanged(right.batch, &mut |b, from| {
            (0..right.q_len).filter(|&i| right.cares(b, i)).all(|i| {
                right.fill(from, i, &mut words);
                let own = right.slot(from, i);
                self.heads[b].iter().all(|&h| {
                    let row = self.given.row(b, h, i);
                    let itself = || ones(row).all(|k| k as i64 == own);
                    row == words || !right.cares(from, i) && itself()
                })
            })
        })
    }
}

/// Returns the mistake that each of `batch` batch rows is another batch row of the intended mask; `None` if each is its own, or
/// if they are too many. `is_row(b, from)` is true if batch row `b` is the intended batch row `from`.
pub(crate) fn exchanged(batch: usize, is_row: &mut dyn FnMut(usize, usize) -> bool) -> Option<Mistake> {
    if !(2..=MOST_ROWS).contains(&batch) || (0..batch).all(|b| is_row(b, b)) {
        return None;
    }
    let tiled = |n: usize, b: usize| b % (batch / n) * n + b / (batch / n);
    let mut times = (2..batch).filter(|n| batch.is_multiple_of(*n));
    if let Some(n) = times.find(|&n| (0..batch).all(|b| is_row(b, tiled(n, b)))) {
        let order: Vec<usize> = (0..batch).map(|b| tiled(n, b)).collect();
        let says = format!(
            "batch rows are in another order: they have the masks of batch rows {order:?}, because rows are tiled (`repeat`) instead of repeated \
             one by one (`repeat_interleave`), or the reverse"
        );
        return Some(("batch_row_wrong", says));
    }
    let choices: Vec<Vec<usize>> =
        (0..batch).map(|b| (0..batch).map(|n| (b + n) % batch).filter(|&from| is_row(b, from)).collect()).collect();
    let mut taken = vec![None; batch];
    if !(0..batch).all(|b| assign(b, &choices, &mut taken, &mut vec![false; batch])) {
        return None;
    }
    let mut order = vec![0; batch];
    taken.iter().enumerate().for_each(|(from, b)| order[b.unwrap_or(from)] = from);
    let says = format!("batch rows are permuted: the batch rows have the masks of batch rows {order:?}");
    Some(("batch_row_wrong", says))
}

/// Assigns to batch row `b` one of the batch rows in `choices[b]`; no choice is used twice. If all choices of `b` are
/// taken, another batch row that has one of them gets another choice. `taken[c]` is the batch row to which `c` is
/// assigned, and `seen` marks the choices that this search has already examined. Returns false if no assignment exists.
fn assign(b: usize, choices: &[Vec<usize>], taken: &mut [Option<usize>], seen: &mut [bool]) -> bool {
    for &from in &choices[b] {
        if std::mem::replace(&mut seen[from], true) {
            continue;
        }
        if taken[from].is_none_or(|other| assign(other, choices, taken, seen)) {
            taken[from] = Some(b);
            return true;
        }
    }
    false
}
