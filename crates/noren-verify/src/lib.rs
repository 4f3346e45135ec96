//! An independent checker of the certificates that `noren flow` issues.
//!
//! The crate shares no code with the library that issues them: it reads masks, facts and policies by itself, from their written
//! definition (`crates/noren-mask/docs/masks.md`, `docs/flow.md`), and derives every count, set and verdict again. Long stacks take
//! seconds, because a certificate stores who knows what after each layer, and each step of that is checked instead of searched for.
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

/// Checks a certificate of format 2 (`docs/flow.md`): its hash, its fields, every step of its closures, every count and path, and the
/// verdict.
///
/// # Errors
/// The first thing that is not as it must be, or that cannot be established.
pub fn verify(json: &str) -> Result<Report, Refusal> {
    verify_for(json, &Given::default())
}

/// [`verify`], and refuses a certificate about other masks, sizes or facts than `given`.
///
/// # Errors
/// As [`verify`], and the first thing in which the certificate differs from `given`.
pub fn verify_for(json: &str, given: &Given) -> Result<Report, Refusal> {
    let certificate = certificate::Certificate::read(json)?;
    given.compare(&certificate)?;
    check::check(&certificate)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
