//! [`Class`]: one class of mistakes.

/// One class of mistakes in the catalogue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Class {
    /// The number in the catalogue, such as `C02`; several classes may share one number.
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
    /// The code that usually causes the mistake.
    pub cause: &'static str,
    /// The code or expression to write instead.
    pub repair: &'static str,
    /// A small example that is drawn in the catalogue; `None` if the class has no example.
    pub example: Option<Example>,
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
