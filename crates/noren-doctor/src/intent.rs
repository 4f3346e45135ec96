//! [`Intent`]: what a mask should be, as the terms it is made of, each of which an edit can drop or shift.

use noren_mask::Keep;
use noren_mask::bits::{self, bit, set_bit, set_range};
use std::collections::HashMap;
use std::rc::Rc;

/// One list for each batch row; a single list stands for all of them.
pub(crate) type PerRow<T> = Rc<Vec<Vec<T>>>;

/// The entry of batch row `b`.
pub(crate) fn row<T>(rows: &[Vec<T>], b: usize) -> &[T] {
    rows.get(if rows.len() == 1 { 0 } else { b }).map_or(&[], Vec::as_slice)
}

/// The number of batch row `b`, when `numbers` has one for all or one for each.
pub(crate) fn number(numbers: &[i64], b: usize) -> i64 {
    numbers.get(if numbers.len() == 1 { 0 } else { b }).copied().unwrap_or(0)
}

/// Keys as bits, and from which batch rows and queries they are hidden: all where a list is empty.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Hidden {
    pub(crate) batch: Vec<usize>,
    pub(crate) keys: Vec<u64>,
    pub(crate) queries: Vec<usize>,
}

impl Hidden {
    fn concerns(&self, b: usize, i: usize) -> bool {
        (self.batch.is_empty() || self.batch.contains(&b)) && (self.queries.is_empty() || self.queries.contains(&i))
    }
}

/// The terms of an intended mask. A cell is allowed when the base (causality, window, chunk, tree) and the documents allow
/// it, or the prefix or a block does, and its key is real and not redacted.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    pub(crate) batch: usize,
    pub(crate) q_len: usize,
    pub(crate) kv_len: usize,
    /// Position of the first query, by batch row; query `i` stands `i` further.
    pub(crate) past: Rc<Vec<i64>>,
    /// Positions of queries and keys where they are not their slots; a negative key position is an empty slot.
    pub(crate) q_positions: Option<PerRow<i64>>,
    pub(crate) k_positions: Option<PerRow<i64>>,
    /// `k <= q + n`.
    pub(crate) causal: Option<i64>,
    /// `q - left <= k` and `k <= q + right`.
    pub(crate) left: Option<i64>,
    pub(crate) right: Option<i64>,
    /// Length of a chunk, and where the first begins.
    pub(crate) chunk: Option<(i64, Rc<Vec<i64>>)>,
    /// First keys that every query reads.
    pub(crate) sinks: usize,
    /// Document of each key; queries take the one at their slot.
    pub(crate) segments: Option<Rc<Groups>>,
    /// Keys `0..n` are read from everywhere.
    pub(crate) prefix: Option<Rc<Vec<i64>>>,
    /// Block of each key, -1 for none.
    pub(crate) blocks: Option<Rc<Groups>>,
    /// Real keys as bits.
    pub(crate) valid: Option<PerRow<u64>>,
    /// Real queries.
    pub(crate) q_valid: Option<PerRow<bool>>,
    /// The tree's rows over its own nodes, which are the last queries and the last keys.
    pub(crate) tree: Option<Rc<Vec<Vec<u64>>>>,
    /// Keys hidden from some queries.
    pub(crate) redactions: Rc<Vec<Hidden>>,
    /// A fault: padding is taken away before the prefix or block is added.
    pub(crate) padding_first: bool,
    /// A fault: only queries inside the prefix read it.
    pub(crate) prefix_within: bool,
    /// A fault: the window cuts prefixes and blocks too.
    pub(crate) window_last: bool,
    /// A fault: padding empties queries in place of hiding keys.
    pub(crate) padding_on_queries: bool,
    /// A fault: keys after the query are visible, whatever else is said of them.
    pub(crate) future: bool,
    /// A fault: keys from here on are visible to all.
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

    /// Words of a row.
    pub(crate) fn words(&self) -> usize {
        self.kv_len.div_ceil(64)
    }

    /// Whether some query stands after cached keys.
    pub(crate) fn has_past(&self) -> bool {
        self.past.iter().any(|past| *past != 0)
    }

    /// The slot in which query `i` of batch row `b` lies among the keys.
    pub(crate) fn slot(&self, b: usize, i: usize) -> i64 {
        number(&self.past, b) + i as i64
    }

    /// Where query `i` stands.
    pub(crate) fn position(&self, b: usize, i: usize) -> i64 {
        match &self.q_positions {
            Some(rows) => row(rows, b).get(i).copied().unwrap_or(i as i64),
            None => self.slot(b, i),
        }
    }

    /// Whether query `i` is a real token: only its row can do harm.
    pub(crate) fn cares(&self, b: usize, i: usize) -> bool {
        self.q_valid.as_ref().is_none_or(|rows| row(rows, b).get(i).copied().unwrap_or(true))
    }

    /// Writes the keys that query `i` of batch row `b` should read.
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

    /// Causality, window, chunk and tree.
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

    /// A node reads itself, its ancestors, and everything before the tree; a query before the tree is causal.
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

    /// The first real key.
    pub(crate) fn first_real(&self, b: usize) -> usize {
        self.valid.as_ref().and_then(|rows| bits::ends(row(rows, b))).map_or(0, |ends| ends.0)
    }

    /// All rows.
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

/// Keys by group (document, block), for each batch row.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The group of each key.
    pub(crate) ids: Vec<Vec<i64>>,
    members: Vec<HashMap<i64, Members>>,
}

/// The keys of one group: nearly always a run.
#[derive(Debug)]
pub(crate) enum Members {
    Run(usize, usize),
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

    /// The group of the key in `slot` and who else is in it.
    fn of(&self, b: usize, slot: i64) -> Option<(i64, &Members)> {
        let b = if self.ids.len() == 1 { 0 } else { b };
        let id = *self.ids.get(b)?.get(usize::try_from(slot).ok()?)?;
        Some((id, self.members[b].get(&id)?))
    }
}

impl Members {
    /// Clears all other bits.
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

    /// Sets their bits.
    fn add(&self, out: &mut [u64]) {
        match self {
            Members::Bits(bits) => out.iter_mut().zip(bits).for_each(|(o, m)| *o |= m),
            Members::Run(start, end) => set_range(out, *start, *end),
        }
    }
}

/// Ancestor-or-self rows of a tree; `None` when a parent is no node or the parents run in a circle.
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
