//! All tests of the crate, in one program: a file is a module, `cargo test -p noren-flow --test all MODULE::` runs one.

mod brute;
mod flow;
mod policies;
mod policy_text;
mod seeds;
mod verdicts;
