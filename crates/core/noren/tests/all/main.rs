//! All tests of the crate, in one program: a file is a module, `cargo test -p noren --test all MODULE::` runs one.

mod backward;
mod bits;
mod cache;
mod common;
mod computed;
mod conformance;
mod corpus;
mod dropout;
mod dtypes;
mod errors;
mod functions;
mod hidden_keys;
mod large_scores;
mod linear;
mod long_rows;
mod one_call;
mod partial;
mod places;
mod random_masks;
mod scene;
mod shapes;
mod soak;
mod stored;
mod varlen;
