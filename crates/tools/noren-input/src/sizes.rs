//! Sizes that a mask and its facts (data given with a mask, such as lengths) imply. Commands use them if the user does
//! not give sizes: `documents([5, 3])` implies 8 tokens.

use noren_mask::atom::AtomRef;
use noren_mask::atoms::{Dense, Documents, Global, Keys, Neighborhood, Prefix, Queries, Spans, Tree};
use noren_mask::{Arm, Mask, Node, Padding, Positions, Rows, Score, Selector, Span, Spec};
use serde_json::Value;

/// The default number of tokens.
pub const DEFAULT_LEN: usize = 16;

/// The sizes that a mask or its facts (data given with a mask, such as lengths) imply. A size that neither implies is
/// `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Number of tokens in self-attention: both the number of queries and the number of keys.
    pub len: Option<usize>,
    /// Number of batch rows.
    pub batch: Option<usize>,
    /// Number of query heads.
    pub heads: Option<usize>,
    /// (number of queries, number of keys), if these numbers differ.
    pub cross: Option<(usize, usize)>,
}

impl Sizes {
    /// Returns the combination of two sets of sizes. If both have a value for a size, the larger value is used; for
    /// `cross`, the value of `self` is used.
    pub fn or(self, other: Sizes) -> Sizes {
        Sizes {
            len: self.len.max(other.len),
            batch: self.batch.max(other.batch),
            heads: self.heads.max(other.heads),
            cross: self.cross.or(other.cross),
        }
    }

    /// Returns `self` with each missing size (`None`) taken from `least`. However, `least.len` is ignored unless it
    /// exceeds [`DEFAULT_LEN`].
    pub fn or_else(self, least: &Sizes) -> Sizes {
        Sizes {
            len: self.len.or(least.len.filter(|n| *n > DEFAULT_LEN)),
            batch: self.batch.or(least.batch),
            heads: self.heads.or(least.heads),
            cross: self.cross.or(least.cross),
        }
    }

    fn len(n: usize) -> Sizes {
        Sizes { len: Some(n), ..Sizes::default() }
    }
}

/// Returns the sizes that the parameters of a mask and its score modifiers imply. For example, the lengths of documents
/// imply a number of tokens, and the heads named in `heads(...)` imply a number of heads.
pub fn mask_sizes(spec: &Spec) -> Sizes {
    let slopes = spec.scores.iter().filter_map(|score| match score {
        Score::Alibi { slopes: Some(slopes) } => Some(slopes.len()),
        _ => None,
    });
    sizes_of(&spec.mask).or(Sizes { heads: slopes.max(), ..Sizes::default() })
}

fn sizes_of(mask: &Mask) -> Sizes {
    let own = match mask.node() {
        Node::Heads(arms) => Sizes { heads: arms_end(arms), ..Sizes::default() },
        Node::Batch(arms) => Sizes { batch: arms_end(arms), ..Sizes::default() },
        Node::Atom(atom) => sizes_of_atom(atom),
        _ => Sizes::default(),
    };
    mask.children().into_iter().fold(own, |sizes, part| sizes.or(sizes_of(part)))
}

/// Returns the sizes that the parameters of one elementary mask (atom) imply: `neighborhood(grid=[4, 6], ...)` implies
/// 24 tokens.
fn sizes_of_atom(atom: &AtomRef) -> Sizes {
    let rows = |n: usize| Sizes { batch: Some(n), ..Sizes::default() };
    if let Some(Documents { lengths: Some(lengths) }) = atom.downcast() {
        return Sizes::len(sum(lengths));
    }
    if let Some(grid) = atom.downcast::<Neighborhood>() {
        return Sizes::len(grid.cells());
    }
    if let Some(tree) = atom.downcast::<Tree>() {
        return Sizes::len(tree.start.saturating_add(tree.node_count()));
    }
    if let Some(Padding { lengths: Some(lengths), .. }) = atom.downcast() {
        return Sizes::len(lengths.iter().copied().max().unwrap_or(0)).or(rows(lengths.len()));
    }
    if let Some(Prefix { lengths: Rows::Each(lengths) }) = atom.downcast() {
        return rows(lengths.len());
    }
    let set = atom.downcast().map(|Keys(set)| set);
    let set = set.or_else(|| atom.downcast().map(|Queries(set)| set));
    match (set.or_else(|| atom.downcast().map(|Global(set)| set)), atom.downcast()) {
        (Some(Positions::Spans(spans)), _) | (None, Some(Spans { spans })) => at_least(spans),
        _ => Sizes::default(),
    }
}

/// Returns the number of tokens that ranges of positions require: `keys(0..20)` requires 20 tokens. If the number is
/// below 16 (the default) or above 4096, returns no size.
fn at_least(spans: &[Span]) -> Sizes {
    match spans.iter().map(|s| s.end.unwrap_or(s.start + 1)).max() {
        Some(end) if (16..=4096).contains(&end) => Sizes::len(end),
        _ => Sizes::default(),
    }
}

/// Returns a number of heads (or batch rows) at which each mask in `heads(...)` (or `batch(...)`) applies to at least
/// one head. A mask for the heads `4..` needs 5 heads, rounded up to 8, the next power of two. Masks with `every` need
/// their largest start plus the least common multiple of their steps. The mask `else` needs a head to which no other
/// mask applies. Returns `None` if the number is not from 1 to 1024.
fn arms_end(arms: &[Arm]) -> Option<usize> {
    let (mut end, mut open, mut period, mut start) = (0usize, false, 1usize, None);
    for arm in arms {
        match &arm.selector {
            Selector::Spans(spans) => {
                for span in spans {
                    open |= span.end.is_none();
                    end = end.max(span.end.unwrap_or_else(|| span.start.saturating_add(1).next_power_of_two()));
                }
            }
            Selector::Every { step, from } => {
                period = common_multiple(period, (*step).max(1));
                start = start.max(Some(*from));
            }
            Selector::Else => {}
        }
    }
    let other = arms.iter().any(|arm| arm.selector == Selector::Else);
    let needed = match start {
        Some(start) if other => start.max(end).saturating_add(period),
        Some(start) => start.saturating_add(period).max(end),
        None if other && !open => end.saturating_add(1).max(2),
        None => end,
    };
    Some(needed).filter(|n| (1..=1024).contains(n))
}

fn common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().map(|n| n as usize)
}

fn sum(lengths: &[usize]) -> usize {
    lengths.iter().fold(0, |n, l| n.saturating_add(*l))
}

/// Returns the names of the arrays that the elementary masks `dense(...)` in the expression `mask` use.
pub fn array_names(mask: &Mask) -> Vec<String> {
    mask.atoms().into_iter().filter_map(|atom| Some(atom.downcast::<Dense>()?.name.clone())).collect()
}

/// Returns the sizes that facts (data given with a mask, such as lengths) imply. `text` is the JSON of the facts, which
/// must be valid. Of the arrays in the facts, only those whose names are in `named` are used.
pub fn facts_sizes(text: &str, named: &[String]) -> Sizes {
    let Ok(Value::Object(facts)) = serde_json::from_str(text) else { return Sizes::default() };
    let total = |list: &[Value]| list.iter().fold(0usize, |n, v| n.saturating_add(number(v).unwrap_or(0)));
    let count = |list: &[Value]| list.len();
    let mut sizes = Sizes::default();
    if let Some(Value::Object(arrays)) = facts.get("arrays") {
        let arrays = arrays.iter().filter(|(name, _)| named.contains(name));
        sizes = arrays.filter_map(|(_, array)| array_sizes(array)).fold(sizes, Sizes::or);
    }
    for (name, value) in &facts {
        let Value::Array(list) = value else { continue };
        sizes = sizes.or(match name.as_str() {
            "lengths" => {
                let longest = list.iter().filter_map(number).max().unwrap_or(0);
                Sizes { batch: Some(list.len()), ..Sizes::len(longest) }
            }
            "documents" => by_row(list, total),
            "levels" | "positions" | "segment_ids" | "position_ids" | "token_ids" | "attention_mask" => {
                by_row(list, count)
            }
            "cu_seqlens" => Sizes::len(list.last().and_then(number).unwrap_or(0)),
            _ => Sizes::default(),
        });
    }
    sizes
}

/// Returns the sizes that a mask array in the facts (data given with a mask) implies, from its nested lists or from its field `shape`. Returns
/// `None` if the array does not have two or four dimensions.
fn array_sizes(array: &Value) -> Option<Sizes> {
    let form = array.as_object()?.values().next()?;
    let mut shape = Vec::new();
    match form.get("shape").and_then(Value::as_array) {
        Some(stated) => shape.extend(stated.iter().filter_map(number)),
        None => {
            let mut level = form;
            while let Value::Array(list) = level {
                shape.push(list.len());
                let Some(first) = list.first() else { break };
                level = first;
            }
        }
    }
    let (batch, heads, q, kv) = match shape[..] {
        [q, kv] => (None, None, q, kv),
        [batch, heads, q, kv] => (Some(batch), Some(heads), q, kv),
        _ => return None,
    };
    let (len, cross) = if q == kv { (Some(q), None) } else { (None, Some((q, kv))) };
    Some(Sizes { len, batch, heads, cross })
}

/// Returns the sizes that a list in the facts (data given with a mask) implies, such as the lengths of documents.
/// `list` is one list for all batch rows, or contains one list for each batch row. `len(list)` returns the number of
/// tokens that the list of one batch row implies.
fn by_row(list: &[Value], len: impl Fn(&[Value]) -> usize) -> Sizes {
    let rows: Vec<&[Value]> = list.iter().filter_map(|row| row.as_array().map(Vec::as_slice)).collect();
    match rows.len() {
        0 => Sizes::len(len(list)),
        n => Sizes { batch: Some(n), ..Sizes::len(rows.into_iter().map(len).max().unwrap_or(0)) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Option<usize>, Option<usize>, Option<usize>) {
        let Sizes { len, batch, heads, .. } = mask_sizes(&text.parse().expect("a spec"));
        (len, batch, heads)
    }

    #[test]
    fn lists_imply_sizes() {
        assert_eq!(of("causal"), (None, None, None));
        assert_eq!(of("causal & documents([5, 3])"), (Some(8), None, None));
        assert_eq!(of("padding(lengths=[5, 3])"), (Some(5), Some(2), None));
        assert_eq!(of("heads(0..4: causal, 4..: full)"), (None, None, Some(8)));
        assert_eq!(of("heads(0..2: causal, else: full)"), (None, None, Some(3)));
        assert_eq!(of("heads(0: causal, else: full)"), (None, None, Some(2)));
        assert_eq!(of("heads(every 2: causal, every 6 from 5: full)"), (None, None, Some(11)));
        assert_eq!(of("heads(every 2: causal, else: full)"), (None, None, Some(2)));
        assert_eq!(of("batch(0..3: causal, else: full)"), (None, Some(4), None));
        assert_eq!(of("neighborhood(grid=[4, 6], size=[3, 3]) | keys(0..4)"), (Some(24), None, None));
        assert_eq!(of("keys(0..9999999999)"), (None, None, None));
    }

    #[test]
    fn facts_imply_sizes() {
        let sizes = facts_sizes(r#"{"lengths": [5, 3], "documents": [[5, 27], [16, 16]], "levels": [0, 2]}"#, &[]);
        assert_eq!(sizes, Sizes { len: Some(32), batch: Some(2), ..Sizes::default() });
        assert_eq!(facts_sizes("no JSON", &[]), Sizes::default());
    }

    #[test]
    fn arrays_that_a_mask_names_imply_sizes() {
        let facts = r#"{"arrays": {"a": {"keep": [[1, 0], [1, 1]]}, "b": {"drop": [[[[1], [1]]], [[[1], [0]]]]},
            "c": {"cells": {"shape": [40, 40], "list": []}}, "d": {"keep": []}}}"#;
        let of = |mask: &str| {
            let mask: Spec = mask.parse().expect("a spec");
            facts_sizes(facts, &array_names(&mask.mask))
        };
        assert_eq!(of("causal"), Sizes::default());
        assert_eq!(of("causal & !dense(a)"), Sizes::len(2));
        assert_eq!(of("dense(c) | dense(a)"), Sizes::len(40));
        assert_eq!(of("dense(b)"), Sizes { batch: Some(2), heads: Some(1), cross: Some((2, 1)), ..Sizes::default() });
        assert_eq!(of("dense(d)"), Sizes::default());
    }
}
