//! Joins the expressions of all batch rows and heads into one expression.

use noren_mask::Selector;
use noren_mask::atoms;
use noren_mask::atoms::{Causal, Padding, Prefix};
use noren_mask::{Arm, Mask, Node, Rows, Side};

/// The expression of one slice, which is one batch row and head.
pub(super) struct Fit {
    /// The expression without padding.
    pub(super) mask: Mask,
    /// The range of the keys that queries read, (first key, end (exclusive)), if this range is at the start or at the
    /// end of the row. The other keys are padding. `None` if the mask has no such padding.
    pub(super) real: Option<(usize, usize)>,
    /// True if the rows of the padding queries are empty too.
    pub(super) both: bool,
}

/// Returns one mask for all batch rows and heads. `fits` has the expressions of the distinct slices (a slice is the
/// cells of one batch row and head), and `which[b * heads + h]` is the index in `fits` for batch row `b` and head `h`.
/// `dims` is `[batch, heads, q_len, kv_len]`. Padding becomes one term with a length for each batch row. Other
/// differences become separate masks in `batch(...)` or `heads(...)`.
pub(super) fn join(fits: &[Fit], which: &[usize], dims: [usize; 4]) -> Mask {
    let [batch, heads, _, kv_len] = dims;
    let by_head = (0..batch).any(|b| (1..heads).any(|h| which[b * heads + h] != which[b * heads]));
    let rows: Vec<&Fit> = (0..batch).map(|b| &fits[which[b * heads]]).collect();
    let run = |f: &Fit| f.real.unwrap_or((0, kv_len));
    let left = rows.iter().all(|f| run(f).1 == kv_len);
    let right = rows.iter().all(|f| run(f).0 == 0);
    let padded = rows.iter().any(|f| f.real.is_some());
    let uniform = rows.iter().all(|f| f.mask == rows[0].mask);
    let both = rows.iter().any(|f| f.both);
    let same_rows = !both || rows.iter().all(|f| f.both || f.real.is_none());
    if !by_head && uniform && same_rows && (left || right) {
        if !padded {
            return rows[0].mask.clone();
        }
        let padding = Padding {
            side: left.then_some(Side::Left),
            lengths: Some(rows.iter().map(|f| run(f).1 - run(f).0).collect()),
            both,
        };
        let padding = atoms::padding_with(padding);
        return match rows[0].mask.node() {
            Node::Full => padding,
            _ => rows[0].mask.clone() & padding,
        };
    }
    if !by_head && uniform_but_prefix(&rows) && !padded {
        let lengths = rows.iter().filter_map(|f| prefix_of(&f.mask)).collect::<Vec<usize>>();
        return atoms::causal() | atoms::prefix(lengths);
    }
    by_arms(fits, which, dims)
}

/// Returns one mask for all batch rows and heads. Consecutive batch rows or heads with equal masks share one entry (a
/// range and its mask) of `batch(...)` or `heads(...)`. `fits` has the distinct expressions, and `which[b * heads + h]`
/// is the index in `fits` for batch row `b` and head `h`.
pub(super) fn by_arms(fits: &[Fit], which: &[usize], [batch, heads, ..]: [usize; 4]) -> Mask {
    let of = |f: &Fit| match f.real {
        Some((a, z)) if f.both => {
            let (a, z) = (a, z);
            f.mask.clone() & atoms::keys(a..z) & atoms::queries(a..z)
        }
        Some((a, z)) => f.mask.clone() & atoms::keys(a..z),
        None => f.mask.clone(),
    };
    let heads_of = |b: usize| -> Mask {
        let own: Vec<Mask> = (0..heads).map(|h| of(&fits[which[b * heads + h]])).collect();
        match own.iter().all(|m| *m == own[0]) {
            true => own[0].clone(),
            false => arms(&own, Node::Heads),
        }
    };
    let all: Vec<Mask> = (0..batch).map(heads_of).collect();
    match all.iter().all(|m| *m == all[0]) {
        true => all[0].clone(),
        false => arms(&all, Node::Batch),
    }
}

fn prefix_of(mask: &Mask) -> Option<usize> {
    let Node::Or(parts) = mask.node() else { return None };
    match (parts[0].atom_as()?, parts.get(1)?.atom_as()?) {
        (Causal { offset: 0 }, Prefix { lengths: Rows::All(n) }) if parts.len() == 2 => Some(*n),
        _ => None,
    }
}

fn uniform_but_prefix(rows: &[&Fit]) -> bool {
    rows.iter().all(|f| prefix_of(&f.mask).is_some())
}

/// Returns one mask in which each head (for `node` = `Node::Heads`) or each batch row (for `Node::Batch`) has its own
/// mask from `masks`. Consecutive heads or batch rows with equal masks share one entry (a range and its mask).
fn arms(masks: &[Mask], node: fn(Vec<Arm>) -> Node) -> Mask {
    let mut arms = Vec::new();
    let mut start = 0;
    for end in 1..=masks.len() {
        if end == masks.len() || masks[end] != masks[start] {
            arms.push(Arm { selector: Selector::from(start..end), mask: masks[start].clone() });
            start = end;
        }
    }
    Mask::new(node(arms))
}
