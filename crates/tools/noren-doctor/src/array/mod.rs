//! The array as cells: its dimensions, its convention, its visible cells, limits of declared sizes.

pub(crate) mod align;
pub(crate) mod bias;
pub(crate) mod decode;
pub(crate) mod limits;
pub(crate) mod polarity;
