//! [`Equivalence`]: the result of a comparison of two masks, with a difference if there is one.

use crate::compare::CellIndex;
use crate::facts::Facts;
use crate::facts::shape::Shape;
use std::fmt;

/// The result of [`Mask::equivalent`](crate::Mask::equivalent).
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Equivalence {
    /// The masks are equal: they allow the same cells at the lengths that were compared.
    Equal {
        /// The (shortest length, longest length) at which both masks bind without facts. Without another limit, the longest
        /// length is [`Shape::MAX_LEN`]. Nothing is established about other lengths, at which facts such as the numbers of
        /// non-padding tokens may let both masks bind.
        lengths: (usize, usize),
        /// Number of compared cells. They represent all cells: the masks agree in every other cell because they agree
        /// in these.
        compared: usize,
    },
    /// The masks differ: with the shape `shape` and the facts `facts`, exactly one mask allows the cell `cell`.
    Differ {
        /// The layer in which the masks differ; 0 if neither mask has `layers(...)`.
        layer: usize,
        /// A square shape in which the masks differ.
        shape: Shape,
        /// True if it is proved that the masks are equal at every smaller length. Always false if an atom of the masks
        /// reads facts or is random.
        shortest: bool,
        /// The facts with which the masks differ. The facts are empty if the masks read no facts.
        facts: Box<Facts>,
        /// A cell that exactly one of the masks allows.
        cell: CellIndex,
        /// True if the first mask allows `cell` and the second does not; false for the opposite.
        only_first: bool,
    },
    /// The comparison proved neither that the masks are equal nor that they differ.
    Undecided {
        /// The text of the elementary masks (atoms) for which a comparison of finitely many cells proves nothing, such
        /// as `documents`.
        atoms: Vec<String>,
        /// The reason why the comparison has no result, as a sentence.
        reason: String,
    },
}

/// Writes the result in one sentence.
impl fmt::Display for Equivalence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Equivalence::Equal { lengths: (1, Shape::MAX_LEN), compared } => {
                write!(f, "the masks are equal at every length ({compared} compared cells represent all others)")
            }
            Equivalence::Equal { lengths: (first, last), compared } => {
                match first == last {
                    true => write!(f, "the masks are equal at length {first}")?,
                    false => write!(f, "the masks are equal at every length from {first} to {last}")?,
                }
                write!(
                    f,
                    " ({compared} compared cells represent all others); no other length was compared, because both masks bind \
                     there only with facts, or not at all"
                )
            }
            Equivalence::Differ { layer, shape, shortest, facts, cell, only_first } => {
                let side = if *only_first { "first" } else { "second" };
                let (n, chosen) = (shape.q_len(), **facts != Facts::new());
                match (chosen, shortest) {
                    (true, _) => write!(f, "the masks differ at length {n} with the facts {}", in_words(facts))?,
                    (false, true) => {
                        write!(f, "the masks differ at length {n}, and at no shorter length that both have")?
                    }
                    (false, false) => write!(f, "the masks differ at length {n}")?,
                }
                write!(f, ": only the {side} mask lets query {} read key {}", cell.q, cell.k)?;
                for (what, index) in [("layer", *layer), ("batch row", cell.batch), ("head", cell.head)] {
                    if index > 0 {
                        write!(f, ", {what} {index}")?;
                    }
                }
                Ok(())
            }
            Equivalence::Undecided { atoms, reason } if atoms.is_empty() => {
                write!(f, "not established whether the masks are equal: {reason}")
            }
            Equivalence::Undecided { atoms, reason } => {
                write!(f, "not established whether the masks are equal: {reason}: {}", atoms.join(", "))
            }
        }
    }
}

/// Returns the facts as JSON if the feature `serde` is on; otherwise in the debug format.
fn in_words(facts: &Facts) -> String {
    #[cfg(feature = "serde")]
    return facts.to_json().unwrap_or_default();
    #[cfg(not(feature = "serde"))]
    format!("{facts:?}")
}

/// One layer, batch row and head in which two masks are compared, as indices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class {
    pub(super) layer: usize,
    pub(super) batch: usize,
    pub(super) head: usize,
}
