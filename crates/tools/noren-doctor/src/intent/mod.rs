//! [`Intent`]: an intended mask as separate terms. An edit (a known mistake) drops or changes one term.

pub(crate) mod edits;
pub(crate) mod families;
pub(crate) mod held;
pub(crate) mod known;
pub(crate) mod leaks;
pub(crate) mod terms;

use noren_mask::{BoundMask, Keep, bits};
use std::cell::OnceCell;
use std::rc::Rc;

/// One list for each batch row, or a single list for all batch rows.
pub(crate) type PerRow<T> = Rc<Vec<Vec<T>>>;

/// Returns the list of batch row `b`. `rows` holds one list for all batch rows, or one list per batch row.
pub(crate) fn row<T>(rows: &[Vec<T>], b: usize) -> &[T] {
    rows.get(if rows.len() == 1 { 0 } else { b }).map_or(&[], Vec::as_slice)
}

/// Returns the entry of `numbers` for batch row `b`. `numbers` holds one number for all batch rows, or one number per
/// batch row.
pub(crate) fn number(numbers: &[i64], b: usize) -> i64 {
    numbers.get(if numbers.len() == 1 { 0 } else { b }).copied().unwrap_or(0)
}

/// Hidden keys, with the batch rows and queries from which the keys are hidden.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Hidden {
    /// Batch rows in which the keys are hidden; an empty list means all batch rows.
    pub(crate) batch: Vec<usize>,
    /// One bit for each key, 1 for a hidden key.
    pub(crate) keys: Vec<u64>,
    /// Queries from which the keys are hidden; an empty list means all queries.
    pub(crate) queries: Vec<usize>,
}

impl Hidden {
    /// Returns true if these keys are hidden in batch row `b`.
    pub(crate) fn concerns(&self, b: usize) -> bool {
        self.batch.is_empty() || self.batch.contains(&b)
    }
}

/// A cache of the bound masks of an [`Intent`], one for each batch row. The mask of a batch row is bound when the row
/// is first read. A clone of the cache is empty, because an [`Intent`] is cloned to change its terms.
#[derive(Default, Debug)]
pub(crate) struct Bound(pub(crate) OnceCell<Vec<OnceCell<BoundMask>>>);

impl Clone for Bound {
    fn clone(&self) -> Self {
        Bound::default()
    }
}

/// The terms of an intended mask. A cell is allowed if two conditions hold. First, the prefix or a block allows the
/// cell, or the base (causality, window, chunk, tree, first keys) and the documents both allow it. Second, the key of
/// the cell is neither padding nor redacted.
#[derive(Clone, Default, Debug)]
pub(crate) struct Intent {
    pub(crate) batch: usize,
    pub(crate) q_len: usize,
    pub(crate) kv_len: usize,
    /// Position of query 0 per batch row; query `i` has this position plus `i`.
    pub(crate) past: Rc<Vec<i64>>,
    /// Positions of the queries; `None` if the positions follow from `past`.
    pub(crate) q_positions: Option<PerRow<i64>>,
    /// Positions of the keys; `None` if the position of each key is its index. A key with a negative position is an
    /// empty slot of a cache.
    pub(crate) k_positions: Option<PerRow<i64>>,
    /// The causal offset `n` of `k <= q + n`; `None` if the mask is not causal.
    pub(crate) causal: Option<i64>,
    /// The maximum distance of a key before the query in the window: `q - left <= k`; `None` without a limit.
    pub(crate) left: Option<i64>,
    /// The maximum distance of a key after the query in the window: `k <= q + right`; `None` without a limit.
    pub(crate) right: Option<i64>,
    /// Two values: the length of a chunk in tokens, and, for each batch row, the index of the key at which the first
    /// chunk begins. `None` if the mask has no chunks.
    pub(crate) chunk: Option<(i64, Rc<Vec<i64>>)>,
    /// Number of first non-padding keys that every query reads; in a causal mask, a query does not read those of these
    /// keys that are after its own position.
    pub(crate) sinks: usize,
    /// Document number of each key; 0 for a key outside of all documents. A query belongs to the document of its own
    /// key. `None` if the mask has no documents.
    pub(crate) segments: Option<PerRow<i64>>,
    /// The prefix length `n` per batch row: every query reads keys `0..n`. `None` if the mask has no prefix.
    pub(crate) prefix: Option<Rc<Vec<i64>>>,
    /// The number of the block of each key (tokens of a block read each other); -1 for a key outside of all blocks.
    /// `None` if the mask has no blocks.
    pub(crate) blocks: Option<PerRow<i64>>,
    /// One bit for each key, 1 for a non-padding key; `None` if no key is padding.
    pub(crate) valid: Option<PerRow<u64>>,
    /// Whether each query is a non-padding token; `None` if no query is padding.
    pub(crate) q_valid: Option<PerRow<bool>>,
    /// The parent of each node of a tree of drafts; -1 for a root. The nodes are the last queries and the last keys.
    /// `None` if the mask has no tree.
    pub(crate) tree: Option<Rc<Vec<i64>>>,
    /// The redactions: keys that are hidden from all queries, or only from the queries that the redaction lists.
    pub(crate) redactions: Rc<Vec<Hidden>>,
    /// True if the mask has this mistake: padding is hidden first, and the prefix or the blocks, which are added
    /// afterwards, make padding visible again.
    pub(crate) padding_first: bool,
    /// True if the mask has this mistake: only queries inside the prefix read the prefix.
    pub(crate) prefix_within: bool,
    /// True if the mask has this mistake: the window also hides keys of prefixes and blocks.
    pub(crate) window_last: bool,
    /// True if the mask has this mistake: the rows of padding queries are hidden instead of the padding keys.
    pub(crate) padding_on_queries: bool,
    /// If the mask has the mistake that every query reads all later keys from a distance, whatever other terms hide, this distance;
    /// otherwise `None`.
    pub(crate) future: Option<i64>,
    /// If the mask has the mistake that every query reads the last keys, the index of the first of these keys;
    /// otherwise `None`.
    pub(crate) tail: Option<usize>,
    /// Two values: true if the documents, and true if padding, are combined with the other terms by "or" instead of "and" by mistake.
    pub(crate) either: (bool, bool),
    pub(crate) bound: Bound,
}

impl Intent {
    pub(crate) fn new(batch: usize, q_len: usize, kv_len: usize, past: Vec<i64>) -> Self {
        Intent { batch, q_len, kv_len, past: Rc::new(past), ..Intent::default() }
    }

    /// Returns the number of 64-bit words that hold one mask row, with one bit for each key.
    pub(crate) fn words(&self) -> usize {
        self.kv_len.div_ceil(64)
    }

    /// Returns true if at least one batch row has a query offset other than 0, as with cached keys.
    pub(crate) fn has_past(&self) -> bool {
        self.past.iter().any(|past| *past != 0)
    }

    /// Returns the index of the key that belongs to the same token as query `i` of batch row `b`.
    pub(crate) fn slot(&self, b: usize, i: usize) -> i64 {
        number(&self.past, b) + i as i64
    }

    /// Returns the position of query `i` of batch row `b`.
    pub(crate) fn position(&self, b: usize, i: usize) -> i64 {
        match &self.q_positions {
            Some(rows) => row(rows, b).get(i).copied().unwrap_or(i as i64),
            None => self.slot(b, i),
        }
    }

    /// Returns this mask with the non-padding keys `valid`, one row of bits for each batch row. In self-attention without cached keys
    /// they are also the non-padding queries.
    pub(crate) fn padded(self, valid: &PerRow<u64>) -> Intent {
        let queries = |row: &Vec<u64>| (0..self.kv_len).map(|k| bits::bit(row, k)).collect();
        let q_valid = (self.q_len == self.kv_len).then(|| Rc::new(valid.iter().map(queries).collect()));
        Intent { valid: Some(valid.clone()), q_valid: q_valid.or_else(|| self.q_valid.clone()), ..self }
    }

    /// Returns `given` without the cells that this mask forbids. If `whole` is false, the rows of padding queries stay unchanged.
    pub(crate) fn cut(&self, given: &Keep, whole: bool) -> Keep {
        let mut out = given.clone();
        let [batch, heads, q_len, _] = given.dims();
        let mut words = vec![0; self.words()];
        for b in 0..batch {
            for i in (0..q_len).filter(|&i| whole || self.cares(b, i)) {
                self.fill(b, i, &mut words);
                for h in 0..heads {
                    out.row_mut(b, h, i).iter_mut().zip(&words).for_each(|(o, w)| *o &= w);
                }
            }
        }
        out
    }

    /// Returns true if `other` has the same cells in the rows of non-padding queries.
    pub(crate) fn same_cells(&self, other: &Intent) -> bool {
        let (mut own, mut others) = (vec![0; self.words()], vec![0; self.words()]);
        let rows = (0..self.batch).flat_map(|b| (0..self.q_len).map(move |i| (b, i)));
        rows.filter(|&(b, i)| self.cares(b, i)).all(|(b, i)| {
            self.fill(b, i, &mut own);
            other.fill(b, i, &mut others);
            own == others
        })
    }

    /// Returns true if query `i` of batch row `b` is a non-padding token. Rows of padding queries are not compared.
    pub(crate) fn cares(&self, b: usize, i: usize) -> bool {
        self.q_valid.as_ref().is_none_or(|rows| row(rows, b).get(i).copied().unwrap_or(true))
    }

    /// Returns the index of the first non-padding key of batch row `b`.
    pub(crate) fn first_real(&self, b: usize) -> usize {
        self.valid.as_ref().and_then(|rows| bits::ends(row(rows, b))).map_or(0, |ends| ends.0)
    }
}
