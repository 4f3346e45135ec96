//! All tests of the crate, in one program. Each file is a module; `cargo test -p noren-cli --test all MODULE::` runs
//! one module.

mod attend;
mod bench;
mod check;
mod classify;
mod common;
mod embed;
mod generate;
mod hostile;
mod hub;
mod run;
mod serve;
mod text;
mod train;
mod transcripts;
mod words;
