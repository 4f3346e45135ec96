//! The doctor, flow and its checks, code and formats for other systems, private text, shared prefixes.

pub(crate) mod code;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod flow;
pub(crate) mod fold;
pub(crate) mod private;
