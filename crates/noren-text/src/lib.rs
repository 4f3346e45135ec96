//! Text for masked transformers: what in it is private, which tokens that is, and what a model is trained on.
//!
//! Private text goes three steps. [`Detectors`] find it, in bytes of the text:
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
//! a [`Tokenizer`]'s offsets say which tokens hold it ([`PrivateTokens`]):
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
//! and a [`Policy`] says who may read them: it turns the mask of a model into one that keeps the secret, and says which
//! outputs may be released. The facts (labels, levels) come from the same place.
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
//! What stays visible is the number of private tokens and where they stand.
//!
//! Training data is [`data`]: documents packed into rows, the corruption of masked-LM, the targets of causal-LM, all fixed by
//! a seed and a step so that a run that goes on after a kill reads what it would have read.
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
