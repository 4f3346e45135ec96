//! Conversion of a checked mask into the [`Pattern`] of one batch row and head.

use crate::mask::basis::{ByValue, Site};
use crate::mask::member::Membership;
use crate::mask::pattern::Pattern;
use crate::mask::{Arm, Mask, Node};
use std::sync::Arc;

/// Returns the pattern of `mask` for the batch row and head of `site`. The pattern denies cache slots that hold no key.
pub(crate) fn lower(mask: &Mask, site: Site<'_>) -> Pattern {
    let pattern = resolve(mask, &site);
    match site.row.frame.live() {
        Some(live) => Pattern::And(vec![Pattern::Keys(Arc::new(live)), pattern]),
        None => pattern,
    }
}

fn resolve(mask: &Mask, site: &Site<'_>) -> Pattern {
    let all = |masks: &[Mask]| masks.iter().map(|m| resolve(m, site)).collect();
    let arm = |arms: &[Arm], index: usize| Arm::pick(arms, index).map_or(Pattern::none(), |m| resolve(m, site));
    match mask.node() {
        Node::Full => Pattern::FULL,
        Node::None => Pattern::none(),
        Node::Atom(atom) => match atom.resolve(site) {
            Some(resolution) => resolution.0,
            None => Pattern::Member(ByValue(Arc::new(Membership::new(atom, site)))),
        },
        Node::Heads(arms) => arm(arms, site.head),
        Node::Batch(arms) => arm(arms, site.row.row),
        Node::Layers(_) => unreachable!("bind refuses layers(...)"),
        Node::Not(a) => Pattern::Not(Box::new(resolve(a, site))),
        Node::And(parts) => Pattern::And(all(parts)),
        Node::Or(parts) => Pattern::Or(all(parts)),
        Node::Minus(a, b) => resolve(a, site).minus(&resolve(b, site)),
    }
}
