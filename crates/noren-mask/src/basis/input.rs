//! [`Input`]: what an atom reads.

/// What the cells of an atom depend on, beside the positions of query and key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The batch row.
    Batch,
    /// The query head.
    Head,
    /// Which tokens are real, from the facts.
    Lengths,
    /// The documents of the facts.
    Documents,
    /// The levels of the facts.
    Levels,
    /// The positions that carry a label of the facts.
    Label(&'a str),
    /// An array of the facts.
    Array(&'a str),
    /// A closure of the facts.
    Closure(&'a str),
}
