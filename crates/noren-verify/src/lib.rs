//! An independent checker of the certificates that `noren flow` issues.
//!
//! The crate shares no code with the library that issues them. It reads masks, facts and policies by itself, from their
//! written definition (`crates/noren-mask/docs/masks.md`, `docs/flow.md`), and derives every count, set and verdict
//! again. The check of a long stack takes seconds, because a certificate stores the influenced tokens after each layer,
//! and only the step between two layers is checked.
//!
//! ```
//! let refusal = noren_verify::verify("{}").unwrap_err();
//! assert_eq!(refusal.to_string(), "certificate: format: got nothing, expected the field");
//! ```
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
