//! [`Mask::equivalent`]: whether two masks allow the same cells at every length.
//!
//! If a mask reads no facts, only the positions `q` and `k` decide a cell. The result depends on three things: whether
//! `q` and `k` are before or after each listed position, whether `q - k` is within each window, and the residues of
//! chunks and strides. Two masks have finitely many positions, windows, chunks and strides, so finitely many cells
//! represent all others. `columns.rs` has the proof.

mod answer;
mod columns;
mod range;
mod term;
mod witness;

use crate::facts::Facts;
use crate::facts::shape::Shape;
use crate::mask::Mask;
use crate::mask::basis::Case;
use crate::{Error, Node};
pub use answer::Equivalence;

use answer::Class;
use columns::{Candidate, Columns};
use range::{Indices, Lengths};
use term::Terms;

/// The maximum number of steps of a comparison of two masks. In one step, one atom is evaluated for one cell. An atom
/// with a list takes one step for each range of the list.
const BUDGET: usize = 1_000_000_000;
/// The maximum number of values in all examples of facts together. The search for a differing cell binds the masks with
/// these examples.
const MOST_FACTS: usize = 1 << 26;
/// The two lengths at which masks are compared cell by cell if a complete comparison is too large.
const SAMPLE_LENGTHS: [usize; 2] = [256, 2048];
/// The maximum number of classes (combinations of layer, batch row and head) in a comparison.
const MAX_CLASSES: usize = 4096;

impl Mask {
    /// Returns whether both masks allow the same cells at every length, proved by comparing finitely many cells.
    ///
    /// A length `n` means [`Shape::square(n)`](Shape::square) with any number of batch rows and heads. A shape with a cache has the
    /// same cells at the same positions, so a proof also covers shapes with offsets of 0 or more. Facts that give keys
    /// their own positions are not considered.
    ///
    /// Atoms that read facts (`padding`, `documents`, `clearance`, labels, arrays), functions and random atoms are
    /// unknowns. Two masks are equal if they agree for all values of the unknowns. If they disagree for some values,
    /// the masks are bound with examples of facts and compared. If no example shows a difference, the result is
    /// [`Equivalence::Undecided`] with the names of the atoms.
    ///
    /// ```
    /// use noren_mask::{Equivalence, Mask};
    /// let mask = |text: &str| text.parse::<Mask>().unwrap();
    /// assert!(matches!(mask("causal & window(left=3)").equivalent(&mask("sliding(4)"))?, Equivalence::Equal { .. }));
    /// match mask("causal").equivalent(&mask("sliding(50000)"))? {
    ///     Equivalence::Differ { shape, cell, .. } => assert_eq!((shape.q_len(), cell.q, cell.k), (50_001, 50_000, 0)),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the parameters of a mask are invalid at every length. If the comparison is too large, the
    /// result is [`Equivalence::Undecided`].
    pub fn equivalent(&self, other: &Mask) -> Result<Equivalence, Error> {
        self.check()?;
        other.check()?;
        Comparison { masks: [self, other] }.run()
    }
}

struct Comparison<'a> {
    masks: [&'a Mask; 2],
}

impl Comparison<'_> {
    fn run(&self) -> Result<Equivalence, Error> {
        let Some(lengths) = Lengths::of(&self.masks) else {
            return Ok(undecided(
                "no sequence length fits both masks, because the lists in the masks are for different lengths",
            ));
        };
        let indices = match self.indices() {
            Ok(indices) => indices,
            Err(reason) => return Ok(undecided(&reason)),
        };
        let [layers, batches, heads] = &indices;
        let count = indices.iter().fold(1usize, |n, i| n.saturating_mul(i.len()));
        if count > MAX_CLASSES {
            return Ok(undecided(&format!(
                "`heads(...)`, `batch(...)` and `layers(...)` select {count} combinations of layer, batch row and head, but at most {MAX_CLASSES} can be compared"
            )));
        }
        let mut search = Search { left: BUDGET, ..Search::default() };
        for layer in 0..layers.len() {
            let masks = self.masks.map(|mask| mask.at_layer(layer));
            for (batch, head) in (0..batches.len()).flat_map(|b| (0..heads.len()).map(move |h| (b, h))) {
                if let Err(reason) = search.look([&masks[0], &masks[1]], lengths, Class { layer, batch, head }) {
                    return self.sampled(lengths, &indices, &reason);
                }
            }
        }
        self.answer(search, lengths, (batches.least(), heads.least()))
    }

    /// Returns the result of a finished search. The masks are equal if no case of the search can differ. They differ if
    /// a case that differs also occurs in practice: a shape and facts (data given when a mask is bound) were found for
    /// which exactly one mask allows some cell. If cases may differ but no such facts were found, the result is
    /// undecided. `sizes` is (batch rows, heads) of the shape.
    fn answer(&self, search: Search, lengths: Lengths, sizes: (usize, usize)) -> Result<Equivalence, Error> {
        let Search { compared, found, mut open, unknowns, .. } = search;
        open.sort_unstable();
        let mut budget = MOST_FACTS;
        for (candidate, class) in found.iter().chain(&open) {
            if let Some(answer) =
                witness::realise(&self.masks, (*candidate, *class), sizes, unknowns.is_empty(), &mut budget)?
            {
                return Ok(answer);
            }
        }
        let reason = match (found.is_some(), open.is_empty()) {
            (false, true) => {
                return Ok(Equivalence::Equal { lengths: (lengths.first, lengths.last), compared });
            }
            (true, _) => {
                "the masks differ for every choice of the cells of these elementary masks (atoms), but no facts were found that fit both masks"
            }
            (false, false) => {
                "the result depends on elementary masks (atoms) whose cells cannot be compared at every length"
            }
        };
        Ok(Equivalence::Undecided { atoms: unknowns, reason: reason.into() })
    }

    /// Returns the indices that a comparison visits, in the order `[layers, batch rows, heads]`. They represent all
    /// other indices.
    fn indices(&self) -> Result<[Indices; 3], String> {
        let mut all = [Indices::default(), Indices::default(), Indices::default()];
        for mask in self.masks {
            collect(mask, &mut all)?;
        }
        all.iter().try_for_each(Indices::check)?;
        Ok(all)
    }

    /// Compares the masks cell by cell at two lengths, because a complete comparison is too large. `reason` is the
    /// explanation in the result if no difference is found.
    fn sampled(&self, lengths: Lengths, indices: &[Indices; 3], reason: &str) -> Result<Equivalence, Error> {
        let [layers, batches, heads] = indices;
        let sizes = (batches.least().max(batches.len()), heads.least().max(heads.len()));
        let mut equal = Vec::new();
        for n in SAMPLE_LENGTHS.into_iter().filter(|n| (lengths.first..=lengths.last).contains(n)) {
            let shape = Shape::square(n).batch(sizes.0).heads(sizes.1);
            for layer in 0..layers.len() {
                let bound = self.masks.map(|mask| mask.at_layer(layer).bind(&shape, &Facts::new()));
                let [Ok(first), Ok(second)] = bound else { return Ok(undecided(reason)) };
                if let Some(cell) = first.first_difference(&second)? {
                    let candidate = Candidate { len: n, q: cell.q as i64, k: cell.k as i64 };
                    let class = Class { layer, batch: cell.batch, head: cell.head };
                    if let Some(answer) = witness::realise(&self.masks, (candidate, class), sizes, false, &mut 0)? {
                        return Ok(answer);
                    }
                }
            }
            equal.push(n.to_string());
        }
        Ok(undecided(&match equal.is_empty() {
            true => reason.to_string(),
            false => format!("{reason}; no difference was found at length {}", equal.join(" and ")),
        }))
    }
}

/// The intermediate results of a comparison, over all classes (combinations of layer, batch row and head).
#[derive(Default)]
struct Search {
    compared: usize,
    /// The number of budget steps that are left for the classes that are not compared yet.
    left: usize,
    /// A cell in which the masks differ for all values of the unknowns (atoms that read facts or are random), with its
    /// class. Of all such cells found so far, this cell has the shortest sequence length.
    found: Option<(Candidate, Class)>,
    /// Cells in which the masks differ for some values of the unknowns (atoms that read facts or are random), each with
    /// its class.
    open: Vec<(Candidate, Class)>,
    unknowns: Vec<String>,
}

impl Search {
    /// Compares the masks in one class (layer, batch row and head), and stores the differences in `found` and `open`.
    ///
    /// # Errors
    /// Returns the reason as text if the masks cannot be compared in this class.
    fn look(&mut self, masks: [&Mask; 2], lengths: Lengths, class: Class) -> Result<(), String> {
        let terms = Terms::new(masks, class.batch, class.head)?;
        let columns = Columns::new(&terms, lengths, self.left)?;
        self.left = self.left.saturating_sub(columns.cost() as usize);
        let outcome = columns.compare(self.found.as_ref().map(|(best, _)| best.len));
        self.compared += outcome.compared;
        for name in terms.unknowns() {
            if !self.unknowns.contains(name) {
                self.unknowns.push(name.clone());
            }
        }
        self.open.extend(outcome.open.into_iter().map(|candidate| (candidate, class)));
        if let Some(candidate) = outcome.certain
            && self.found.as_ref().is_none_or(|(best, _)| candidate.len < best.len)
        {
            self.found = Some((candidate, class));
        }
        Ok(())
    }
}

fn collect(mask: &Mask, all: &mut [Indices; 3]) -> Result<(), String> {
    mask.nodes().into_iter().try_for_each(|part| match part.node() {
        Node::Layers(arms) => arms.iter().try_for_each(|arm| all[0].arm(&arm.selector)),
        Node::Batch(arms) => arms.iter().try_for_each(|arm| all[1].arm(&arm.selector)),
        Node::Heads(arms) => arms.iter().try_for_each(|arm| all[2].arm(&arm.selector)),
        Node::Atom(atom) => {
            // the number of batch rows is independent of batch row and padding
            let sizes = atom.sizes(Case { batch: 0, padded: false });
            sizes.batch.map_or(Ok(()), |count| all[1].exactly(count))
        }
        _ => Ok(()),
    })
}

fn undecided(reason: &str) -> Equivalence {
    Equivalence::Undecided { atoms: Vec::new(), reason: reason.into() }
}
