//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-verify --test all MODULE::` runs one.

mod brute;
mod certificates;
mod draw;
mod limits;
mod membership;
mod seeds;
