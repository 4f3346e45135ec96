//! Checks that each arm is used by at least one head, batch row or layer of the stack. A proof would omit the cells of an unused arm.

use noren_mask::{Arm, Error, Mask, Node, Shape};

/// The number of indices above the last head or batch row of the shape that are tried, to find one to which an unused
/// arm applies. With this index, the error message gives the number of heads or batch rows that the arm needs.
const TRIED: u64 = 4096;

/// Returns an error if an arm of `heads(...)` or `batch(...)` is used by no head or batch row of the shape. Also returns an error if the arms of
/// `layers(...)` differ and the stack has only one layer.
///
/// The reason: the number of heads or batch rows of a shape may be a default of 1, and a verdict on only some heads of a model would be wrong.
pub(super) fn check_arms(masks: &[Mask], shape: &Shape) -> Result<(), Error> {
    masks.iter().try_for_each(|mask| check(mask, shape, masks.len()))
}

fn check(mask: &Mask, shape: &Shape, layers: usize) -> Result<(), Error> {
    match mask.node() {
        Node::Heads(arms) => check_taken(mask, arms, shape.head_count(), ["head", "heads"])?,
        Node::Batch(arms) => check_taken(mask, arms, shape.batch_len(), ["batch row", "batch rows"])?,
        Node::Layers(arms) if layers == 1 => check_taken(mask, arms, 1, ["layer", "layers"])?,
        _ => {}
    }
    mask.children().into_iter().try_for_each(|part| check(part, shape, layers))
}

/// Returns an error if an arm applies to none of the indices `0..count`. An arm is accepted if another arm with an
/// equal mask applies to at least one of these indices. The last parameter names an index in messages, in singular and
/// plural: `["head", "heads"]`.
fn check_taken(mask: &Mask, arms: &[Arm], count: usize, [one, several]: [&str; 2]) -> Result<(), Error> {
    let taken: Vec<&Mask> = (0..count as u64).filter_map(|index| Arm::pick(arms, index)).collect();
    let untaken = |arm: &&Arm| !taken.iter().any(|mask| std::ptr::eq(*mask, &arm.mask) || **mask == arm.mask);
    let Some(arm) = arms.iter().find(untaken) else { return Ok(()) };
    let takes = |index: &u64| Arm::pick(arms, *index).is_some_and(|mask| std::ptr::eq(mask, &arm.mask));
    let fix = match (count as u64..count as u64 + TRIED).find(takes) {
        Some(index) => format!("give at least {} {several} in the shape, or remove the arm", index + 1),
        None => "remove the arm".into(),
    };
    let uses = if count == 1 {
        format!("the shape has one {one}, which does not use")
    } else {
        format!("none of the {count} {several} of the shape uses")
    };
    Err(Error::atom(mask, format!("{uses} the arm `{}: {}`: {fix}", arm.selector, arm.mask)))
}
