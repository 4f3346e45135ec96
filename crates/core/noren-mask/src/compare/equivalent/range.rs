//! The lengths, layers, batch rows and heads that a comparison must visit.

use crate::facts::shape::Shape;
use crate::mask::Mask;
use crate::mask::basis::{Case, Input};
use crate::sets::leaf::gcd;
use crate::sets::set::Selector;

/// The lengths at which both masks bind without facts, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lengths {
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Lengths {
    /// Returns the lengths that are common to all `masks`, or `None` if there is no common length.
    pub(super) fn of(masks: &[&Mask]) -> Option<Self> {
        let mut lengths = Lengths { first: 1, last: Shape::MAX_LEN };
        let padded = masks.iter().any(|mask| reads_padding(mask));
        masks.iter().for_each(|mask| lengths.narrow(mask, padded));
        (lengths.first <= lengths.last).then_some(lengths)
    }

    fn narrow(&mut self, mask: &Mask, padded: bool) {
        for atom in mask.atoms() {
            let sizes = atom.sizes(Case { batch: 0, padded });
            self.first = self.first.max(sizes.first);
            self.last = self.last.min(sizes.last.unwrap_or(usize::MAX));
        }
    }
}

/// Returns true if the mask reads the fact `lengths` (numbers of non-padding tokens of the batch rows). For such a
/// mask, a comparison covers padding on the left and padding on the right.
pub(super) fn reads_padding(mask: &Mask) -> bool {
    mask.atoms().into_iter().any(|atom| atom.inputs().contains(&Input::Lengths))
}

/// The indices of layers, batch rows or heads that a comparison visits. The selectors of `heads(...)`, `batch(...)` and
/// `layers(...)` list finitely many indices, and select the others by residue (`every n`). So the first indices of each
/// residue represent all others.
#[derive(Clone, Debug)]
pub(super) struct Indices {
    /// The first index from which the result of all selectors depends only on the residue: no range of a selector
    /// ends later, and no `every n from m` begins later.
    named: usize,
    /// The smallest number of batch rows, heads or layers at which the selectors are valid.
    least: usize,
    /// The least common multiple of the steps of all `every` selectors.
    period: usize,
    /// The required number of indices if a parameter in the masks has one entry per index; otherwise `None`.
    exactly: Option<usize>,
}

impl Default for Indices {
    fn default() -> Self {
        Indices { named: 0, least: 1, period: 1, exactly: None }
    }
}

impl Indices {
    pub(super) fn arm(&mut self, selector: &Selector) -> Result<(), String> {
        match selector {
            Selector::Spans(spans) => {
                for span in spans.iter().filter(|span| span.end != Some(span.start)) {
                    let end = span.end.unwrap_or(span.start.saturating_add(1));
                    self.least = self.least.max(end);
                    self.named = self.named.max(end);
                }
            }
            Selector::Every { step, from } => {
                self.named = self.named.max(*from);
                self.period = least_common_multiple(self.period, (*step).max(1))
                    .ok_or("the least common multiple of the steps of `every` is too large to compare the masks")?;
            }
            Selector::Else => {}
        }
        Ok(())
    }

    pub(super) fn exactly(&mut self, count: usize) -> Result<(), String> {
        match self.exactly.replace(count) {
            Some(other) if other != count => Err(format!(
                "no batch size fits both masks: the masks have lists for {other} and for {count} batch rows"
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self.exactly {
            Some(count) if count < self.least => Err(format!(
                "no batch size fits both masks: the masks have a list for {count} batch rows, and a selector names batch row {}",
                self.least - 1
            )),
            _ => Ok(()),
        }
    }

    /// Returns the number of indices that a comparison visits, from index 0 on. They represent all others.
    pub(super) fn len(&self) -> usize {
        self.exactly.unwrap_or(self.named.saturating_add(self.period))
    }

    /// Returns the smallest number of indices (batch rows, heads or layers) for which the selectors and the lists of
    /// both masks are valid.
    pub(super) fn least(&self) -> usize {
        self.exactly.unwrap_or(self.least)
    }
}

/// Returns the least common multiple of `a` and `b`, or `None` if it exceeds 2^32.
pub(super) fn least_common_multiple(a: usize, b: usize) -> Option<usize> {
    let common = gcd(a as u64, b as u64).max(1) as usize;
    (a / common).checked_mul(b).filter(|n| *n <= 1 << 32)
}
