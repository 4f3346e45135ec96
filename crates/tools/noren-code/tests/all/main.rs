//! All tests of the crate in one program. A file is a module, and `cargo test -p noren-code --test all MODULE::`
//! runs one module.

mod refused;
#[rustfmt::skip]
mod snippets;
mod snippets_run;
