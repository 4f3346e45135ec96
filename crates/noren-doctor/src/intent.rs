//! [`Intent`]: an intended mask as separate terms. An edit (a known mistake) drops or changes one term.

use noren_mask::Keep;
use noren_mask::bits::{self, bit, set_bit, set_range};
use std::collections::HashMap;
use std::rc::Rc;

/// One list for each batch row, or a single list for all batch rows.
pub(crate) type PerRow<T> = Rc<Vec<Vec<T>>>;

/// Returns the list of batch row `b`. `rows` holds one list for all batch rows, or one list per batch row.
pub(crate) fn row<T>(rows: &[Vec<T>], b: usize) -> &[T] {
    rows.get(if rows.len() == 1 { 0 } else { b }).map_or(&[], Vec::as_slice)
}

/// Returns the number of batch row `b`. `numbers` holds one number for all batch rows, or one number per batch row.
pub(crate) fn number(numbers: &[i64], b: usize) -> i64 {
    numbers.get(if numbers.len() == 1 { 0 } else { b }).copied().unwrap_or(0)
}

/// Hidden keys, with the batch rows and queries from which the keys are hidden.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Hidden {
    /// Batch rows in which the keys are hidden; an empty list means all batch rows.
    pub(crate) batch: Vec<usize>,
    /// The keys as bits; 1 means hidden.
    pub(crate) keys: Vec<u64>,
    /// Queries from which the keys are hidden; an empty list means all queries.
    pub(crate) queries: Vec<usize>,
}

impl Hidden {
    fn concerns(&self, b: usize, i: usize) -> bool {
        (self.batch.is_empty() || self.batch.contains(&b)) && (self.queries.is_empty() || self.queries.contains(&i))
    }
}

/// The terms of an intended mask. A cell is allowed if two conditions hold. First, the base (causality, window, chunk,
/// tree, first keys) and the documents allow the cell, or the prefix or a block allows the cell. Second, the key of the
/// cell is neither padding nor redacted.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    pub(crate) batch: usize,
    pub(crate) q_len: usize,
    pub(crate) kv_len: usize,
    /// Position of query 0 per batch row; query `i` has this position plus `i`.
    pub(crate) past: Rc<Vec<i64>>,
    /// Positions of the queries; `None` if the positions follow from `past`.
    pub(crate) q_positions: Option<PerRow<i64>>,
    /// Positions of the keys; `None` if the position of each key is its slot. A negative position marks an empty slot.
    pub(crate) k_positions: Option<PerRow<i64>>,
    /// The causal offset `n` of `k <= q + n`.
    pub(crate) causal: Option<i64>,
    /// The maximum distance of a key before the query in the window: `q - left <= k`.
    pub(crate) left: Option<i64>,
    /// The maximum distance of a key after the query in the window: `k <= q + right`.
    pub(crate) right: Option<i64>,
    /// Two values: the length of a chunk in tokens, and the slot of the first chunk for each batch row.
    pub(crate) chunk: Option<(i64, Rc<Vec<i64>>)>,
    /// Number of first non-padding keys that every query reads; in a causal mask, every query reads those up to its own
    /// position.
    pub(crate) sinks: usize,
    /// Document number of each key; 0 for a key outside of all documents. A query belongs to the document of the key in
    /// the query's slot. `None` if the mask has no documents.
    pub(crate) segments: Option<Rc<Groups>>,
    /// The prefix length `n` per batch row: every query reads keys `0..n`.
    pub(crate) prefix: Option<Rc<Vec<i64>>>,
    /// Block number of each key; -1 for a key outside of all blocks.
    pub(crate) blocks: Option<Rc<Groups>>,
    /// Non-padding keys as bits; `None` if no key is padding.
    pub(crate) valid: Option<PerRow<u64>>,
    /// Whether each query is a non-padding token; `None` if no query is padding.
    pub(crate) q_valid: Option<PerRow<bool>>,
    /// For each node of a tree of drafts, the nodes that the node reads, as bits. The nodes are the last queries and
    /// the last keys.
    pub(crate) tree: Option<Rc<Vec<Vec<u64>>>>,
    /// The redactions: keys hidden from all queries or from some of them.
    pub(crate) redactions: Rc<Vec<Hidden>>,
    /// A mistake if true: padding is hidden before the prefix or block is added, so the prefix or block makes padding
    /// visible again.
    pub(crate) padding_first: bool,
    /// A mistake if true: only queries inside the prefix read the prefix.
    pub(crate) prefix_within: bool,
    /// A mistake if true: the window also hides keys of prefixes and blocks.
    pub(crate) window_last: bool,
    /// A mistake if true: padding hides whole query rows instead of keys.
    pub(crate) padding_on_queries: bool,
    /// A mistake if true: keys after the query are visible regardless of other terms.
    pub(crate) future: bool,
    /// With a value, a mistake: every query reads all keys from this slot to the end. `None` for no such mistake.
    pub(crate) tail: Option<usize>,
}

impl Intent {
    pub(crate) fn new(batch: usize, q_len: usize, kv_len: usize, past: Vec<i64>) -> Self {
        Intent {
            batch,
            q_len,
            kv_len,
            past: Rc::new(past),
            q_positions: None,
            k_positions: None,
            causal: None,
            left: None,
            right: None,
            chunk: None,
            sinks: 0,
            segments: None,
            prefix: None,
            blocks: None,
            valid: None,
            q_valid: None,
            tree: None,
            redactions: Rc::new(Vec::new()),
            padding_first: false,
            prefix_within: false,
            window_last: false,
            padding_on_queries: false,
            future: false,
            tail: None,
        }
    }

    /// Returns the number of 64-bit words in a row.
    pub(crate) fn words(&self) -> usize {
        self.kv_len.div_ceil(64)
    }

    /// Returns true if at least one batch row has a query offset other than 0, as with cached keys.
    pub(crate) fn has_past(&self) -> bool {
        self.past.iter().any(|past| *past != 0)
    }

    /// Returns the slot of query `i` of batch row `b` among the keys.
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

    /// Returns whether query `i` of batch row `b` is a non-padding token. Rows of padding queries are not compared.
    pub(crate) fn cares(&self, b: usize, i: usize) -> bool {
        self.q_valid.as_ref().is_none_or(|rows| row(rows, b).get(i).copied().unwrap_or(true))
    }

    /// Writes the keys that query `i` of batch row `b` should read to `out`, as bits.
    pub(crate) fn fill(&self, b: usize, i: usize, out: &mut [u64]) {
        out.fill(0);
        let q = self.position(b, i);
        if self.padding_on_queries && !self.cares(b, i) {
            return;
        }
        self.base(b, i, q, out);
        if self.sinks > 0 {
            let first = self.first_real(b);
            let end = (first + self.sinks).min(self.kv_len);
            let end = if self.causal.is_some() { end.min((q + 1).max(0) as usize) } else { end };
            set_range(out, first, end);
        }
        if let Some(groups) = &self.segments {
            match groups.of(b, self.slot(b, i)).filter(|(id, _)| *id != 0) {
                Some((_, members)) => members.cut(out),
                None => out.fill(0),
            }
        }
        if self.padding_first {
            self.hide_padding(b, out);
        }
        if let Some(lengths) = &self.prefix
            && (!self.prefix_within || self.slot(b, i) < number(lengths, b))
        {
            set_range(out, 0, number(lengths, b).clamp(0, self.kv_len as i64) as usize);
        }
        if let Some((_, members)) =
            self.blocks.as_ref().and_then(|g| g.of(b, self.slot(b, i))).filter(|(id, _)| *id >= 0)
        {
            members.add(out);
        }
        if let Some(left) = self.left.filter(|_| self.window_last) {
            let first = q.saturating_sub(left).clamp(0, self.kv_len as i64) as usize;
            let mut window = vec![0; out.len()];
            set_range(&mut window, first, self.kv_len);
            out.iter_mut().zip(&window).for_each(|(o, w)| *o &= w);
        }
        if !self.padding_first && !self.padding_on_queries {
            self.hide_padding(b, out);
        }
        for hidden in self.redactions.iter().filter(|hidden| hidden.concerns(b, i)) {
            out.iter_mut().zip(&hidden.keys).for_each(|(o, h)| *o &= !h);
        }
        if self.future {
            set_range(out, (self.slot(b, i) + 1).clamp(0, self.kv_len as i64) as usize, self.kv_len);
        }
        if let Some(from) = self.tail {
            set_range(out, from, self.kv_len);
        }
    }

    /// Sets the bits of the keys that causality, window, chunk and tree allow for query `i` of batch row `b`. `q` is
    /// the position of the query.
    fn base(&self, b: usize, i: usize, q: i64, out: &mut [u64]) {
        if let Some(tree) = &self.tree {
            return self.tree_row(tree, b, i, out);
        }
        let upper = |offset: Option<i64>| offset.map_or(i64::MAX, |o| q.saturating_add(o));
        let last = upper(self.causal).min(upper(self.right));
        let mut first = self.left.map_or(i64::MIN, |l| q.saturating_sub(l));
        let mut last = last;
        if let Some((size, origins)) = &self.chunk {
            let origin = number(origins, b);
            let start = origin + (q - origin).div_euclid(*size) * size;
            first = first.max(start);
            last = last.min(start + size - 1);
        }
        match &self.k_positions {
            None => {
                let clamp = |x: i64| x.clamp(0, self.kv_len as i64) as usize;
                set_range(out, clamp(first), clamp(last.saturating_add(1)));
            }
            Some(rows) => {
                let positions = row(rows, b).iter().take(self.kv_len).enumerate();
                positions.filter(|&(_, &p)| p >= 0 && p >= first && p <= last).for_each(|(k, _)| set_bit(out, k));
            }
        }
    }

    /// Sets the bits of the keys that the tree allows for query `i` of batch row `b`: a node reads itself, its
    /// ancestors, and all keys before the tree. A query before the tree reads all keys up to its own.
    fn tree_row(&self, tree: &[Vec<u64>], b: usize, i: usize, out: &mut [u64]) {
        let nodes = tree.len();
        let start = self.kv_len.saturating_sub(nodes);
        let first_query = self.q_len.saturating_sub(nodes);
        if i < first_query {
            return set_range(out, 0, (self.slot(b, i) + 1).clamp(0, self.kv_len as i64) as usize);
        }
        set_range(out, 0, start);
        bits::ones(&tree[i - first_query]).for_each(|node| set_bit(out, start + node));
    }

    fn hide_padding(&self, b: usize, out: &mut [u64]) {
        if let Some(rows) = &self.valid {
            out.iter_mut().zip(row(rows, b)).for_each(|(o, v)| *o &= v);
        }
    }

    /// Returns the slot of the first non-padding key of batch row `b`.
    pub(crate) fn first_real(&self, b: usize) -> usize {
        self.valid.as_ref().and_then(|rows| bits::ends(row(rows, b))).map_or(0, |ends| ends.0)
    }

    /// Returns the allowed cells of all queries, `[batch, 1, q_len, kv_len]`.
    pub(crate) fn build(&self) -> Keep {
        let mut keep = Keep::empty([self.batch, 1, self.q_len, self.kv_len]);
        for b in 0..self.batch {
            for i in 0..self.q_len {
                self.fill(b, i, keep.row_mut(b, 0, i));
            }
        }
        keep
    }
}

/// Groups of keys (documents or blocks) for each batch row.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The group number of each key, per batch row.
    pub(crate) ids: Vec<Vec<i64>>,
    members: Vec<HashMap<i64, Members>>,
}

/// The keys of one group; nearly always consecutive.
#[derive(Debug)]
pub(crate) enum Members {
    /// Consecutive keys: the first key, and the end (exclusive).
    Run(usize, usize),
    /// Other keys, as bits.
    Bits(Vec<u64>),
}

impl Groups {
    pub(crate) fn new(ids: Vec<Vec<i64>>) -> Self {
        let members = ids.iter().map(|ids| Self::members(ids)).collect();
        Groups { ids, members }
    }

    fn members(ids: &[i64]) -> HashMap<i64, Members> {
        let mut out: HashMap<i64, Members> = HashMap::new();
        for (k, id) in ids.iter().enumerate() {
            let Some(known) = out.get_mut(id) else {
                out.insert(*id, Members::Run(k, k + 1));
                continue;
            };
            match known {
                Members::Run(_, end) if *end == k => *end = k + 1,
                Members::Run(start, end) => {
                    let mut bits = bits::row_of(ids.len(), *start, *end);
                    set_bit(&mut bits, k);
                    *known = Members::Bits(bits);
                }
                Members::Bits(bits) => set_bit(bits, k),
            }
        }
        out
    }

    /// Returns the group number of the key in slot `slot` of batch row `b`, and the keys of this group. Returns `None`
    /// if the slot holds no key.
    fn of(&self, b: usize, slot: i64) -> Option<(i64, &Members)> {
        let b = if self.ids.len() == 1 { 0 } else { b };
        let id = *self.ids.get(b)?.get(usize::try_from(slot).ok()?)?;
        Some((id, self.members[b].get(&id)?))
    }
}

impl Members {
    /// Clears all bits of keys outside of the group.
    fn cut(&self, out: &mut [u64]) {
        match self {
            Members::Bits(bits) => out.iter_mut().zip(bits).for_each(|(o, m)| *o &= m),
            Members::Run(start, end) => {
                let (first, last) = (start / 64, (end - 1) / 64);
                out[..first].fill(0);
                out[last + 1..].fill(0);
                out[first] &= u64::MAX << (start % 64);
                out[last] &= u64::MAX >> (63 - (end - 1) % 64);
            }
        }
    }

    /// Sets the bits of the group's keys.
    fn add(&self, out: &mut [u64]) {
        match self {
            Members::Bits(bits) => out.iter_mut().zip(bits).for_each(|(o, m)| *o |= m),
            Members::Run(start, end) => set_range(out, *start, *end),
        }
    }
}

/// Returns, for each node of a tree, a row of bits with the node and its ancestors. `parents` holds the parent of each
/// node; a root has -1. Returns `None` if a parent is not a node or the parents form a cycle.
pub(crate) fn tree_rows(parents: &[i64]) -> Option<Vec<Vec<u64>>> {
    let n = parents.len();
    let mut rows = vec![vec![0u64; n.div_ceil(64)]; n];
    for (node, row) in rows.iter_mut().enumerate() {
        let mut at = node;
        loop {
            if bit(row, at) {
                return None;
            }
            set_bit(row, at);
            match usize::try_from(parents[at]) {
                Ok(parent) if parent < n => at = parent,
                Ok(_) => return None,
                Err(_) => break,
            }
        }
    }
    Some(rows)
}
