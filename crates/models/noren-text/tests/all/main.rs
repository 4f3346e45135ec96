//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-text --test all MODULE::` runs one.

mod awkward_secrets;
mod data;
mod detectors;
mod tokens;
