//! [`Mask::equivalent`]: whether two masks allow the same cells at every length.
//!
//! A mask that reads no facts decides a cell by its two positions alone. Such a cell depends on three things: on which side of a
//! listed position `q` and `k` are, on which side of a window's end `q - k` is, and on the residues that chunks and strides read. Both
//! masks together list finitely many of each, so finitely many cells stand for all others. The argument is in `columns.rs`.

mod answer;
mod columns;
mod range;
mod term;
mod witness;

use crate::basis::Case;
use crate::facts::Facts;
use crate::mask::Mask;
use crate::shape::Shape;
use crate::{Error, Node};
pub use answer::Equivalence;

use answer::Class;
use columns::{Candidate, Columns};
use range::{Indices, Lengths};
use term::Terms;

/// More steps than this are not taken: a step is one atom or one listed range looked at for one cell.
const BUDGET: u64 = 1_000_000_000;
/// Facts are tried until they list this many numbers together.
const MOST_FACTS: u64 = 1 << 26;
/// Lengths that are compared cell by cell where the classes are too many.
const SAMPLE_LENGTHS: [u64; 2] = [256, 2048];
/// More combinations of layer, batch row and head than this are not compared.
const MAX_CLASSES: u64 = 4096;

impl Mask {
    /// Returns whether both masks allow the same cells at every length, proved by comparing finitely many cells.
    ///
    /// A length `n` means [`Shape::square(n)`](Shape::square) with any number of batch rows and heads. A shape with a cache has the
    /// same cells at the same positions, so a proof covers shapes with offsets of 0 or more too. Facts that give keys positions of
    /// their own are not considered.
    ///
    /// Atoms that read facts (`padding`, `documents`, `clearance`, labels, arrays, closures) and random atoms are taken as unknowns: two
    /// masks are equal when they agree whatever the unknowns are. Where they disagree for some value of an unknown, facts are tried
    /// under which they differ; when none of these shows a difference, the answer is [`Equivalence::Undecided`] and names the atoms.
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
    /// A mask whose parameters [`bind`](Mask::bind) refuses at every length. A comparison that is too large to be made is no error but
    /// [`Equivalence::Undecided`].
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
            return Ok(undecided("no length lets both masks bind: their lists of positions have different sums"));
        };
        let indices = match self.indices() {
            Ok(indices) => indices,
            Err(reason) => return Ok(undecided(&reason)),
        };
        let [layers, batches, heads] = &indices;
        let count = indices.iter().fold(1u64, |n, i| n.saturating_mul(i.len()));
        if count > MAX_CLASSES {
            return Ok(undecided(&format!(
                "the arms make {count} combinations of layer, batch row and head, of which {MAX_CLASSES} can be compared"
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

    /// The answer to a finished search: a difference is given only when a shape and facts show it.
    fn answer(&self, search: Search, lengths: Lengths, sizes: (u64, u64)) -> Result<Equivalence, Error> {
        let Search { compared, found, mut open, unknowns, .. } = search;
        open.sort_unstable();
        let mut room = MOST_FACTS;
        for (candidate, class) in found.iter().chain(&open) {
            if let Some(answer) =
                witness::realise(&self.masks, (*candidate, *class), sizes, unknowns.is_empty(), &mut room)?
            {
                return Ok(answer);
            }
        }
        let reason = match (found.is_some(), open.is_empty()) {
            (false, true) => {
                return Ok(Equivalence::Equal { lengths: (lengths.first as usize, lengths.last as usize), compared });
            }
            (true, _) => "the masks differ whatever these atoms are, but no facts were found under which both bind",
            (false, false) => "whether the masks agree depends on atoms that no finite comparison decides",
        };
        Ok(Equivalence::Undecided { atoms: unknowns, reason: reason.into() })
    }

    /// The layers, batch rows and heads that stand for all others.
    fn indices(&self) -> Result<[Indices; 3], String> {
        let mut all = [Indices::default(), Indices::default(), Indices::default()];
        for mask in self.masks {
            collect(mask, &mut all)?;
        }
        all.iter().try_for_each(Indices::check)?;
        Ok(all)
    }

    /// Compares some lengths cell by cell, for masks whose classes are too many to be compared.
    fn sampled(&self, lengths: Lengths, indices: &[Indices; 3], reason: &str) -> Result<Equivalence, Error> {
        let [layers, batches, heads] = indices;
        let sizes = (batches.least().max(batches.len()), heads.least().max(heads.len()));
        let mut equal = Vec::new();
        for n in SAMPLE_LENGTHS.into_iter().filter(|n| (lengths.first..=lengths.last).contains(n)) {
            let shape = Shape::square(n as usize).batch(sizes.0 as usize).heads(sizes.1 as usize);
            for layer in 0..layers.len() {
                let bound = self.masks.map(|mask| mask.at_layer(layer).bind(&shape, &Facts::new()));
                let [Ok(first), Ok(second)] = bound else { return Ok(undecided(reason)) };
                if let Some(cell) = first.first_difference(&second)? {
                    let candidate = Candidate { len: n, q: cell.q as i64, k: cell.k as i64 };
                    let class = Class { layer, batch: cell.batch as u64, head: cell.head as u64 };
                    if let Some(answer) = witness::realise(&self.masks, (candidate, class), sizes, false, &mut 0)? {
                        return Ok(answer);
                    }
                }
            }
            equal.push(n.to_string());
        }
        let sampled = match equal.is_empty() {
            true => String::new(),
            false => format!("; no difference was found at length {}", equal.join(" and ")),
        };
        Ok(undecided(&format!("{reason}{sampled}")))
    }
}

/// What was found so far, over the classes.
#[derive(Default)]
struct Search {
    compared: u64,
    /// Steps that may still be taken.
    left: u64,
    /// The first difference for all values of the unknowns.
    found: Option<(Candidate, Class)>,
    /// Differences for some values of the unknowns.
    open: Vec<(Candidate, Class)>,
    unknowns: Vec<String>,
}

impl Search {
    /// # Errors
    /// The reason why the masks of this class cannot be compared.
    fn look(&mut self, masks: [&Mask; 2], lengths: Lengths, class: Class) -> Result<(), String> {
        let terms = Terms::new(masks, class.batch, class.head)?;
        let columns = Columns::new(&terms, lengths, self.left)?;
        self.left = self.left.saturating_sub(columns.cost() as u64);
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
    match mask.node() {
        Node::Layers(arms) => arms.iter().try_for_each(|arm| all[0].arm(&arm.selector))?,
        Node::Batch(arms) => arms.iter().try_for_each(|arm| all[1].arm(&arm.selector))?,
        Node::Heads(arms) => arms.iter().try_for_each(|arm| all[2].arm(&arm.selector))?,
        Node::Atom(atom) => {
            // the number of batch rows depends on neither
            let sizes = atom.sizes(Case { batch: 0, padded: false });
            sizes.batch.map_or(Ok(()), |count| all[1].exactly(count))?;
        }
        _ => {}
    }
    mask.children().into_iter().try_for_each(|part| collect(part, all))
}

fn undecided(reason: &str) -> Equivalence {
    Equivalence::Undecided { atoms: Vec::new(), reason: reason.into() }
}
