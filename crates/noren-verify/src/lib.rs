//! An independent verifier of the certificates that `noren flow` issues.
//!
//! The crate shares no code with the library that issues certificates. It reads masks, facts and policies from their written definition
//! (`crates/noren-mask/docs/masks.md`, `docs/flow.md`) and derives every count, set and verdict again. A certificate stores the tokens
//! that are reached after each layer, and the verifier checks each step instead of searching, so long stacks take seconds.
//!
//! ```
//! let refusal = noren_verify::verify("{}").unwrap_err();
//! assert_eq!(refusal.to_string(), "certificate: format: got nothing, expected the field");
//! ```
//!
//! [`verify`] checks a certificate, and [`verify_for`] also that it is about the given masks, sizes and facts. `noren verify FILE` is the
//! command.
//!
//! | modules | contents |
//! |---|---|
//! | `text`, `lex`, `expr`, `vocabulary` | masks from their text |
//! | `json`, `shape`, `facts`, `array`, `frame`, `given` | the rest of the input: JSON, sizes, facts, positions |
//! | `node`, `leaf`, `philox`, `cells`, `runs` | the cells of a mask, one by one and by row |
//! | `layer`, `policy`, `certificate`, `check`, `work` | one step of a closure, groups and denied pairs, the verification, the limit of steps |
//! | `refusal`, `report` | the two results |
#![forbid(unsafe_code)]

mod array;
mod cells;
mod certificate;
mod check;
mod expr;
mod facts;
mod frame;
mod given;
mod json;
mod layer;
mod leaf;
mod lex;
mod node;
mod philox;
mod policy;
mod refusal;
mod report;
mod runs;
mod shape;
mod text;
mod vocabulary;
mod work;

pub use certificate::Witness;
pub use given::{Given, Masks};
pub use json::MOST_BYTES;
pub use refusal::Refusal;
pub use report::{Report, RuleReport};

/// Checks a certificate of format 2 (`docs/flow.md`): its hash, its fields, every step of its closures, every count and
/// path, and the verdict.
///
/// # Errors
/// Returns the first fault, or the first part that cannot be established.
pub fn verify(json: &str) -> Result<Report, Refusal> {
    verify_for(json, &Given::default())
}

/// Checks a certificate as [`verify`] does, and refuses one about masks, sizes or facts other than `given`.
///
/// # Errors
/// Returns the errors of [`verify`], and an error for the first difference from `given`.
pub fn verify_for(json: &str, given: &Given) -> Result<Report, Refusal> {
    let certificate = certificate::Certificate::read(json)?;
    given.compare(&certificate)?;
    check::check(&certificate)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
