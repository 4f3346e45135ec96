//! Masked transformers on candle: layers, models, generation and training.
//!
//! candle provides tensors, gradients, optimisers and files; `noren-candle` provides attention under noren's masks. This crate
//! builds models of them.
//!
//! ```no_run
//! use noren_models::generate::{GenerateOptions, generate};
//! use noren_models::model::Model;
//!
//! let model = Model::load("path/to/folder")?;
//! let made = generate(&model, &[vec![1, 2, 3]], &GenerateOptions::default(), &mut |_| true)?;
//! println!("{:?}", made.tokens);
//! # Ok::<(), noren_models::Error>(())
//! ```
//!
//! # Where to go next
//!
//! * [`model`]: BERT, RoBERTa, DistilBERT, ModernBERT, GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 2 and 3, gpt-oss and T5,
//!   and classifiers, from Hugging Face folders; [`generate`]: generation
//! * [`layers`]: PyTorch's attention layers with the same names of parameters; [`nn`]: layers whose rows have the same bits in every batch
//! * [`embed`]: one vector for each text; [`train`]: training with checkpoints
//! * [`dynamic`]: masks that are made from the queries and keys of a call
//! * [`prove`]: a test that private tokens change no released number; [`EntityRecognizer`]: names and places
//! * `docs/models.md`: supported models, their exactness, and the files of this crate

pub mod dynamic;
pub mod embed;
mod error;
pub mod generate;
pub mod layers;
pub mod model;
pub mod nn;
mod private;
mod recognize;
mod stack;
pub mod train;

pub use candle_core;
pub use candle_nn;
pub use error::{Error, Result};
pub use noren_candle;
pub use private::{Proof, pool_released, prove, prove_texts};
pub use recognize::EntityRecognizer;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
