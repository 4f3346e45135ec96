//! Text for masked transformers: private text and its tokens, masks that hide it, tokenizers, and training data.
//!
//! Private text is hidden in three steps. First, [`Detectors`] find it as ranges of bytes:
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
//! Second, [`PrivateTokens`] are the tokens that contain any of these bytes, by the offsets of a [`Tokenizer`]:
//!
//! ```
//! use noren_text::{ByteTokenizer, Detectors, PrivateTokens, Tokenizer};
//! let text = "Mail jane@example.org!";
//! let tokens = ByteTokenizer.encode(text)?;
//! let private = PrivateTokens::locate(&"email".parse::<Detectors>()?.find(text)?, text, &tokens);
//! assert_eq!(private.count(), 16); // of 23 tokens: one for each byte, and one for the beginning of the text
//! # Ok::<(), noren_text::Error>(())
//! ```
//!
//! Third, a [`Policy`] changes the mask of a model to hide these tokens, provides the facts for the mask, and lists the outputs that may
//! be released:
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
//! The number of private tokens and their positions stay visible. `docs/text.md` lists the forms that are found. The crate
//! `noren-models` runs models with these masks and proves that private tokens change no released number.
//!
//! [`data`] prepares training data: documents packed into rows, and the objectives of masked and causal language models. A seed and a
//! step determine every row, so a run that is continued reads the same data as one that was not interrupted.
//!
//! | modules | contents |
//! |---|---|
//! | `fold`, `detect/*` | the text in one normal form for all spellings; one file for each kind of private text |
//! | `tokens`, `private`, `policy` | tokenizers, tokens of private text, masks that hide them |
//! | `data/*` | packed documents and the objectives of training |
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
