//! Mistakes in the rows of draft tokens that form a tree: exchanged rows, hidden ancestors, or visible siblings.

use crate::candidates::target::Target;
use crate::intent::Intent;
use crate::intent::known::bits;
use noren_mask::bits::{bit, ones, set_bit};
use noren_mask::{Facts, Keep, Shape, atoms};

impl Target<'_> {
    /// Returns the description of one mistake that explains all differences from the draft tree of the intended mask
    /// `right`. `None` if `right` has no tree, or if none of the known mistakes explains the differences.
    pub(crate) fn other_tree(&self, right: &Intent) -> Option<&'static str> {
        let parents = right.tree.as_deref()?;
        let tree = &paths(parents);
        let [batch, _, q_len, kv_len] = self.given.dims();
        let nodes = tree.len();
        let (first_query, start) = (q_len - nodes, kv_len - nodes);
        let mut words = vec![0; right.words()];
        let mut given: Option<Vec<Vec<u64>>> = None;
        for b in 0..batch {
            for &h in &self.heads[b] {
                let mut own = Vec::with_capacity(nodes);
                for i in 0..q_len {
                    right.fill(b, i, &mut words);
                    let row = self.given.row(b, h, i);
                    let before = if i < first_query { kv_len } else { start };
                    if (0..before).any(|k| bit(row, k) != bit(&words, k)) {
                        return None;
                    }
                    if i >= first_query {
                        let mut drafts = vec![0; nodes.div_ceil(64)];
                        (0..nodes).filter(|n| bit(row, start + n)).for_each(|n| set_bit(&mut drafts, n));
                        own.push(drafts);
                    }
                }
                if given.get_or_insert_with(|| own.clone()) != &own {
                    return None;
                }
            }
        }
        let given = given?;
        let sorted = |rows: &[Vec<u64>]| {
            let mut rows = rows.to_vec();
            rows.sort_unstable();
            rows
        };
        match () {
            () if given == parents_only(parents) => {
                Some("each draft reads itself and its parent only: the ancestors before the parent are hidden")
            }
            () if siblings_only(tree, &given) => {
                Some("drafts read other drafts of the same parent, but drafts should read only ancestors")
            }
            () if sorted(&given) == sorted(tree) => {
                Some("the rows of the drafts are permuted: drafts have the ancestors of other drafts")
            }
            () => None,
        }
    }
}

/// Returns one row of bits for each node of a tree: a bit is 1 for the node itself and for its ancestors. `parents`
/// holds the parent of each node; -1 for a root.
fn paths(parents: &[i64]) -> Vec<Vec<u64>> {
    let bound = atoms::tree(parents, 0).bind(&Shape::square(parents.len()), &Facts::new());
    let keep = bound.map(|bound| Keep::of(&bound));
    keep.map_or(Vec::new(), |keep| (0..parents.len()).map(|node| keep.row(0, 0, node).to_vec()).collect())
}

/// Returns true if the rows of `given` allow too much, but only siblings: each row allows all keys that the same row of
/// `tree` allows, and every other allowed key is a draft token with the same parent.
fn siblings_only(tree: &[Vec<u64>], given: &[Vec<u64>]) -> bool {
    let above = |node: usize| {
        let mut row = tree[node].clone();
        row[node / 64] &= !(1 << (node % 64));
        row
    };
    (0..tree.len()).all(|node| {
        let hidden = tree[node].iter().zip(&given[node]).any(|(t, g)| t & !g != 0);
        let extra: Vec<u64> = tree[node].iter().zip(&given[node]).map(|(t, g)| g & !t).collect();
        !hidden && ones(&extra).all(|other| above(other) == above(node))
    })
}

/// Returns one row of bits for each node of a tree: a bit is 1 for the node itself and for its parent.
fn parents_only(parents: &[i64]) -> Vec<Vec<u64>> {
    let row = |(node, parent): (usize, &i64)| bits(parents.len(), |at| at == node || at as i64 == *parent);
    parents.iter().enumerate().map(row).collect()
}
