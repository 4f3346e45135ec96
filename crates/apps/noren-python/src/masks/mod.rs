//! Masks, the facts to which they are bound, bound masks and plans.

pub(crate) mod atoms;
pub(crate) mod batch;
pub(crate) mod bound;
pub(crate) mod classes;
pub(crate) mod convention;
pub(crate) mod facts;
pub(crate) mod function;
pub(crate) mod mask;
pub(crate) mod read;
pub(crate) mod values;
