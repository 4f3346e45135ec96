//! The server: HTTP, files of the page, limits, and the processes that compute answers.

pub(crate) mod connections;
pub(crate) mod guard;
pub(crate) mod http;
pub(crate) mod page;
pub(crate) mod pool;
pub(crate) mod routes;
pub(crate) mod server;

#[cfg(test)]
mod tests;
