//! [`Input`]: the data that an atom reads.

/// Data that the cells of an atom depend on, in addition to the positions of query and key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The index of the batch row.
    Batch,
    /// The index of the query head.
    Head,
    /// The lengths in the facts, which determine the tokens that are padding.
    Lengths,
    /// The documents in the facts: which positions form one document.
    Documents,
    /// The clearance levels of positions in the facts.
    Levels,
    /// The positions that have this label in the facts (data given when the mask is bound).
    Label(&'a str),
    /// The array with this name in the facts.
    Array(&'a str),
}
