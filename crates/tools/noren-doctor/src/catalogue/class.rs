//! [`Class`]: one class of mistakes.

use crate::intent::edits::Edit;

/// One class of mistakes in the catalogue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Class {
    /// The number in the catalogue, such as `C02`.
    pub code: &'static str,
    /// The name of the class in findings, such as `causal_leak`.
    pub name: &'static str,
    /// The least input with which the mistake can be found. T0: the mask. T1: also a declared kind or expression. T2:
    /// also token ids, lengths or labels. T3: also intermediate tensors. T4: the running model. T5: gradients.
    pub tier: &'static str,
    /// A short title of the class.
    pub title: &'static str,
    /// The symptoms that the user observes.
    pub shows: &'static str,
    /// The property of the given arrays by which the mistake is found.
    pub found: &'static str,
    /// The code that usually causes the mistake. A finding names the first cause that is true of the data.
    pub(crate) causes: &'static [Cause],
    /// The code or expression to write instead.
    pub repair: &'static str,
    /// A small example that is drawn in the catalogue; `None` if the class has no example.
    pub example: Option<Example>,
}

/// The facts under which a cause is possible, and the code or the action that causes the mistake.
pub(super) type Cause = (&'static [Fact], &'static str);

/// Returns a class without its texts.
pub(super) const fn class(code: &'static str, name: &'static str, tier: &'static str, title: &'static str) -> Class {
    Class { code, name, tier, title, shows: "", found: "", causes: &[], repair: "", example: None }
}

impl Class {
    pub(super) const fn shows(self, shows: &'static str) -> Self {
        Class { shows, ..self }
    }

    pub(super) const fn found(self, found: &'static str) -> Self {
        Class { found, ..self }
    }

    pub(super) const fn causes(self, causes: &'static [Cause]) -> Self {
        Class { causes, ..self }
    }

    pub(super) const fn repair(self, repair: &'static str) -> Self {
        Class { repair, ..self }
    }

    pub(super) const fn example(self, wrong: &'static str, right: &'static str, shape: (usize, usize, i64)) -> Self {
        Class { example: Some(Example { wrong, right, shape }), ..self }
    }

    /// Returns the usual causes as one text, with `; or ` between two causes.
    pub fn cause(&self) -> String {
        self.causes.iter().map(|cause| cause.1).collect::<Vec<_>>().join("; or ")
    }
}

/// A fact about the given data or about a finding, on which a cause depends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fact {
    /// The check of the class has named this cause.
    Checked,
    /// A stored true allows a cell.
    Keeps,
    /// A stored true hides a cell.
    Drops,
    /// The numbers are added to the scores.
    Adds,
    /// The array holds minus infinity.
    Infinite,
    /// The array holds a positive number.
    Positive,
    NaN,
    /// All numbers are results of `~` on an integer 0 or 1.
    Flipped,
    /// The number of dimensions of the array.
    Rank(usize),
    /// The intended mask is causal.
    Causal,
    /// The intended mask is known and not causal.
    NotCausal,
    /// The intended mask has no window.
    NoWindow,
    /// The width of a causal window counts the query's own key.
    WithSelf,
    /// The width of a causal window counts only keys before the query.
    WithoutSelf,
    /// A batch row has padding.
    Padded,
    /// A batch row begins with padding.
    LeftPadded,
    /// The finding states this mistake.
    Made(Edit),
    /// The finding is not about single cells.
    NoCells,
    /// All rows of the finding belong to padding queries.
    PaddingQueries,
    /// Every query reads every key.
    AllVisible,
    /// The cells are those of a causal mask without other terms.
    Triangle,
    /// Every query reads all keys or none.
    EqualRows,
    /// All batch rows have the same cells.
    EqualBatch,
}

/// An example of a mistake: the expressions of the faulty mask and of the correct mask, with their shape.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Example {
    /// The expression of the mask with the mistake.
    pub wrong: &'static str,
    /// The expression of the correct mask.
    pub right: &'static str,
    /// In this order: number of queries, number of keys, position of the first query.
    pub shape: (usize, usize, i64),
}
