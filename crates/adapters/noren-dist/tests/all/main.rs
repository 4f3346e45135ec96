//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-dist --test all MODULE::` runs one.

mod cover;
mod exports;
mod limits;
mod optimal;
mod ranks_common;
mod threads;
