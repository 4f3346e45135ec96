//! [`Input`]: the data that an atom reads.

/// Data that the cells of an atom depend on, in addition to the positions of query and key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The index of the batch row.
    Batch,
    /// The index of the query head.
    Head,
    /// The lengths in the facts: which tokens are padding.
    Lengths,
    /// The documents of the facts.
    Documents,
    /// The levels of the facts.
    Levels,
    /// The positions that have this label in the facts.
    Label(&'a str),
    /// The array of the facts with this name.
    Array(&'a str),
    /// The closure of the facts with this name.
    Closure(&'a str),
}
