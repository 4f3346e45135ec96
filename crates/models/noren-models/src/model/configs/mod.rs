//! Configurations of models, read from `config.json`.

pub(crate) mod bert;
pub(crate) mod classes;
pub(crate) mod decoder;
mod layered;
pub(crate) mod modernbert;
pub(crate) mod raw;
pub(crate) mod rope;
