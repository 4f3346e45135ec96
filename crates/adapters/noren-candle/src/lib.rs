//! Masked transformers on candle: attention with gradients, layers, models, generation and training.
//!
//! candle provides tensors, gradients, optimisers and files. This crate adds noren's attention and masks.
//!
//! ```
//! use noren_candle::attend;
//! use noren_candle::candle_core::{Device, Tensor};
//!
//! let x = Tensor::randn(0f32, 1., (1, 2, 8, 16), &Device::Cpu)?; // [batch, heads, length, head_dim]
//! let out = attend(&x, &x, &x, "causal & documents([5, 3])")?;
//! assert_eq!(out.dims(), [1, 2, 8, 16]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to go next
//!
//! * [`attend`](attend()), [`attention`](attention()): attention as an operation with a backward pass
//! * [`flash`]: the functions of `candle-flash-attn` for CPU tensors, over batches and packed sequences
//! * [`layers`]: PyTorch's attention layers with the same names of parameters; [`nn`]: layers whose rows have the same bits in every batch
//! * [`model`]: BERT, RoBERTa, DistilBERT, ModernBERT, GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 2 and 3, gpt-oss and T5,
//!   and classifiers, from Hugging Face folders; [`generate`]: generation
//! * [`embed`]: one vector for each text; [`train`]: training with checkpoints
//! * [`dynamic`]: masks that are made from the queries and keys of a call
//! * [`prove`]: a test that private tokens change no released number; [`EntityRecognizer`]: names and places
//! * `docs/models.md`: supported models, their exactness, and the files of this crate

mod attend;
mod attention;
pub mod dynamic;
pub mod embed;
mod error;
pub mod flash;
pub mod generate;
pub mod layers;
pub mod model;
pub mod nn;
mod private;
mod recognize;
mod stack;
pub mod train;

pub use attend::attend;
pub use attention::{
    Bias, Options, array_from_additive, array_from_drop, array_from_keep, attention, attention_weights,
    facts_from_keep, plan, to_additive, to_drop, to_keep,
};
pub use candle_core;
pub use candle_nn;
pub use error::{Error, Result};
pub use private::{Proof, pool_released, prove, prove_texts};
pub use recognize::EntityRecognizer;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
