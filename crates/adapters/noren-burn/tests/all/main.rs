//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-burn --test all MODULE::` runs one.

mod corpus;
mod errors;
mod gradients;
mod layer;
mod masks;
mod random;
mod textbook;
