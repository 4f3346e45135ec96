//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-picture --test all MODULE::` runs one.

mod atlas;
mod pictures;
