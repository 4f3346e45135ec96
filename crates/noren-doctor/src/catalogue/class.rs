//! [`Class`]: one class of mistakes.

/// One class of mistakes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Class {
    /// Its number in the catalogue; several classes may share one.
    pub code: &'static str,
    /// Its name in findings.
    pub name: &'static str,
    /// What is needed to decide it: T0 the mask, T1 a declared intent, T2 ids or lengths or labels, T3 intermediate tensors, T4
    /// the model as a black box, T5 gradients.
    pub tier: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// How it shows.
    pub shows: &'static str,
    /// By what it is found.
    pub found: &'static str,
    /// The line of code that usually causes it.
    pub cause: &'static str,
    /// What to write instead.
    pub repair: &'static str,
    /// A small case, for pictures.
    pub example: Option<Example>,
}

/// A wrong mask beside the right one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Example {
    /// The mask that the mistake makes.
    pub wrong: &'static str,
    /// The mask that was meant.
    pub right: &'static str,
    /// Queries, keys and the position of the first query.
    pub shape: (usize, usize, i64),
}
