//! Splits of a mask, lower bounds, and the search for the best split.

pub(crate) mod affinity;
pub(crate) mod baselines;
pub(crate) mod bound;
pub(crate) mod contiguous;
pub(crate) mod documents;
pub(crate) mod exhaustive;
pub(crate) mod improve;
pub(crate) mod place;
pub(crate) mod rectangles;
pub(crate) mod search;
pub(crate) mod zigzag;
