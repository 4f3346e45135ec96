//! All tests of the crate in one program. A file is a module, and `cargo test -p noren-flow --test all MODULE::` runs
//! one module.

mod brute;
mod flow;
mod policies;
mod policy_text;
mod seeds;
mod verdicts;
