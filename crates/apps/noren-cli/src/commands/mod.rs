//! The commands, one module each.

pub(crate) mod attend;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod code;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod flow;
#[cfg(feature = "models")]
pub(crate) mod model;
pub(crate) mod partition;
pub(crate) mod plan;
#[cfg(feature = "models")]
pub(crate) mod run;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod show;
#[cfg(feature = "models")]
pub(crate) mod text;
#[cfg(feature = "models")]
pub(crate) mod train;
pub(crate) mod verify;
