//! All tests of the crate in one program. A file is a module, and `cargo test -p noren-picture --test all MODULE::`
//! runs one module.

mod atlas;
mod page;
mod pictures;
