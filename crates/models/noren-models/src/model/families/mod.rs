//! The layers of each family of models, and its heads.

pub(crate) mod bert;
mod bert_head;
pub(crate) mod decoder;
pub(crate) mod modernbert;
pub(crate) mod parts;
pub(crate) mod t5;
