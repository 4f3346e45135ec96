//! Properties that hold for all input bytes: one function for each fuzz target. `tests/all/seeds.rs` of
//! noren-mask, noren-verify and noren-input include the same files and replay the seeds.
#![allow(unreachable_pub)]

pub mod files;
pub mod masks;
pub mod verdicts;
pub mod verifier;
