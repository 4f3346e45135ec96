//! Converts an [`Intent`] to a mask expression, and to rows of bits.

use crate::intent::known::bits;
use crate::intent::{Hidden, Intent, number, row};
use noren_mask::atom::{AtomRef, Pair};
use noren_mask::atoms::{causal, chunk, full, keys, prefix, queries, spans, tree, window};
use noren_mask::bits::{bit, runs};
use noren_mask::interval::Interval;
use noren_mask::{BoundMask, Cell, Facts, Keep, Mask, Shape, Span};
use std::cell::OnceCell;
use std::collections::HashMap;

/// The maximum position. Larger positions are replaced by this position, so that the sum of a position and an offset
/// fits in 64 bits.
const FAR: i64 = 1 << 60;

/// The maximum number of spans (ranges of keys) in one term of an expression. A term with more spans becomes a function
/// that decides each cell, because the text of an expression has a limited length.
const MOST_SPANS: usize = 1 << 12;

/// The maximum number of redactions that are separate terms of an expression. If there are more redactions, one
/// function decides for each cell whether a redaction hides it.
const MOST_REDACTIONS: usize = 16;

impl Intent {
    /// Writes to `out` one bit for each key: 1 if query `i` of batch row `b` should read the key.
    pub(crate) fn fill(&self, b: usize, i: usize, out: &mut [u64]) {
        let rows = self.bound.0.get_or_init(|| vec![OnceCell::new(); self.batch]);
        let bound = rows[b].get_or_init(|| self.bind(b));
        bound.fill_bits(0, i as u32..i as u32 + 1, Interval::new(0, self.kv_len as u32), out);
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

    fn bind(&self, b: usize) -> BoundMask {
        let shape = Shape::new(self.q_len, self.kv_len, self.slot(b, 0));
        self.mask(b)
            .bind(&shape, &Facts::new())
            .expect("the expression of an intended mask binds to the numbers of queries and keys of this mask")
    }

    /// Returns the mask of batch row `b`. In this mask, the position of a key is its index.
    fn mask(&self, b: usize) -> Mask {
        let real = self.valid.as_ref().map(|rows| self.keys(row(rows, b)));
        let mut mask = self.base(b);
        if self.sinks > 0 {
            let first = self.first_real(b);
            let order = if self.causal.is_some() { self.by_slot(causal(), b) } else { full() };
            mask |= keys(first..first + self.sinks) & order;
        }
        if let Some(ids) = &self.segments {
            let own = self.together(row(ids, b), b, |id| id != 0);
            mask = if self.either.0 { mask | own } else { mask & own };
        }
        if let Some(real) = real.as_ref().filter(|_| self.padding_first) {
            mask &= real;
        }
        if let Some(lengths) = &self.prefix {
            let n = number(lengths, b).max(0) as usize;
            mask |= if self.prefix_within { prefix(n) - queries(n..) } else { prefix(n) };
        }
        if let Some(ids) = &self.blocks {
            mask |= self.together(row(ids, b), b, |id| id >= 0);
        }
        if let Some(left) = self.left.filter(|_| self.window_last) {
            mask &= self.by_slot(window(left, None), b);
        }
        if let Some(real) = real.filter(|_| !self.padding_first && !self.padding_on_queries) {
            mask = if self.either.1 { mask | real } else { mask & real };
        }
        mask = self.redacted(b, mask);
        if let Some(distance) = self.future {
            mask |= window(-distance, None);
        }
        if let Some(from) = self.tail {
            mask |= keys(from..);
        }
        if self.padding_on_queries {
            mask -= self.queries(b, |i| !self.cares(b, i));
        }
        mask
    }

    /// Returns the mask of batch row `b` with only the terms causality, window, chunk and tree.
    fn base(&self, b: usize) -> Mask {
        if let Some(parents) = &self.tree {
            return self.drafts(parents, b);
        }
        let band = match (self.left, self.causal.into_iter().chain(self.right).min()) {
            (None, None) => full(),
            (left, right) => window(left, right),
        };
        let by_slot = self.q_positions.is_none() && self.k_positions.is_none();
        let at_positions = |term: &Mask, origin: i64| {
            let from = |position: i64| position.saturating_sub(origin);
            let of_keys: Vec<i64> = match &self.k_positions {
                Some(rows) => row(rows, b).iter().map(|&position| from(position)).collect(),
                None => (0..self.kv_len as i64).map(from).collect(),
            };
            self.placed(b, term, (0..self.q_len).map(|i| from(self.position(b, i))).collect(), Some(of_keys))
        };
        let band = if by_slot { band } else { at_positions(&band, 0) };
        let Some((size, origins)) = &self.chunk else { return band };
        let origin = number(origins, b).rem_euclid(*size);
        band & match (by_slot, origin) {
            (true, 0) => chunk(*size as usize),
            (true, _) if self.kv_len / *size as usize <= MOST_SPANS => {
                let starts = (origin - size..self.kv_len as i64).step_by(*size as usize);
                spans(starts.map(|start| start.max(0) as usize..(start + size) as usize))
            }
            // Counted from one chunk earlier, so that no position becomes negative.
            _ => at_positions(&chunk(*size as usize), origin - size),
        }
    }

    /// Returns `mask` without the cells that the redactions of batch row `b` hide.
    fn redacted(&self, b: usize, mut mask: Mask) -> Mask {
        let hidden: Vec<&Hidden> = self.redactions.iter().filter(|hidden| hidden.concerns(b)).collect();
        if hidden.len() > MOST_REDACTIONS {
            let mut unread: Vec<Vec<u64>> = vec![vec![0; self.words()]; self.q_len];
            for (i, keys) in unread.iter_mut().enumerate() {
                let of_query = hidden.iter().filter(|h| h.queries.is_empty() || h.queries.contains(&i));
                of_query.for_each(|h| keys.iter_mut().zip(&h.keys).for_each(|(key, hidden)| *key |= hidden));
            }
            return mask - self.cells(b, move |q, k| bit(&unread[q], k));
        }
        for hidden in hidden {
            let readers =
                if hidden.queries.is_empty() { full() } else { self.queries(b, |i| hidden.queries.contains(&i)) };
            mask -= self.keys(&hidden.keys) & readers;
        }
        mask
    }

    /// Returns the mask of a tree of draft tokens: a draft reads itself, its ancestors in the tree, and all keys before
    /// the tree. The queries before the tree have a causal mask.
    fn drafts(&self, parents: &[i64], b: usize) -> Mask {
        let start = self.kv_len - parents.len();
        let first = self.kv_len as i64 - self.q_len as i64;
        let last: Vec<i64> = (first..self.kv_len as i64).collect();
        let aligned =
            |term: Mask| if self.slot(b, 0) == first { term } else { self.placed(b, &term, last.clone(), None) };
        let nodes = aligned(queries(start..));
        aligned(tree(parents, start)) | keys(..start) & nodes.clone() | (causal() - nodes)
    }

    /// Returns `term` evaluated with the declared positions of the queries of batch row `b`. The position of each key
    /// is its index.
    fn by_slot(&self, term: Mask, b: usize) -> Mask {
        match &self.q_positions {
            Some(_) => self.placed(b, &term, (0..self.q_len).map(|i| self.position(b, i)).collect(), None),
            None => term,
        }
    }

    /// Returns the mask that allows all cells of the queries for which `test(query)` is true, and no other cells.
    fn queries(&self, b: usize, test: impl Fn(usize) -> bool) -> Mask {
        let words = bits(self.q_len, test);
        // A position of a span is not negative, but the slot of a query can be.
        match moved_spans(&words, self.q_len, self.slot(b, 0)).filter(|_| self.slot(b, 0) >= 0) {
            Some(spans) => queries(spans),
            None => self.cells(b, move |q, _| bit(&words, q)),
        }
    }

    /// Returns the mask that allows all cells of the selected keys. `words` has one bit for each key, which is 1 for a
    /// selected key.
    fn keys(&self, words: &[u64]) -> Mask {
        match moved_spans(words, self.kv_len, 0) {
            Some(spans) => keys(spans),
            None => {
                let words = words.to_vec();
                Mask::from_fn(move |cell| bit(&words, cell.key as usize))
            }
        }
    }

    /// Returns the mask in which a query of batch row `b` reads the keys of its group (a document or a block). `ids`
    /// has the group number of each key; a query belongs to the same group as the key of its token. `counts(number)`
    /// returns false for numbers that mean "no group".
    fn together(&self, ids: &[i64], b: usize, counts: impl Fn(i64) -> bool) -> Mask {
        let mut groups: HashMap<i64, i64> = HashMap::new();
        let (mut found, mut start) = (Vec::new(), 0);
        for run in ids.chunk_by(|a, b| a == b) {
            let end = start + run.len();
            if counts(run[0]) {
                let next = groups.len() as i64;
                groups.entry(run[0]).or_insert(next);
                found.push(start..end);
            }
            start = end;
        }
        if found.len() == groups.len() && found.len() <= MOST_SPANS {
            return spans(found);
        }
        // Groups that interleave are compared by number: two keys of a group are 0 apart.
        let places: Vec<i64> = ids.iter().map(|id| groups.get(id).copied().unwrap_or(-1)).collect();
        let own = |i: usize| usize::try_from(self.slot(b, i)).ok().and_then(|slot| places.get(slot).copied());
        self.placed(b, &window(0, 0), (0..self.q_len).map(|i| own(i).unwrap_or(-1)).collect(), Some(places.clone()))
    }

    /// Returns the mask of the cells of batch row `b` that `allowed(query row, key)` allows.
    fn cells(&self, b: usize, allowed: impl Fn(usize, usize) -> bool + Send + Sync + 'static) -> Mask {
        let first = self.slot(b, 0);
        Mask::from_fn(move |Cell { query, key, .. }| allowed((query - first) as usize, key as usize))
    }

    /// Returns a mask of batch row `b` that evaluates `term`, an intersection of elementary masks (atoms), at other
    /// positions. Query `i` gets the position `of_queries[i]`, and key `k` the position `of_keys[k]`; if `of_keys` is
    /// `None`, key `k` keeps the position `k`. No query reads a key at a negative position, because such a key is an
    /// empty slot of a cache.
    fn placed(&self, b: usize, term: &Mask, of_queries: Vec<i64>, of_keys: Option<Vec<i64>>) -> Mask {
        let atoms: Vec<AtomRef> = term.atoms().into_iter().cloned().collect();
        self.cells(b, move |q, k| {
            let k = of_keys.as_ref().map_or(k as i64, |positions| positions[k]);
            let pair = Pair::at(of_queries[q].clamp(-FAR, FAR), k.min(FAR));
            k >= 0 && atoms.iter().all(|atom| atom.allows(&pair))
        })
    }
}

/// Returns the indices of the bits that are 1 in the first `len` bits of `words`, as ranges of consecutive indices.
/// `shift` is added to the start and the end of each range. `None` if there are more than `MOST_SPANS` ranges.
fn moved_spans(words: &[u64], len: usize, shift: i64) -> Option<Vec<Span>> {
    let mut out = Vec::new();
    let place = |at: u32| (i64::from(at) + shift).max(0) as usize;
    runs(words, 0, len as u32, |start, end| out.push(Span::from(place(start)..place(end))));
    (out.len() <= MOST_SPANS).then_some(out)
}
