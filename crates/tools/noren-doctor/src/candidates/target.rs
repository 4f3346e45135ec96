//! [`Target`]: the given cells, and functions that compare these cells row by row with other masks.

use crate::intent::Intent;
use crate::intent::edits::Post;
use crate::intent::known::bits;
use crate::report::wrong::Wrong;
use noren_mask::Keep;
use noren_mask::bits::{bit, ends, set_bit};
use std::rc::Rc;

/// The given cells, and the order in which their query rows are compared with other masks. Rows in which masks usually
/// differ, such as the last query, are compared first.
#[derive(Clone)]
pub(crate) struct Target<'a> {
    pub(crate) given: &'a Keep,
    /// The indices of the heads that are compared, for each batch row. If the cells of all heads are equal, only head 0
    /// is compared.
    pub(crate) heads: Vec<Vec<usize>>,
    /// The rows to compare as (batch row, query), in the order in which they are compared.
    pub(crate) order: Vec<(usize, usize)>,
    /// True if only some of the batch rows and heads are compared.
    pub(crate) part: bool,
    /// Token ids of the keys for each batch row; `None` if no token ids were given.
    pub(crate) ids: Option<&'a [Vec<i64>]>,
    /// The token id that ends a text; `None` if no such id was given.
    pub(crate) eos: Option<i64>,
    /// The token id of padding; `None` if no such id was given.
    pub(crate) pad: Option<i64>,
    /// True if the given mask has one row of keys for each batch row and no dimension of queries. Such a mask cannot
    /// have mistakes in causality or windows.
    pub(crate) keys_only: bool,
    /// The stored rows of keys, one for each batch row; `None` if the mask has a dimension of queries.
    pub(crate) plane: Option<&'a Keep>,
}

/// Returns true if every cell is allowed.
pub(crate) fn is_full(keep: &Keep) -> bool {
    keep.count() == keep.dims().iter().map(|n| *n as u64).product::<u64>()
}

/// Writes the row of (batch row, head, query) of a mask, one bit for each key.
pub(crate) type Rows<'a> = &'a dyn Fn(usize, usize, usize, &mut [u64]);

/// A mistake as (class in the catalogue, description).
pub(crate) type Mistake = (&'static str, String);

impl<'a> Target<'a> {
    pub(crate) fn new(given: &'a Keep) -> Self {
        let [batch, heads, q_len, _] = given.dims();
        let mut order = Vec::with_capacity(batch * q_len);
        let telling = [q_len - 1, 0, q_len / 2, 1.min(q_len - 1), q_len / 3, q_len * 2 / 3, q_len * 3 / 4];
        for i in telling {
            order.extend((0..batch).map(|b| (b, i)));
        }
        for i in (0..q_len).filter(|i| !telling.contains(i)) {
            order.extend((0..batch).map(|b| (b, i)));
        }
        let heads = if given.heads_equal() { 1 } else { heads };
        Target {
            given,
            heads: vec![(0..heads).collect(); batch],
            order,
            part: false,
            ids: None,
            eos: None,
            pad: None,
            keys_only: false,
            plane: None,
        }
    }

    /// Returns whether the given cells equal the cells of the mask `wrong` after the mistake `post` in the finished
    /// array, such as a transposition. Only rows of queries that are non-padding in `right` are compared.
    pub(crate) fn same(&self, right: &Intent, wrong: &Intent, post: Post) -> bool {
        self.same_rows(right, wrong, post, |b, i| right.cares(b, i))
    }

    /// Returns the number to subtract from the cost of the explanation that the given mask is `wrong` after the mistake
    /// `post` in the finished array. The number is 0.12 if the explanation also fits the rows of padding queries,
    /// otherwise 0. The intended mask `right` defines which queries are padding.
    pub(crate) fn bonus(&self, right: &Intent, wrong: &Intent, post: Post) -> f64 {
        match right.q_valid.is_some() && self.same_rows(right, wrong, post, |b, i| !right.cares(b, i)) {
            true => 0.12,
            false => 0.0,
        }
    }

    /// Returns whether the given array equals the array of the mask `wrong` after the mistake `post` in the finished
    /// array. Only rows for which `looks(batch row, query)` is true are compared. `Post::Transpose` ignores `looks` and
    /// compares the rows of queries that are non-padding in `right`.
    pub(crate) fn same_rows(
        &self,
        right: &Intent,
        wrong: &Intent,
        post: Post,
        looks: impl Fn(usize, usize) -> bool,
    ) -> bool {
        if post == Post::Transpose {
            return self.same_transposed(right, wrong);
        }
        self.same_as(right, &|b, _, i, words| wrong.fill(b, i, words), post, looks)
    }

    /// Returns whether the given array equals the array of the mask with the rows `wrong` after the mistake `post`, which is no
    /// transposition. Only rows for which `looks(batch row, query)` is true are compared.
    pub(crate) fn same_as(
        &self,
        right: &Intent,
        wrong: Rows<'_>,
        post: Post,
        looks: impl Fn(usize, usize) -> bool,
    ) -> bool {
        let mut words = vec![0; right.words()];
        let tail = tail_mask(right.kv_len);
        let mut is = |b: usize, h: usize, i: usize| {
            match post {
                // If query `i` of row 0 is padding, its cells do not matter, so the given row is copied.
                Post::RowZero if b > 0 && !right.cares(0, i) => words.copy_from_slice(self.given.row(0, 0, i)),
                Post::RowZero => wrong(0, h, i, &mut words),
                _ => wrong(b, h, i, &mut words),
            }
            match post {
                Post::Complement => {
                    words.iter_mut().for_each(|w| *w = !*w);
                    if let Some(last) = words.last_mut() {
                        *last &= tail;
                    }
                }
                Post::Roll(n) => words = rolled(&words, right.kv_len, n),
                _ => {}
            }
            self.given.row(b, h, i) == words
        };
        self.order.iter().filter(|&&(b, i)| looks(b, i)).all(|&(b, i)| self.heads[b].iter().all(|&h| is(b, h, i)))
    }

    /// Returns whether the given cells are those of `wrong` with queries and keys exchanged. Columns that were rows of padding queries
    /// are not compared. Returns false if `right` without these columns equals the given cells, so that nothing is exchanged.
    fn same_transposed(&self, right: &Intent, wrong: &Intent) -> bool {
        if wrong.q_len != wrong.kv_len {
            return false;
        }
        let turned = wrong.build().transposed();
        let real: Vec<Vec<u64>> = (0..right.batch).map(|b| bits(right.kv_len, |k| right.cares(b, k))).collect();
        let (mut words, mut turns) = (vec![0; right.words()], false);
        let mut is = |b: usize, i: usize| {
            right.fill(b, i, &mut words);
            let differs = |given: &[u64], other: &[u64]| {
                given.iter().zip(other).zip(&real[b]).any(|((given, other), real)| (given ^ other) & real != 0)
            };
            self.heads[b].iter().all(|&h| {
                let given = self.given.row(b, h, i);
                turns |= differs(given, &words);
                !differs(given, turned.row(b, 0, i))
            })
        };
        self.order.iter().filter(|&&(b, i)| right.cares(b, i)).all(|&(b, i)| is(b, i)) && turns
    }

    /// Returns the cells that differ from `right` in rows of non-padding queries.
    pub(crate) fn wrong(&self, right: &Intent) -> Wrong {
        let of = |[b, h, i]: [usize; 3], row: &mut [u64]| {
            right.fill(b, i, row);
            row.iter_mut().zip(self.given.row(b, h, i)).for_each(|(word, given)| *word ^= given);
        };
        Wrong::of(self.given.dims(), &|b, i| right.cares(b, i), of)
    }

    /// Returns `wrong` with the documents that the given mask shows: queries with the same first visible key belong to
    /// one document. `None` if a query that is non-padding in `right` reads no key, or if no key belongs to the token
    /// of such a query.
    pub(crate) fn documents(&self, right: &Intent, wrong: &Intent) -> Option<Intent> {
        let mut ids = vec![vec![-1i64; wrong.kv_len]; wrong.batch];
        for &(b, i) in self.order.iter().filter(|&&(b, i)| right.cares(b, i)) {
            let slot = usize::try_from(wrong.slot(b, i)).ok().filter(|s| *s < wrong.kv_len)?;
            ids[b][slot] = ends(self.given.row(b, self.heads[b][0], i))?.0 as i64 + 1;
        }
        for list in &mut ids {
            // A key without a query belongs to the document of the next key if that document begins at or before the key.
            for k in (0..list.len().saturating_sub(1)).rev().filter(|_| wrong.q_len < wrong.kv_len) {
                if list[k] == -1 && list[k + 1] > 0 && list[k + 1] <= k as i64 + 1 {
                    list[k] = list[k + 1];
                }
            }
        }
        Some(Intent { segments: Some(Rc::new(ids)), ..wrong.clone() })
    }

    /// Returns true if the given mask equals `intent` in all compared rows of non-padding queries.
    pub(crate) fn is(&self, intent: &Intent) -> bool {
        self.same(intent, intent, Post::None)
    }

    /// Returns `intent` with the documents that the given mask shows. `None` if `intent` with these documents differs
    /// from the given mask in the row of a non-padding query.
    pub(crate) fn is_with_some_documents(&self, intent: &Intent) -> Option<Intent> {
        let found = self.documents(intent, intent)?;
        self.same(intent, &found, Post::None).then_some(found)
    }

    /// Returns true if the given mask equals `intent` with documents, and a batch row has several documents of two tokens or more.
    pub(crate) fn is_packed(&self, intent: &Intent) -> bool {
        let found = self.is_with_some_documents(intent).filter(|_| intent.segments.is_none());
        let several =
            |ids: &Vec<i64>| ids.chunk_by(|a, b| a == b).filter(|run| run.len() > 1 && run[0] > 0).count() > 1;
        found.and_then(|found| found.segments).is_some_and(|rows| rows.iter().any(several))
    }
}

fn tail_mask(len: usize) -> u64 {
    match len % 64 {
        0 => u64::MAX,
        n => u64::MAX >> (64 - n),
    }
}

/// Returns `row` (one bit for each of `len` keys) rotated by `by` keys: key `k` moves to key `(k + by) % len`.
fn rolled(row: &[u64], len: usize, by: usize) -> Vec<u64> {
    let mut out = vec![0; row.len()];
    (0..len).filter(|&k| bit(row, k)).for_each(|k| set_bit(&mut out, (k + by) % len));
    out
}
