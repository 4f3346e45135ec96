//! An independent verifier of the certificates that `noren flow` issues.
//!
//! The crate shares no code with the library that issues certificates. It reads masks, facts and policies from their
//! written definition (`crates/core/noren-mask/docs/masks.md`, `docs/flow.md`) and computes every count, set and verdict
//! again. For each set of source tokens, a certificate stores the tokens that these sources influence after each layer.
//! The verifier only checks the step from each layer to the next, without a search. Therefore a check takes seconds,
//! even with many layers.
//!
//! ```
//! let refusal = noren_verify::verify("{}").unwrap_err();
//! assert_eq!(refusal.to_string(), "certificate: format: got nothing, expected the field");
//! ```
//!
//! [`verify`] checks a certificate. [`verify_for`] also checks that the masks, sizes and facts of the certificate are
//! those that the caller expects. On the command line, `noren verify FILE` checks a certificate.
//!
//! | modules | contents |
//! |---|---|
//! | `text`, `lex`, `expr`, `vocabulary` | masks from their text |
//! | `json`, `shape`, `facts`, `array`, `frame`, `given` | the rest of the input: JSON, sizes, facts, positions |
//! | `node`, `leaf`, `philox`, `cells`, `runs` | whether a mask allows one cell, and the keys that a query row may read |
//! | `layer`, `policy`, `certificate`, `check`, `work` | the influence of tokens from one layer to the next; denied pairs of tokens; the fields of a certificate; the check; the limits of steps and memory |
//! | `refusal`, `report` | the result of a failed check and of a successful check |
#![forbid(unsafe_code)]

mod cells;
mod check;
mod facts;
mod read;
mod runs;
mod work;

pub use check::certificate::Witness;
pub use check::given::{Given, Masks};
pub use check::report::{Report, RuleReport};
pub use read::json::MOST_BYTES;
pub use read::refusal::Refusal;

/// Checks the text of a certificate of format 2 (`docs/flow.md`): the hash, the fields, the influence of tokens from
/// each layer to the next, every count, every path, and the verdict.
///
/// # Errors
/// Returns an error for the first field with a wrong value, or for the first part that the verifier cannot establish.
pub fn verify(json: &str) -> Result<Report, Refusal> {
    verify_for(json, &Given::default())
}

/// Checks a certificate as [`verify`] does, and refuses a certificate whose masks, sizes or facts (data given with a
/// mask) differ from `given`.
///
/// # Errors
/// Returns the errors of [`verify`], and an error for the first field of the certificate that differs from `given`.
pub fn verify_for(json: &str, given: &Given) -> Result<Report, Refusal> {
    let certificate = check::certificate::Certificate::read(json)?;
    given.compare(&certificate)?;
    check::check(&certificate)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
