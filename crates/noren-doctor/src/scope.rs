//! Mistakes in only some batch rows and heads: one head, one batch row, single queries, or permuted batch rows.

use super::edits::Post;
use super::intent::Intent;
use super::target::{Mistake, Target};
use super::words::counted;
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
    pub(super) fn in_part(&self, right: &Intent, declared: bool, found: &mut dyn FnMut(Vec<Mistake>, f64)) {
        let wrong = self.slices_off(right);
        let all: usize = self.heads.iter().map(Vec::len).sum();
        if wrong.is_empty() || wrong.len() == all {
            return;
        }
        let mut part = self.clone();
        for (b, heads) in part.heads.iter_mut().enumerate() {
            heads.retain(|&h| wrong.contains(&(b, h)));
        }
        part.order.retain(|&(b, _)| !part.heads[b].is_empty());
        part.part = true;
        let place = self.place(&wrong);
        part.singles(right, declared, &mut |mistakes, cost| {
            let named = mistakes.into_iter().map(|(class, says)| (class, format!("{place} only: {says}")));
            found(named.collect(), cost + PART);
        });
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
    pub(super) fn place(&self, slices: &BTreeSet<(usize, usize)>) -> String {
        let rows: BTreeSet<usize> = slices.iter().map(|s| s.0).collect();
        let heads: BTreeSet<usize> = slices.iter().map(|s| s.1).collect();
        let listed = |numbers: &BTreeSet<usize>| {
            let shown: Vec<String> = numbers.iter().take(8).map(usize::to_string).collect();
            format!("{}{}", shown.join(", "), if numbers.len() > 8 { ", ..." } else { "" })
        };
        let all_heads = heads.len() == self.heads.iter().map(Vec::len).max().unwrap_or(1);
        match (rows.len() == self.heads.len(), all_heads) {
            (true, _) => format!("in head {}", listed(&heads)),
            (_, true) => format!("in batch row {}", listed(&rows)),
            _ => format!("in batch row {}, head {}", listed(&rows), listed(&heads)),
        }
    }

    /// Returns the mistake that some non-padding queries read no key, with its cost. `None` if a row that reads keys
    /// differs from the intended mask `right`, or if no row that is equal in both masks reads a key. The cost is higher
    /// if several queries read no key, because wrong lengths are then more likely.
    pub(super) fn emptied_rows(&self, right: &Intent) -> Option<(Mistake, f64)> {
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
        let &(b, i) = empty.first().filter(|_| kept > 0)?;
        let count = empty.len();
        let says = format!(
            "no visible key in {} of non-padding queries, the first is the row of query {i} of batch row {b}: all other rows are correct",
            counted(count as u64, "row")
        );
        Some((("fully_masked_row", says), if count == 1 { 1.2 } else { 1.45 }))
    }

    /// Returns the mistake that the batch rows of the array are permuted, so that each has the mask of another batch
    /// row; `None` if they are not permuted or the batch is larger than `MOST_ROWS`. If a query is padding in that
    /// other batch row, its mask row is also accepted if it allows no key except the query's own key.
    pub(super) fn permuted_rows(&self, right: &Intent) -> Option<Mistake> {
        if right.batch > MOST_ROWS {
            return None;
        }
        let mut words = vec![0; right.words()];
        let mut is_row = |b: usize, from: usize| {
            (0..right.q_len).filter(|&i| right.cares(b, i)).all(|i| {
                right.fill(from, i, &mut words);
                let own = right.slot(from, i);
                self.heads[b].iter().all(|&h| {
                    let row = self.given.row(b, h, i);
                    let itself = || ones(row).all(|k| k as i64 == own);
                    row == words || !right.cares(from, i) && itself()
                })
            })
        };
        let choices: Vec<Vec<usize>> = (0..right.batch)
            .map(|b| (0..right.batch).map(|n| (b + n) % right.batch).filter(|&from| is_row(b, from)).collect())
            .collect();
        let mut taken = vec![None; right.batch];
        for b in 0..right.batch {
            if !assign(b, &choices, &mut taken, &mut vec![false; right.batch]) {
                return None;
            }
        }
        let mut order = vec![0; right.batch];
        taken.iter().enumerate().for_each(|(from, b)| order[b.unwrap_or(from)] = from);
        (0..right.batch).any(|b| order[b] != b).then(|| {
            let class = Post::BatchShift(1).class().unwrap_or_default();
            (class, format!("batch rows are permuted: the batch rows have the masks of batch rows {order:?}"))
        })
    }
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
