//! `heads(...)`, `batch(...)` and `layers(...)`: another mask for some heads, batch rows or layers.

use crate::mask::definition::{Arms, Definition, Read, Word};
use crate::mask::{Arm, Mask, Node};
use crate::sets::set::Selector;
use crate::syntax::{Entry, Picture};

/// Returns a mask with one mask per query head. Each element of `arms` is a pair (heads, mask), and the mask applies to
/// these heads. A head that no pair names reads nothing. Text: `heads(0..4: causal, 4..: sliding(8))`.
///
/// ```
/// use noren_mask::atoms::*;
/// let mask = heads([(0..4, causal()), (4..8, sliding(8))]);
/// assert_eq!(mask.to_string(), "heads(0..4: causal, 4..8: sliding(8))");
/// let mask = heads([arm(0, full()), arm([2..4, 6..8], causal()), otherwise(sliding(8))]);
/// assert_eq!(mask.to_string(), "heads(0: full, [2..4, 6..8]: causal, else: sliding(8))");
/// ```
pub fn heads(arms: impl IntoIterator<Item = impl Into<Arm>>) -> Mask {
    Mask::new(Node::Heads(arms.into_iter().map(Into::into).collect()))
}

/// Returns a mask with one mask per batch row. Each element of `arms` is a pair (batch rows, mask), and the mask
/// applies to these batch rows. A batch row that no pair names reads nothing. Text: `batch(0: causal, else: full)`.
pub fn batch(arms: impl IntoIterator<Item = impl Into<Arm>>) -> Mask {
    Mask::new(Node::Batch(arms.into_iter().map(Into::into).collect()))
}

/// Returns a mask with one mask per layer. Each element of `arms` is a pair (layers, mask), and the mask applies to
/// these layers. In a layer that no pair names, no query reads a key. [`Mask::at_layer`] returns the mask of one layer.
/// Text: `layers(every 2: sliding(4096), else: causal)`.
pub fn layers(arms: impl IntoIterator<Item = impl Into<Arm>>) -> Mask {
    Mask::new(Node::Layers(arms.into_iter().map(Into::into).collect()))
}

/// Returns an arm of [`heads`], [`batch`] or [`layers`]: `mask` for the heads, batch rows or layers of `selector`, which is
/// an index, a range, a list of ranges or [`Selector::every`]. A pair is an arm too, if all arms have selectors of one type.
pub fn arm(selector: impl Into<Selector>, mask: Mask) -> Arm {
    Arm { selector: selector.into(), mask }
}

/// Returns the arm of all heads, batch rows or layers that no other arm names. Text: `else: mask`.
pub fn otherwise(mask: Mask) -> Arm {
    arm(Selector::Else, mask)
}

impl<S: Into<Selector>> From<(S, Mask)> for Arm {
    fn from((selector, mask): (S, Mask)) -> Self {
        arm(selector, mask)
    }
}

const fn define(
    name: &'static str,
    (title, example): (&'static str, &'static str),
    doc: &'static str,
    pictures: &'static [Picture],
    arms: Arms,
) -> Definition {
    Definition::new(Word { entry: Entry::new(name, example, &[]), title, doc, pictures }, Read::Arms(arms))
}

pub(super) const HEADS: Definition = define(
    "heads",
    ("`heads(0..4: m, ...)`", "heads(0..4: causal, 4..: sliding(8))"),
    "One mask for each query head. Each argument has heads, a colon and their mask. Heads are written as `3`, `0..4`, `[0, 2]`, `every 2`, `every 6 from 5` or `else` (all other heads). \
     A head without a mask reads no key.",
    &[Picture::square("heads(0: causal, else: sliding(2))", 6)],
    Node::Heads,
);

pub(super) const BATCH: Definition = define(
    "batch",
    ("`batch(0: m, ...)`", "batch(0: causal, else: full)"),
    "One mask for each batch row, written as in `heads`: batch rows, a colon and their mask.",
    &[],
    Node::Batch,
);

pub(super) const LAYERS: Definition = define(
    "layers",
    ("`layers(every 2: m, ...)`", "layers(every 2: sliding(4096), else: causal)"),
    "One mask for each layer, written as in `heads`: layers, a colon and their mask. A mask is bound for one layer at a time (`--layer`, \
     `Mask::at_layer`).",
    &[],
    Node::Layers,
);
