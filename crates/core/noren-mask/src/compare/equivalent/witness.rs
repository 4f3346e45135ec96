//! Search for a difference of two masks: a shape and facts for which exactly one of the masks allows a cell.

use super::answer::{Class, Equivalence};
use super::columns::Candidate;
use crate::Error;
use crate::compare::CellIndex;
use crate::facts::Facts;
use crate::facts::shape::Shape;
use crate::mask::Mask;
use crate::mask::basis::Input;
use crate::sets::scalar::Side;
use crate::sets::set::Span;
use std::collections::BTreeSet;

/// Searches for a shape and facts for which exactly one of two masks allows the cell of `candidate`. Binds both masks
/// at the length of the candidate, with examples of the facts that they read. Returns the difference, or `None` if no
/// example shows a difference. The shape has `batches` batch rows and `heads` heads. `shortest` becomes the field of
/// `Equivalence::Differ`. `budget` is the number of values that all examples together may have; the used number is
/// subtracted from it.
pub(super) fn realise(
    masks: &[&Mask; 2],
    (candidate, class): (Candidate, Class),
    (batches, heads): (usize, usize),
    shortest: bool,
    budget: &mut usize,
) -> Result<Option<Equivalence>, Error> {
    let Class { layer, batch, head } = class;
    let shape = Shape::square(candidate.len).batch(batches.max(batch + 1)).heads(heads.max(head + 1));
    let at_layer = masks.map(|mask| mask.at_layer(layer));
    let cell = CellIndex { batch, head, q: candidate.q as usize, k: candidate.k as usize };
    let needs = Needs::of(&at_layer);
    for number in 0..needs.choices() {
        let facts = needs.facts(number, &candidate, shape.batch_len());
        let bound = at_layer.each_ref().map(|mask| mask.bind(&shape, &facts));
        let [Ok(first), Ok(second)] = bound else { continue };
        let allowed = [&first, &second].map(|bound| bound.allowed(cell.batch, cell.head, cell.q, cell.k));
        if allowed[0] != allowed[1] {
            let facts = Box::new(facts);
            return Ok(Some(Equivalence::Differ { layer, shape, shortest, facts, cell, only_first: allowed[0] }));
        }
        *budget = budget.saturating_sub(64 + if needs.levels { candidate.len } else { 0 });
        if *budget == 0 {
            break;
        }
    }
    Ok(None)
}

/// The number of examples of the fact `lengths` that the search for a difference tries for each side of the padding.
const LENGTHS: usize = 8;
/// The number of examples of document lengths that the search for a difference tries.
const DOCUMENTS: usize = 3;
/// The number of assignments of clearance levels to query and key that the search for a difference tries.
const LEVELS: usize = 3;
/// The number of sets of positions that the search for a difference tries for one label.
const SETS: usize = 4;
/// The maximum number of labels for which the search for a difference tries several sets of positions.
const MOST_LABELS: usize = 4;

/// The kinds of facts that two masks read.
#[derive(Default)]
struct Needs {
    lengths: bool,
    documents: bool,
    levels: bool,
    labels: BTreeSet<String>,
}

impl Needs {
    fn of(masks: &[Mask]) -> Self {
        let mut needs = Needs::default();
        masks.iter().for_each(|mask| needs.add(mask));
        needs
    }

    fn add(&mut self, mask: &Mask) {
        for input in mask.atoms().into_iter().flat_map(|atom| atom.inputs()) {
            match input {
                Input::Lengths => self.lengths = true,
                Input::Documents => self.documents = true,
                Input::Levels => self.levels = true,
                Input::Label(label) => drop(self.labels.insert(label.into())),
                _ => {}
            }
        }
    }

    /// Returns the number of examples of facts that the search tries.
    fn choices(&self) -> usize {
        let many = |needed: bool, n: usize| if needed { n } else { 1 };
        let labels = SETS.pow(self.labels.len().min(MOST_LABELS) as u32);
        many(self.lengths, LENGTHS * 2) * many(self.documents, DOCUMENTS) * many(self.levels, LEVELS) * labels
    }

    /// Returns the example of facts with index `number`. The examples vary these properties of the candidate's query
    /// and key: whether they are padding, are in one document, have equal clearance levels, and have each label.
    fn facts(&self, number: usize, candidate: &Candidate, batches: usize) -> Facts {
        let Candidate { len, q, k } = *candidate;
        let (q, k) = (q as usize, k as usize);
        let mut rest = number;
        let mut choose = |n: usize| {
            let choice = rest % n;
            rest /= n;
            choice
        };
        let mut facts = Facts::new();
        if self.lengths {
            let lengths = [len, q, k, q + 1, k + 1, len - q.min(len - 1) - 1, len - k.min(len - 1) - 1, 0];
            let side = if choose(2) == 0 { Side::Right } else { Side::Left };
            facts = facts.lengths(vec![lengths[choose(LENGTHS)]; batches]).side(side);
        }
        if self.documents {
            let (low, high) = (q.min(k), q.max(k));
            let lists = [vec![len], vec![low + 1, len - low - 1], vec![high, len - high]];
            facts = facts.documents(lists[choose(DOCUMENTS)].iter().filter(|n| **n > 0).copied().collect::<Vec<_>>());
        }
        if self.levels {
            let (of_query, of_key) = [(0, 0), (1, 0), (0, 1)][choose(LEVELS)];
            let mut levels = vec![0i64; len];
            levels[k] = of_key;
            levels[q] = of_query;
            facts = facts.levels(levels);
        }
        for (number, label) in self.labels.iter().enumerate() {
            let sets: [&[usize]; SETS] = [&[], &[q], &[k], &[q, k]];
            let set = if number < MOST_LABELS { sets[choose(SETS)] } else { sets[0] };
            facts = facts.label(label.clone(), set.iter().copied().map(Span::from));
        }
        facts
    }
}
