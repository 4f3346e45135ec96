//! Products, exponentials, score modifiers and dropout, over vectors.

pub(crate) mod dropout;
pub(crate) mod exp;
pub(crate) mod micro;
pub(crate) mod scores;
