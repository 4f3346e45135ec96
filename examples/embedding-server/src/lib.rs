//! An HTTP server of text embeddings. It packs the texts of waiting requests one after another, without padding, until
//! a number of tokens is reached, and computes them in one pass of the model. The vector of a text has the same bits,
//! no matter which other texts are in the pass.
//!
//! ```text
//! cargo run --release -p noren-embedding-server -- --model DIR
//! curl -s localhost:8080/embed -H 'content-type: application/json' -d '{"texts": ["a text", "another text"]}'
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`queue`] | requests that wait, with a limit of tokens; the thread that computes them |
//! | [`http`] | the routes, their limits and their errors |
//!
//! The server is meant to run behind a proxy that ends TLS and limits slow clients.

pub mod http;
pub mod queue;
