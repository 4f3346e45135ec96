//! Simplification of two operands that are equal except for one mask, which is `b` in one operand and its complement
//! `!b` in the other: `a & b | a & !b` becomes `a`, and `(a | b) & (a | !b)` becomes `a`.

use super::axis::complement;
use super::axis::{Join, read};
use crate::mask::{Mask, Node};
use std::collections::HashSet;

/// The maximum number of operands of one `&` or `|` that are simplified in pairs. Longer lists of operands stay
/// unchanged: the time would be too long, because each operand is compared with all others.
const MOST: usize = 64;

/// Returns the operands of one `&` or `|` (`join`), simplified in pairs. In a `|`, the operands `a & b` and `a & !b`,
/// which differ only in `b` and its complement, become `a`. In an `&`, the same applies to `a | b` and `a | !b`.
pub(super) fn paired(join: Join, mut operands: Vec<Mask>) -> Vec<Mask> {
    if operands.len() > MOST {
        return operands;
    }
    while let Some((first, second, common)) = pair(join, &operands) {
        operands.swap_remove(second);
        operands[first] = common;
    }
    operands
}

/// Returns (first index, second index, simplified operand) for the first pair of operands that are equal except for a
/// mask and its complement, such as `a & b` and `a & !b`. The simplified operand is `a`. Returns `None` if there is no
/// such pair. The first index is below the second.
fn pair(join: Join, operands: &[Mask]) -> Option<(usize, usize, Mask)> {
    let parts: Vec<HashSet<&Mask>> = operands.iter().map(|operand| parts_of(join, operand)).collect();
    for first in 0..parts.len() {
        for second in first + 1..parts.len() {
            if parts[first].len() != parts[second].len() || parts[first].len() < 2 {
                continue;
            }
            let mut only_first = parts[first].difference(&parts[second]);
            let mut only_second = parts[second].difference(&parts[first]);
            let one = |only: &mut dyn Iterator<Item = &&Mask>| {
                only.next().map(|part| (*part).clone()).filter(|_| only.next().is_none())
            };
            let (Some(a), Some(b)) = (one(&mut only_first), one(&mut only_second)) else { continue };
            if are_complements(&a, &b) {
                let common = operands[first].children().into_iter().filter(|part| **part != a).cloned().collect();
                return Some((first, second, join.other().of(common)));
            }
        }
    }
    None
}

fn parts_of(join: Join, operand: &Mask) -> HashSet<&Mask> {
    match (operand.node(), join) {
        (Node::Or(parts), Join::All) | (Node::And(parts), Join::Any) => parts.iter().collect(),
        _ => HashSet::new(),
    }
}

fn are_complements(a: &Mask, b: &Mask) -> bool {
    match (read(a), read(b)) {
        (Some((axis, runs)), Some((other, others))) => axis == other && axis.complement(&runs) == others,
        (None, None) => complement(a) == *b,
        _ => false,
    }
}
