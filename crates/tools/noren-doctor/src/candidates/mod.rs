//! Masks that may have been meant, the mistakes that lead from them to the given cells, and the search for the exact one.

pub(crate) mod expect;
pub(crate) mod planes;
pub(crate) mod resemble;
pub(crate) mod rewrites;
pub(crate) mod scope;
pub(crate) mod search;
pub(crate) mod target;
pub(crate) mod trees;
