//! A request of the page: its parameters, what is kept between requests, and what went wrong.

pub(crate) mod call;
pub(crate) mod cause;
pub(crate) mod message;
pub(crate) mod pasted;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod scene;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod texts;
pub(crate) mod wire;
