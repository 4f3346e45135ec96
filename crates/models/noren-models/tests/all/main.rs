//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-models --test all MODULE::` runs one.

mod embedded;
mod families;
mod influence;
mod minilm;
mod models;
mod modules;
mod private;
mod private_classifiers;
mod recognize;
mod train;
