//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-ranks --test all MODULE::` runs one.

mod common;
mod threads;
