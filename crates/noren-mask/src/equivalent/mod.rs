//! [`Mask::equivalent`]: whether two masks allow the same cells at every length.
//!
//! A mask that reads no facts decides a cell by its two positions alone. Such a cell depends on three things: on which side of a
//! listed position `q` and `k` are, on which side of a window's end `q - k` is, and on the residues that chunks and strides read. Both
//! masks together list finitely many of each, so finitely many cells stand for all others. The argument is in `columns.rs`.

mod columns;
mod range;
mod term;
mod witness;

use crate::compare::Cell;
use crate::facts::Facts;
use crate::mask::Mask;
use crate::shape::Shape;
use crate::{Error, Node};
use columns::{Candidate, Columns};
use range::{Indices, Lengths};
use std::fmt;
use term::Terms;

/// What [`Mask::equivalent`] established.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Equivalence {
    /// Both masks allow the same cells at every length at which both bind.
    Equal {
        /// The shortest and the longest length at which both masks bind. [`Shape::MAX_LEN`] is the longest length of all.
        lengths: (usize, usize),
        /// Number of cells that were compared; every other cell is in the class of one of them.
        compared: u64,
    },
    /// The masks differ in `cell` under `shape` and `facts`.
    Differ {
        /// The layer in which they differ: 0 unless a mask has `layers(...)`.
        layer: u64,
        /// A square shape. It is the shortest at which the masks differ, unless `facts` holds facts.
        shape: Shape,
        /// Facts under which they differ; empty when no mask reads facts there.
        facts: Box<Facts>,
        /// A cell that exactly one of them allows.
        cell: Cell,
        /// True when the first mask allows the cell and the second does not.
        only_first: bool,
    },
    /// Neither was established.
    Undecided {
        /// The atoms that no finite comparison decides, as text.
        atoms: Vec<String>,
        /// Why, in a sentence.
        reason: String,
    },
}

/// One sentence with what was established.
impl fmt::Display for Equivalence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Equivalence::Equal { lengths: (1, Shape::MAX_LEN), compared } => {
                write!(f, "equal at every length ({compared} cells compared, which stand for all others)")
            }
            Equivalence::Equal { lengths: (first, last), compared } => write!(
                f,
                "equal at every length from {first} to {last}, where both masks bind ({compared} cells compared, which stand for all others)"
            ),
            Equivalence::Differ { layer, shape, facts, cell, only_first } => {
                let side = if *only_first { "first" } else { "second" };
                let (n, chosen) = (shape.q_len(), **facts != Facts::new());
                match chosen {
                    true => write!(f, "differ at length {n} with facts {}", facts.to_json().unwrap_or_default())?,
                    false => write!(f, "differ from length {n} on")?,
                }
                write!(f, ": query {} -> key {}, only in the {side}", cell.q, cell.k)?;
                for (what, index) in [("layer", *layer), ("batch row", cell.batch as u64), ("head", cell.head as u64)] {
                    if index > 0 {
                        write!(f, ", {what} {index}")?;
                    }
                }
                Ok(())
            }
            Equivalence::Undecided { atoms, reason } if atoms.is_empty() => write!(f, "not established: {reason}"),
            Equivalence::Undecided { atoms, reason } => write!(f, "not established: {reason}: {}", atoms.join(", ")),
        }
    }
}

/// More cells than this are not compared.
const BUDGET: u64 = 200_000_000;
/// More combinations of layer, batch row and head than this are not compared.
const MAX_CLASSES: u64 = 4096;

impl Mask {
    /// Returns whether both masks allow the same cells at every length, proved by comparing finitely many cells.
    ///
    /// A length `n` means [`Shape::square(n)`](Shape::square) with any number of batch rows and heads. A shape with a cache has the
    /// same cells at the same positions, so a proof covers shapes with offsets of 0 or more too.
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

/// One layer, batch row and head, with the sizes that the masks need there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Class {
    layer: u64,
    batch: u64,
    head: u64,
}

impl Comparison<'_> {
    fn run(&self) -> Result<Equivalence, Error> {
        let Some(lengths) = Lengths::of(&self.masks) else {
            return Ok(undecided("no length lets both masks bind: their lists of positions have different sums"));
        };
        let [layers, batches, heads] = match self.indices() {
            Ok(indices) => indices,
            Err(reason) => return Ok(undecided(&reason)),
        };
        let count = [&layers, &batches, &heads].iter().fold(1u64, |n, i| n.saturating_mul(i.len()));
        if count > MAX_CLASSES {
            return Ok(undecided(&format!(
                "the arms make {count} combinations of layer, batch row and head, of which {MAX_CLASSES} can be compared"
            )));
        }
        let mut compared = 0u64;
        let mut found: Option<(Candidate, Class)> = None;
        let mut open: Vec<(Candidate, Class)> = Vec::new();
        let mut unknowns = Vec::new();
        for layer in 0..layers.len() {
            let masks = self.masks.map(|mask| mask.at_layer(layer));
            for (batch, head) in (0..batches.len()).flat_map(|b| (0..heads.len()).map(move |h| (b, h))) {
                let class = Class { layer, batch, head };
                let terms = match Terms::new([&masks[0], &masks[1]], batch, head) {
                    Ok(terms) => terms,
                    Err(reason) => return Ok(undecided(&reason)),
                };
                let outcome = match Columns::new(&terms, lengths, BUDGET - compared.min(BUDGET)) {
                    Ok(columns) => columns.compare(found.as_ref().map(|(best, _)| best.len)),
                    Err(reason) => return self.too_large(lengths, reason),
                };
                compared += outcome.compared;
                for name in terms.unknowns() {
                    if !outcome.open.is_empty() && !unknowns.contains(name) {
                        unknowns.push(name.clone());
                    }
                }
                open.extend(outcome.open.into_iter().map(|candidate| (candidate, class)));
                if let Some(candidate) = outcome.certain
                    && found.as_ref().is_none_or(|(best, _)| candidate.len < best.len)
                {
                    found = Some((candidate, class));
                }
            }
        }
        let sizes = (batches.least(), heads.least());
        // A difference under any facts is the better answer; one under chosen facts is tried next, the shortest first.
        open.sort_unstable();
        for (candidate, class) in found.iter().chain(&open) {
            if let Some(answer) = witness::realise(&self.masks, *candidate, *class, sizes)? {
                return Ok(answer);
            }
        }
        if found.is_some() || !open.is_empty() {
            let reason = "whether the masks agree depends on atoms that no finite comparison decides";
            return Ok(Equivalence::Undecided { atoms: unknowns, reason: reason.into() });
        }
        Ok(Equivalence::Equal { lengths: (lengths.first as usize, lengths.last as usize), compared })
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

    /// Compares lengths that can be compared cell by cell after all, for masks whose classes are too many.
    fn too_large(&self, lengths: Lengths, reason: String) -> Result<Equivalence, Error> {
        let shape = |n: u64| Shape::square(n as usize);
        let mut agreed = 0;
        for n in [256u64, 2048, 8192].map(|n| n.clamp(lengths.first, lengths.last)) {
            let bound = |mask: &Mask| mask.bind(&shape(n), &Facts::new());
            let (Ok(first), Ok(second)) = (bound(self.masks[0]), bound(self.masks[1])) else { break };
            let mut cells = first.differences(&second, 1 << 16)?;
            cells.sort_by_key(|c| (c.q.max(c.k), c.q, c.k));
            if let Some(cell) = cells.first() {
                let candidate = Candidate { len: cell.q.max(cell.k) as u64 + 1, q: cell.q as i64, k: cell.k as i64 };
                let candidate = Candidate { len: candidate.len.max(lengths.first), ..candidate };
                let class = Class { layer: 0, batch: 0, head: 0 };
                if let Some(answer) = witness::realise(&self.masks, candidate, class, (1, 1))? {
                    return Ok(answer);
                }
            }
            agreed = n;
        }
        let beyond = if agreed > 0 { format!("; they agree at every length up to {agreed}") } else { String::new() };
        Ok(undecided(&format!("{reason}{beyond}")))
    }
}

fn collect(mask: &Mask, all: &mut [Indices; 3]) -> Result<(), String> {
    match mask.node() {
        Node::Layers(arms) => arms.iter().try_for_each(|arm| all[0].arm(&arm.selector))?,
        Node::Batch(arms) => arms.iter().try_for_each(|arm| all[1].arm(&arm.selector))?,
        Node::Heads(arms) => arms.iter().try_for_each(|arm| all[2].arm(&arm.selector))?,
        Node::Prefix { lengths: crate::PerRow::Each(list) } => all[1].exactly(list.len())?,
        Node::Padding(crate::Padding { lengths: Some(list), .. }) => all[1].exactly(list.len())?,
        _ => {}
    }
    mask.children().into_iter().try_for_each(|part| collect(part, all))
}

fn undecided(reason: &str) -> Equivalence {
    Equivalence::Undecided { atoms: Vec::new(), reason: reason.into() }
}
