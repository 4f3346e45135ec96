//! All tests of the crate in one program. A file is a module, and `cargo test -p noren-mask --test all MODULE::` runs
//! one module.

mod atoms;
mod common;
mod conformance;
mod content;
mod corpus;
mod count;
mod device;
mod equivalent;
mod exact;
mod export;
mod facts_import;
mod facts_json;
mod facts_merge;
mod fold;
mod language;
mod laws;
mod million;
mod near_and_far;
mod orders;
mod own_atoms;
mod parse_errors;
mod plan_is_eval;
mod plan_json;
mod scale;
mod seeds;
mod select;
mod simplify;
mod tile_functions;
