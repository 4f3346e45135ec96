//! The definition of masks: evaluates a mask for one cell at a time. All other code of noren is tested against the
//! results of this module.

use crate::bind::BoundMask;
use crate::mask::basis::Pair;
use crate::mask::{Arm, Mask, Node};

impl BoundMask {
    /// Returns whether query row `q` of batch row `batch` and query head `head` may read key `k`.
    ///
    /// # Panics
    /// Panics if an index is outside the shape.
    pub fn allowed(&self, batch: usize, head: usize, q: usize, k: usize) -> bool {
        self.allows(self.mask(), batch, head, q, k)
    }

    /// Returns whether `mask` allows the cell of batch row `batch`, head `head`, query row `row` and key `key`. `mask`
    /// is the bound mask or one of its subexpressions.
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
        let pair = self.pair_at([batch, head, row, key]);
        pair.k >= 0 && allowed(mask, &pair)
    }

    /// Returns the query and the key of the cell `[batch row, head, query row, key]`. The position of the key is
    /// negative if its slot in the cache holds no key.
    pub(crate) fn pair_at(&self, [batch, head, row, key]: [usize; 4]) -> Pair<'_> {
        let (q, k) = (self.query_position(batch, row), self.key_position(batch, key));
        Pair { q, k, row, key, batch, head, facts: self.row_facts(batch) }
    }
}

/// Returns whether `mask` allows the cell of `pair`.
pub(crate) fn allowed(mask: &Mask, pair: &Pair<'_>) -> bool {
    let arm = |mask: Option<&Mask>| mask.is_some_and(|mask| allowed(mask, pair));
    match mask.node() {
        Node::Full => true,
        Node::None => false,
        Node::Atom(atom) => atom.allows(pair),
        Node::Heads(arms) => arm(Arm::pick(arms, pair.head)),
        Node::Batch(arms) => arm(Arm::pick(arms, pair.batch)),
        Node::Layers(_) => unreachable!("bind refuses layers(...)"),
        Node::Not(a) => !allowed(a, pair),
        Node::And(parts) => parts.iter().all(|m| allowed(m, pair)),
        Node::Or(parts) => parts.iter().any(|m| allowed(m, pair)),
        Node::Minus(a, b) => allowed(a, pair) && !allowed(b, pair),
    }
}
