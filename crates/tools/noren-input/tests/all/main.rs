//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-input --test all MODULE::` runs one.

mod seeds;
