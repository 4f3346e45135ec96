//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-candle --test all MODULE::` runs one.

mod adapters;
mod attention;
mod embedded;
mod families;
mod flash;
mod influence;
mod minilm;
mod models;
mod modules;
mod private;
mod private_classifiers;
mod recognize;
mod train;
