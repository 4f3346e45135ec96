//! The atoms: one builder for each thing a mask can say.
//!
//! Builders take any number; a value that makes no sense (`chunk(0)`, a reversed range) is refused with its name when the
//! mask is bound, or by the parser at its place in the text.
#![doc = ""]
#![doc = include_str!("../docs/masks.md")]

use crate::mask::{Arm, Mask, Node, Padding, PerRow, Real, Side};
use crate::set::{Selector, Set, Span};

/// Every cell. Text: `full`.
pub fn full() -> Mask {
    Mask::new(Node::Full)
}

/// No cell. Text: `none`.
pub fn none() -> Mask {
    Mask::new(Node::None)
}

/// Keys up to the query itself: `k <= q`. Text: `causal`.
pub fn causal() -> Mask {
    causal_offset(0)
}

/// `k <= q + offset`; `-1` leaves the query itself out. Text: `causal(offset=n)`.
pub fn causal_offset(offset: i64) -> Mask {
    Mask::new(Node::Causal { offset })
}

/// `q - left <= k <= q + right`, both ends included; `None` leaves a side open and a negative value shifts it.
/// Text: `window(left=L, right=R)`.
pub fn window(left: impl Into<Option<i64>>, right: impl Into<Option<i64>>) -> Mask {
    Mask::new(Node::Window { left: left.into(), right: right.into() })
}

/// The last `window` keys, the query's own included: `q - window < k <= q`. Text: `sliding(W)`, `sliding_window(W)`.
///
/// This is Mistral's and Hugging Face's `sliding_window=W`. flash-attention's `window_size=(L, 0)` is `sliding(L + 1)`.
pub fn sliding(window: u64) -> Mask {
    Mask::new(Node::Sliding { window })
}

/// Query and key lie in the same chunk of `size` positions: `q / size == k / size`. Text: `chunk(C)`.
pub fn chunk(size: u64) -> Mask {
    Mask::new(Node::Chunk { size })
}

/// The distance is a multiple of `step`: `(q - k) mod step == 0`. Text: `stride(S)`.
pub fn stride(step: u64) -> Mask {
    Mask::new(Node::Stride { step })
}

/// The first `n` keys: `k < n`, one number or one for each batch row. Text: `prefix(n)`, `prefix([n0, n1, ...])`.
pub fn prefix(lengths: impl Into<PerRow>) -> Mask {
    Mask::new(Node::Prefix { lengths: lengths.into() })
}

/// Keys in a set. Text: `keys(0..4)`, `keys([3, 9, 10..14])`, `keys(label="pii")`.
///
/// ```
/// use noren_mask::{atoms::*, Set};
/// assert_eq!((full() - keys(Set::label("pii"))).to_string(), "full - keys(label=\"pii\")");
/// ```
pub fn keys(set: impl Into<Set>) -> Mask {
    Mask::new(Node::Keys(set.into()))
}

/// Queries in a set. Text: `queries(0..4)`.
pub fn queries(set: impl Into<Set>) -> Mask {
    Mask::new(Node::Queries(set.into()))
}

/// Query or key in a set: its tokens read everything and are read by everything. Text: `global(0..2)`.
pub fn global(set: impl Into<Set>) -> Mask {
    Mask::new(Node::Global(set.into()))
}

/// Keys that are real tokens of their batch row; lengths and side come from the facts. Text: `padding`.
pub fn padding() -> Mask {
    padding_with(Padding::default())
}

/// [`padding`] with the side said here. Text: `padding(side=left)`.
pub fn padding_side(side: Side) -> Mask {
    padding_with(Padding { side: Some(side), ..Padding::default() })
}

/// [`padding`] with any of its parameters. Text: `padding(side=left, lengths=[5, 3], on=both)`.
pub fn padding_with(padding: Padding) -> Mask {
    Mask::new(Node::Padding(padding))
}

/// Query and key lie in the same document; the documents come from the facts. Text: `documents`.
pub fn documents() -> Mask {
    Mask::new(Node::Documents { lengths: None })
}

/// [`documents`] with these lengths, one after the other, in every batch row. Text: `documents([33, 31])`.
pub fn documents_of(lengths: impl Into<Vec<u64>>) -> Mask {
    Mask::new(Node::Documents { lengths: Some(lengths.into()) })
}

/// Query and key lie in the same span (an image among text). Text: `spans([4..20, 30..46])`.
pub fn spans<S: Into<Span>>(spans: impl IntoIterator<Item = S>) -> Mask {
    Mask::new(Node::Spans { spans: spans.into_iter().map(Into::into).collect() })
}

/// Key is the query or one of its ancestors in a tree whose node `i` stands at position `start + i`; parent -1 is a root.
/// Text: `tree(parents=[-1, 0, 0], start=n)`.
pub fn tree(parents: impl Into<Vec<i64>>, start: u64) -> Mask {
    Mask::new(Node::Tree { parents: parents.into(), start })
}

/// The query's level is at least the key's; levels are facts. Text: `clearance`.
pub fn clearance() -> Mask {
    Mask::new(Node::Clearance)
}

/// The key lies in the window of grid cells around the query, shifted inward at edges (NATTEN). One to three
/// dimensions, row-major. Text: `neighborhood(grid=[8, 9], size=[3, 5])`.
pub fn neighborhood(grid: impl Into<Vec<u64>>, size: impl Into<Vec<u64>>) -> Mask {
    let grid = grid.into();
    let dilation = vec![1; grid.len()];
    neighborhood_dilated(grid, size, dilation)
}

/// [`neighborhood`] whose window takes every `dilation`-th cell.
/// Text: `neighborhood(grid=[8, 9], size=[3, 3], dilation=[2, 2])`.
pub fn neighborhood_dilated(
    grid: impl Into<Vec<u64>>,
    size: impl Into<Vec<u64>>,
    dilation: impl Into<Vec<u64>>,
) -> Mask {
    Mask::new(Node::Neighborhood { grid: grid.into(), size: size.into(), dilation: dilation.into() })
}

/// Each cell with probability `p`, fixed by `seed` and the two positions (Philox 4x32-10), the same on every machine.
/// Text: `random(0.1, 42)`.
pub fn random(p: f64, seed: u64) -> Mask {
    Mask::new(Node::Random { p: Real::new(p), seed })
}

/// For each block of `block` queries, `count` blocks of `block` keys drawn without repetition from all of the
/// sequence's (BigBird). Text: `random_blocks(64, 3, 42)`.
pub fn random_blocks(block: u64, count: u64, seed: u64) -> Mask {
    Mask::new(Node::RandomBlocks { block, count, seed })
}

/// The named keep-array of the facts says so. Text: `dense(name)`.
pub fn dense(name: impl Into<String>) -> Mask {
    Mask::new(Node::Dense { name: name.into() })
}

/// The named closure of the facts says so. Text: `closure(name)`.
pub fn closure(name: impl Into<String>) -> Mask {
    Mask::new(Node::Closure { name: name.into() })
}

/// By query head: the arm that names the head says so; no arm means nothing is allowed.
/// Text: `heads(0..4: causal, 4..: sliding(8))`.
///
/// ```
/// use noren_mask::atoms::*;
/// let mask = heads([(0..4, causal()), (4..8, sliding(8))]);
/// assert_eq!(mask.to_string(), "heads(0..4: causal, 4..8: sliding(8))");
/// ```
pub fn heads<S: Into<Selector>>(arms: impl IntoIterator<Item = (S, Mask)>) -> Mask {
    Mask::new(Node::Heads(collect_arms(arms)))
}

/// By batch row, as [`heads`]. Text: `batch(0: causal, else: full)`.
pub fn batch<S: Into<Selector>>(arms: impl IntoIterator<Item = (S, Mask)>) -> Mask {
    Mask::new(Node::Batch(collect_arms(arms)))
}

/// By layer, as [`heads`]; [`Mask::at_layer`] picks one. Text: `layers(every 2: sliding(4096), else: causal)`.
pub fn layers<S: Into<Selector>>(arms: impl IntoIterator<Item = (S, Mask)>) -> Mask {
    Mask::new(Node::Layers(collect_arms(arms)))
}

fn collect_arms<S: Into<Selector>>(arms: impl IntoIterator<Item = (S, Mask)>) -> Vec<Arm> {
    arms.into_iter().map(|(selector, mask)| Arm { selector: selector.into(), mask }).collect()
}
