//! What must hold whatever bytes are given: one function for each fuzz target. `tests/seeds.rs` of
//! noren-mask, noren-verify and the command include the same files and replay the seeds.
#![allow(unreachable_pub)]

pub mod files;
pub mod masks;
pub mod verdicts;
pub mod verifier;

// The command's readers of files, which belong to no library.
#[path = "../../crates/noren-cli/src/arrays.rs"]
#[allow(dead_code)]
mod arrays;
#[path = "../../crates/noren-cli/src/failure.rs"]
#[allow(dead_code)]
mod failure;
#[path = "../../crates/noren-cli/src/npy.rs"]
#[allow(dead_code)]
mod npy;
#[path = "../../crates/noren-cli/src/stored.rs"]
#[allow(dead_code)]
mod stored;
#[path = "../../crates/noren-cli/src/tensors.rs"]
#[allow(dead_code)]
mod tensors;
