//! The inputs of a call of attention: types of numbers, views of arrays, options, dropout.

pub(crate) mod dropout;
pub(crate) mod dtype;
pub(crate) mod options;
pub(crate) mod view;
