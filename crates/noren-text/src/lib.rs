//! Text for masked transformers: private text, the tokens that hold it, and training data.
//!
//! Private text is handled in three steps. [`Detectors`] find the bytes that are private:
//!
//! ```
//! use noren_text::Detectors;
//! let text = "Ask Jane (jane@example.org) or pay 4111 1111 1111 1111.";
//! let found = "email,card".parse::<Detectors>()?.find(text)?;
//! let found: Vec<_> = found.iter().map(|f| (f.kind.as_str(), &text[f.range.clone()])).collect();
//! assert_eq!(found, [("email", "jane@example.org"), ("card", "4111 1111 1111 1111")]);
//! # Ok::<(), noren_text::Error>(())
//! ```
//!
//! the offsets of a [`Tokenizer`] give the tokens that hold them ([`PrivateTokens`]):
//!
//! ```
//! use noren_text::{ByteTokenizer, Detectors, PrivateTokens, Tokenizer};
//! let text = "Mail jane@example.org!";
//! let tokens = ByteTokenizer.encode(text)?;
//! let private = PrivateTokens::locate(&"email".parse::<Detectors>()?.find(text)?, text, &tokens);
//! assert_eq!(private.count(), 16); // of the 23 tokens: one for each byte, and the one that begins a text
//! # Ok::<(), noren_text::Error>(())
//! ```
//!
//! and a [`Policy`] defines which tokens may read them. It changes the mask of a model, and determines which
//! outputs may be released. It also gives the facts (labels, levels).
//!
//! ```
//! # use noren_text::{ByteTokenizer, Detectors, PrivateTokens, Tokenizer};
//! use noren_mask::{Facts, Shape, atoms::causal};
//! use noren_text::Policy;
//! # let text = "Mail jane@example.org!";
//! # let tokens = ByteTokenizer.encode(text)?;
//! # let private = PrivateTokens::locate(&"email".parse::<Detectors>()?.find(text)?, text, &tokens);
//! let mask = Policy::Hide.mask(causal());
//! assert_eq!(mask.to_string(), "causal - keys(label=\"private\")");
//! let bound = mask.bind(&Shape::square(tokens.len()), &Policy::Hide.facts(&[&private], Facts::new()))?;
//! assert!(bound.allowed(0, 0, 22, 2) && !bound.allowed(0, 0, 22, 6));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The number of private tokens and their positions stay visible.
//!
//! [`data`] makes training data: documents packed into rows, corrupted tokens of masked-LM, targets of causal-LM. A seed
//! and a step fix them, so that a training run that was stopped continues with the same data.
#![forbid(unsafe_code)]

pub mod data;
mod detect;
mod error;
mod fold;
mod policy;
mod private;
mod tokens;

pub use detect::{BUILT_IN, Detector, Detectors, Finding, Kind, PRIVATE, Recognizer, outermost};
pub use error::Error;
pub use policy::Policy;
pub use private::PrivateTokens;
pub use tokens::{ByteTokenizer, Encoding, HfTokenizer, Role, Tokenizer, Window};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
