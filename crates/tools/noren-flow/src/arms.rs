//! Checks that each mask in `heads(...)` and `batch(...)` applies to at least one head or batch row of the shape; also
//! checks `layers(...)` if the stack has only one layer. A proof would omit the cells of an unused mask. Such a mask
//! with its selector is called an arm.

use noren_mask::{Arm, Error, Mask, Node, Shape};

/// The number of indices beyond the last head or batch row that are tried when an arm (a mask in `heads(...)` or
/// `batch(...)`) applies to no head or batch row of the shape. If the arm applies to a tried index, the error message
/// has the number of heads or batch rows that the arm needs.
const TRIED: usize = 4096;

/// Returns an error if an arm (one of the masks) of `heads(...)` or `batch(...)` applies to no head or batch row of the
/// shape. Also returns an error if the arms of `layers(...)` differ and the stack has only one layer.
///
/// The reason: the number of heads or batch rows in the shape may be the default of 1, although the model has more. A
/// verdict on only some heads of the model would be wrong.
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

/// Returns an error if an arm (one of the masks in `heads(...)`, `batch(...)` or `layers(...)`) applies to none of the
/// indices `0..count`. An arm is accepted if an equal mask in another arm applies to one of these indices. The last
/// parameter is the word for an index in messages, in singular and plural: `["head", "heads"]`.
fn check_taken(mask: &Mask, arms: &[Arm], count: usize, [one, several]: [&str; 2]) -> Result<(), Error> {
    let taken: Vec<&Mask> = (0..count).filter_map(|index| Arm::pick(arms, index)).collect();
    let untaken = |arm: &&Arm| !taken.iter().any(|mask| std::ptr::eq(*mask, &arm.mask) || **mask == arm.mask);
    let Some(arm) = arms.iter().find(untaken) else { return Ok(()) };
    let takes = |index: &usize| Arm::pick(arms, *index).is_some_and(|mask| std::ptr::eq(mask, &arm.mask));
    let arm = format!("{}: {}", arm.selector, arm.mask);
    let problem = match count {
        1 => format!("the shape has one {one}, and `{arm}` does not apply to it"),
        _ => format!("the shape has {count} {several}, and `{arm}` applies to none of them"),
    };
    let needed = (count..count + TRIED).find(takes).map(|index| index + 1);
    let message = match needed {
        Some(needed) => format!("{problem}: give at least {needed} {several} in the shape, or remove `{arm}`"),
        None => format!("{problem}: remove `{arm}`"),
    };
    Err(Error::atom(mask, message))
}
