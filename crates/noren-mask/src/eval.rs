//! What a mask allows, cell by cell, straight from the definition. Everything else in noren is tested against this.

use crate::bind::BoundMask;
use crate::facts::Facts;
use crate::mask::{Arm, Mask, Node};
use crate::philox;
use crate::resolve::RowFacts;
use crate::set::{Set, Span};

/// One cell, by indices and by positions.
struct Cell<'a> {
    bound: &'a BoundMask,
    batch: usize,
    head: usize,
    row: usize,
    key: usize,
    q: i64,
    k: i64,
}

impl BoundMask {
    /// True when query row `q` of batch row `batch` and query head `head` may attend to key `k`.
    ///
    /// # Panics
    /// When an index is outside the shape.
    pub fn allowed(&self, batch: usize, head: usize, q: usize, k: usize) -> bool {
        self.allows(self.mask(), batch, head, q, k)
    }

    /// The same question about a part of the mask.
    pub(crate) fn allows(&self, mask: &Mask, batch: usize, head: usize, row: usize, key: usize) -> bool {
        let shape = self.shape();
        assert!(
            batch < shape.batch_len() && head < shape.head_count() && row < shape.q_len() && key < shape.kv_len(),
            "cell [{batch}, {head}, {row}, {key}] is outside {shape:?}"
        );
        if let Some(whole) = self.whole() {
            let (bound, batch, row, key) = whole.cell(batch, row, key);
            return bound.allows(mask, batch, head, row, key);
        }
        let (q, k) = (self.query_position(batch, row), self.key_position(batch, key));
        k >= 0 && Cell { bound: self, batch, head, row, key, q, k }.allowed(mask)
    }
}

impl Cell<'_> {
    fn facts(&self) -> &Facts {
        self.bound.facts()
    }

    fn row_facts(&self) -> RowFacts<'_> {
        self.bound.row_facts(self.batch)
    }

    fn allowed(&self, mask: &Mask) -> bool {
        let (q, k) = (self.q, self.k);
        if let Some(allowed) = by_position(mask.node(), q, k) {
            return allowed;
        }
        match mask.node() {
            Node::Prefix { lengths } => lengths.get(self.batch).is_some_and(|n| (k as u64) < n),
            Node::Keys(set) => self.in_set(set, k),
            Node::Queries(set) => self.in_set(set, q),
            Node::Global(set) => self.in_set(set, q) || self.in_set(set, k),
            Node::Padding(padding) => {
                let row = self.row_facts();
                row.real_keys(padding).contains(self.key as u32)
                    && (!padding.both || row.real_queries(padding).contains(self.row as u32))
            }
            Node::Documents { lengths } => {
                let documents = self.row_facts().documents(lengths.as_deref()).expect("bind checked the documents");
                documents.ranges().any(|document| document.contains(&q) && document.contains(&k))
            }
            Node::Clearance => {
                let row = self.row_facts();
                row.level(q).zip(row.level(k)).is_some_and(|(q, k)| q >= k)
            }
            Node::Random { p, seed } => u64::from(philox::cell_word(q, k, *seed)) < philox::threshold(p.get()),
            Node::RandomBlocks { block, count, seed } => {
                let blocks = (self.bound.shape().kv_len() as u64).div_ceil(*block);
                let chosen = philox::sample_blocks(q.div_euclid(*block as i64), blocks, *count, *seed);
                chosen.contains(&(k as u64 / block))
            }
            Node::Dense { name } => self.facts().arrays[name].allowed(self.batch, self.head, self.row, self.key),
            Node::Closure { name } => (self.facts().closures[name].allowed)(self.batch, self.head, self.row, self.key),
            Node::Heads(arms) => Arm::pick(arms, self.head as u64).is_some_and(|m| self.allowed(m)),
            Node::Batch(arms) => Arm::pick(arms, self.batch as u64).is_some_and(|m| self.allowed(m)),
            Node::Layers(_) => unreachable!("bind refuses layers(...)"),
            Node::Not(a) => !self.allowed(a),
            Node::And(parts) => parts.iter().all(|m| self.allowed(m)),
            Node::Or(parts) => parts.iter().any(|m| self.allowed(m)),
            Node::Minus(a, b) => self.allowed(a) && !self.allowed(b),
            _ => unreachable!("by_position answers for every other atom"),
        }
    }

    fn in_set(&self, set: &Set, position: i64) -> bool {
        self.row_facts().spans(set).iter().any(|s| holds(s, position))
    }
}

/// Returns whether an atom allows query position `q` to read key position `k`, for the atoms whose cells depend on the two positions
/// alone; `None` for every other node.
pub(crate) fn by_position(node: &Node, q: i64, k: i64) -> Option<bool> {
    let among = |set: &Set, position: i64| match set {
        Set::Spans(spans) => Some(spans.iter().any(|s| holds(s, position))),
        Set::Label(_) => None,
    };
    Some(match node {
        Node::Full => true,
        Node::None => false,
        Node::Causal { offset } => k <= q + offset,
        Node::Window { left, right } => left.is_none_or(|l| q - l <= k) && right.is_none_or(|r| k <= q + r),
        Node::Sliding { window } => q - (*window as i64) < k && k <= q,
        Node::Chunk { size } => q.div_euclid(*size as i64) == k.div_euclid(*size as i64),
        Node::Stride { step } => (q - k).rem_euclid(*step as i64) == 0,
        Node::Keys(set) => among(set, k)?,
        Node::Queries(set) => among(set, q)?,
        Node::Global(set) => among(set, q)? || among(set, k)?,
        Node::Spans { spans } => spans.iter().any(|s| holds(s, q) && holds(s, k)),
        Node::Tree { parents, start } => {
            let mut node = q - *start as i64;
            if node >= parents.len() as i64 {
                return Some(false);
            }
            while node >= 0 && node != k - *start as i64 {
                node = parents[node as usize];
            }
            node >= 0
        }
        Node::Neighborhood { grid, size, dilation } => neighbors(grid, size, dilation, q, k),
        _ => return None,
    })
}

/// By dimension: among the cells at distances that are multiples of `dilation`, the window begins `size / 2` cells before
/// the query's, moved inward so that it lies in the grid.
fn neighbors(grid: &[u64], size: &[u64], dilation: &[u64], q: i64, k: i64) -> bool {
    let cells: u64 = grid.iter().product();
    let (Ok(mut q), Ok(mut k)) = (u64::try_from(q), u64::try_from(k)) else { return false };
    if q >= cells || k >= cells {
        return false;
    }
    (0..grid.len()).rev().all(|i| {
        let (len, window, step) = (grid[i], size[i], dilation[i]);
        let (x, y) = (q % len, k % len);
        (q, k) = (q / len, k / len);
        let reachable = (len - x % step).div_ceil(step);
        let first = (x / step).saturating_sub(window / 2).min(reachable.saturating_sub(window));
        x % step == y % step && (first..first + window).contains(&(y / step))
    })
}

fn holds(span: &Span, position: i64) -> bool {
    u64::try_from(position).is_ok_and(|p| span.contains(p))
}
