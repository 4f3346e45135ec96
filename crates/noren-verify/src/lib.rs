//! An independent verifier of the certificates that `noren flow` issues.
//!
//! The crate shares no code with the library that issues certificates. It reads masks, facts and policies from their written definition
//! (`crates/noren-mask/docs/masks.md`, `docs/flow.md`) and computes every count, set and verdict again. A certificate stores the tokens
//! that its source tokens influence after each layer. The verifier only checks each of these steps and does not search, so that
//! stacks with many layers take seconds.
//!
//! ```
//! let refusal = noren_verify::verify("{}").unwrap_err();
//! assert_eq!(refusal.to_string(), "certificate: format: got nothing, expected the field");
//! ```
//!
//! [`verify`] checks a certificate. [`verify_for`] also checks that the masks, sizes and facts of the certificate are those that the caller
//! expects. The command is `noren verify FILE`.
//!
//! | modules | contents |
//! |---|---|
//! | `text`, `lex`, `expr`, `vocabulary` | masks from their text |
//! | `json`, `shape`, `facts`, `array`, `frame`, `given` | the rest of the input: JSON, sizes, facts, positions |
//! | `node`, `leaf`, `philox`, `cells`, `runs` | the cells of a mask, one by one and as the keys of a query row |
//! | `layer`, `policy`, `certificate`, `check`, `work` | one step of a closure; denied pairs of tokens; the fields of a certificate; the check; the limits of steps and memory |
//! | `refusal`, `report` | the result of a failed check and of a successful check |
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

/// Checks the text of a certificate of format 2 (`docs/flow.md`): the hash, the fields, every step of the closures,
/// every count, every path, and the verdict.
///
/// # Errors
/// Returns an error for the first field with a wrong value, or for the first part that the verifier cannot establish.
pub fn verify(json: &str) -> Result<Report, Refusal> {
    verify_for(json, &Given::default())
}

/// Checks a certificate as [`verify`] does, and refuses a certificate whose masks, sizes or facts differ from `given`.
///
/// # Errors
/// Returns the errors of [`verify`], and an error for the first field of the certificate that differs from `given`.
pub fn verify_for(json: &str, given: &Given) -> Result<Report, Refusal> {
    let certificate = certificate::Certificate::read(json)?;
    given.compare(&certificate)?;
    check::check(&certificate)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
