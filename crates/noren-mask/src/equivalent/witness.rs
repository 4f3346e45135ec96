//! A difference, shown: a shape and facts under which one mask allows a cell and the other does not.

use super::columns::Candidate;
use super::{Class, Equivalence};
use crate::Error;
use crate::compare::Cell;
use crate::facts::Facts;
use crate::mask::{Mask, Node, Side};
use crate::set::{Set, Span};
use crate::shape::Shape;
use std::collections::BTreeSet;

/// Facts are made for lengths up to this.
const MAX_LEN: u64 = 1 << 20;

/// Binds both masks at the candidate's length, without facts and then with facts that give its cell different properties. The
/// answer is a cell that was looked at in both.
pub(super) fn realise(
    masks: &[&Mask; 2],
    candidate: Candidate,
    class: Class,
    (batches, heads): (u64, u64),
) -> Result<Option<Equivalence>, Error> {
    let Class { layer, batch, head } = class;
    let shape = Shape::square(candidate.len as usize)
        .batch(batches.max(batch + 1) as usize)
        .heads(heads.max(head + 1) as usize);
    let at_layer = masks.map(|mask| mask.at_layer(layer));
    let needs = Needs::of(&at_layer);
    let cell = Cell { batch: batch as usize, head: head as usize, q: candidate.q as usize, k: candidate.k as usize };
    for facts in needs.facts(&candidate, shape.batch_len()) {
        let (Ok(first), Ok(second)) = (at_layer[0].bind(&shape, &facts), at_layer[1].bind(&shape, &facts)) else {
            continue;
        };
        let allowed = [&first, &second].map(|bound| bound.allowed(cell.batch, cell.head, cell.q, cell.k));
        if allowed[0] != allowed[1] {
            let facts = Box::new(facts);
            return Ok(Some(Equivalence::Differ { layer, shape, facts, cell, only_first: allowed[0] }));
        }
    }
    Ok(None)
}

/// The facts that two masks read.
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
        match mask.node() {
            Node::Padding(padding) => self.lengths |= padding.lengths.is_none(),
            Node::Documents { lengths } => self.documents |= lengths.is_none(),
            Node::Clearance => self.levels = true,
            Node::Keys(Set::Label(label)) | Node::Queries(Set::Label(label)) | Node::Global(Set::Label(label)) => {
                self.labels.insert(label.clone());
            }
            _ => {}
        }
        mask.children().into_iter().for_each(|part| self.add(part));
    }

    /// Facts that place the candidate's query and key in padding or not, in one document or two, at equal or different levels, under
    /// each label or not.
    fn facts(&self, candidate: &Candidate, batches: usize) -> Vec<Facts> {
        let Candidate { len, q, k } = *candidate;
        let (q, k) = (q as u64, k as u64);
        let mut all = vec![Facts::new()];
        if len > MAX_LEN {
            return all;
        }
        if self.lengths {
            let sides = [Side::Right, Side::Left];
            let lengths: BTreeSet<u64> =
                [len, q, k, q + 1, k + 1, len - q - 1, len - k - 1, 0].into_iter().filter(|n| *n <= len).collect();
            let given = sides.iter().flat_map(|side| lengths.iter().map(move |n| (*side, *n)));
            let given: Vec<_> = given.collect();
            all = vary(&all, &given, |facts, (side, n)| facts.lengths(vec![*n; batches]).side(*side));
        }
        if self.documents {
            let (low, high) = (q.min(k), q.max(k));
            let lists = [vec![len], vec![low + 1, len - low - 1], vec![high, len - high]];
            let lists: Vec<Vec<u64>> =
                lists.into_iter().map(|list| list.into_iter().filter(|n| *n > 0).collect()).collect();
            all = vary(&all, &lists, |facts, list| facts.documents(list.clone()));
        }
        if self.levels {
            let given = [(0, 0), (1, 0), (0, 1)];
            all = vary(&all, &given, |facts, (of_query, of_key)| {
                let mut levels = vec![0i64; len as usize];
                levels[k as usize] = *of_key;
                levels[q as usize] = *of_query;
                facts.levels(levels)
            });
        }
        for label in self.labels.iter().take(4) {
            let sets: [Vec<Span>; 4] =
                [vec![], vec![Span::from(q)], vec![Span::from(k)], vec![Span::from(q), Span::from(k)]];
            all = vary(&all, &sets, |facts, set| facts.label(label.clone(), set.iter().copied()));
        }
        all
    }
}

fn vary<T>(all: &[Facts], choices: &[T], with: impl Fn(Facts, &T) -> Facts) -> Vec<Facts> {
    all.iter().flat_map(|facts| choices.iter().map(|choice| with(facts.clone(), choice)).collect::<Vec<_>>()).collect()
}
