//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-candle --test all MODULE::` runs one.

mod adapters;
mod attention;
mod cache;
mod flash;
