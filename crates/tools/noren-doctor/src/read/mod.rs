//! The given array and what is declared with it: values, words, names.

pub(crate) mod context;
pub(crate) mod input;
pub(crate) mod kinds;
pub(crate) mod reader;
pub(crate) mod values;
pub(crate) mod words;

#[cfg(test)]
mod tests;
