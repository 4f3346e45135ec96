//! Checks that the facts and the shape have what each atom of a mask needs.

use crate::Error;
use crate::facts::Facts;
use crate::facts::shape::Shape;
use crate::mask::basis::Binding;
use crate::mask::{Arm, Mask, Node};
use crate::sets::set::Selector;

/// Returns an error for the first atom of `mask` whose facts are missing or do not fit the shape.
pub(super) fn check_atoms(mask: &Mask, shape: &Shape, facts: &Facts) -> Result<(), Error> {
    mask.nodes().into_iter().try_for_each(|part| {
        let binding = Binding { atom: part, shape, facts };
        match part.node() {
            Node::Atom(atom) => atom.fits(&binding),
            Node::Heads(arms) => check_arms(&binding, arms, ("head", shape.head_count())),
            Node::Batch(arms) => check_arms(&binding, arms, ("batch row", shape.batch_len())),
            Node::Layers(_) => binding.missing("the layer", "select a layer with `--layer` or Mask::at_layer"),
            _ => Ok(()),
        }
    })
}

/// Returns an error if a selector in `heads(...)` or `batch(...)` names a head or batch row that does not exist. `arms`
/// has the selectors with their masks. `what` is the name for heads or batch rows in the error, and `count` their
/// number.
fn check_arms(binding: &Binding<'_>, arms: &[Arm], (what, count): (&str, usize)) -> Result<(), Error> {
    for arm in arms {
        let Selector::Spans(spans) = &arm.selector else { continue };
        for span in spans {
            let last = span.end.map_or(span.start, |e| e.saturating_sub(1));
            if last >= count && span.end != Some(span.start) {
                return binding.refuse(format!(
                    "a selector names {what} {last}, which does not exist: give indices from 0 to {}",
                    count - 1
                ));
            }
        }
    }
    Ok(())
}
