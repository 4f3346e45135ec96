//! Arms that the only head, batch row or layer of a stack does not take: what they allow would be proved for nothing.

use crate::lower::pick_arm;
use crate::mask::{Mask, Node};
use crate::{Error, Shape};

/// Refuses `heads(...)`, `batch(...)` and `layers(...)` whose arms differ when there is one head, batch row or layer only.
///
/// One is what a shape has when no number was given, and a verdict about one head of several would be wrong.
pub(super) fn check_arms(masks: &[Mask], shape: &Shape) -> Result<(), Error> {
    masks.iter().try_for_each(|mask| check(mask, shape, masks.len()))
}

fn check(mask: &Mask, shape: &Shape, layers: usize) -> Result<(), Error> {
    let (arms, what, count, fix) = match mask.node() {
        Node::Heads(arms) => (arms, "head", shape.head_count(), "give the number of heads in the shape"),
        Node::Batch(arms) => (arms, "batch row", shape.batch_len(), "give the number of batch rows in the shape"),
        Node::Layers(arms) => (arms, "layer", layers, "give as many layers as the model has"),
        _ => return mask.children().into_iter().try_for_each(|part| check(part, shape, layers)),
    };
    let taken = pick_arm(arms, 0);
    match arms.iter().find(|arm| count == 1 && taken != Some(&arm.mask)) {
        Some(arm) => Err(Error::atom(
            mask,
            format!("there is one {what}, which does not take the arm with `{}`: {fix}, or drop the arm", arm.mask),
        )),
        None => mask.children().into_iter().try_for_each(|part| check(part, shape, layers)),
    }
}
