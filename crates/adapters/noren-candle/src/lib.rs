//! Masked attention for candle: an operation with gradients, caches for decoding, and the functions of `candle-flash-attn`.
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
//! * [`KvCache`]: keys and values of earlier tokens, for decoding
//! * [`flash`]: the functions of `candle-flash-attn` for CPU tensors, over batches and packed sequences
//! * [`to_keep`], [`array_from_keep`]: conversions between masks and tensors
//! * the crate `noren-models`: layers, models, generation and training with this attention
//!
//! # Modules
//!
//! | modules | contents |
//! |---|---|
//! | `attention/op`, `attention/carry` | the operation; gradients of biases, soft weights and sinks |
//! | `attention/options`, `attention/masks` | options as tensors; masks as tensors |
//! | `attention/storage` | storages of candle as views of noren, without a copy |
//! | `attend`, `cache`, `flash` | attention in one call, with a cache, and with the arguments of `candle-flash-attn` |

mod attend;
mod attention;
mod cache;
mod error;
pub mod flash;

pub use attend::attend;
pub use attention::{
    Bias, Options, array_from_additive, array_from_drop, array_from_keep, attention, attention_scores,
    attention_weights, facts_from_keep, plan, to_additive, to_drop, to_keep,
};
pub use cache::KvCache;
pub use candle_core;
pub use error::{Error, Result};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
