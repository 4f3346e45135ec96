//! Masked transformers on candle: attention as an operation with its backward, layers, models, generation, dynamic masks.
//!
//! Tensors, gradients, optimisers and files come from candle; attention and its masks come from noren.

mod attend;
mod attention;
pub mod audit;
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

pub use attend::attend;
pub use attention::{
    Bias, Options, array_from_additive, array_from_drop, array_from_keep, attention, attention_weights,
    facts_from_keep, plan, to_additive, to_drop, to_keep,
};
pub use candle_core;
pub use candle_nn;
pub use error::{Error, Result};
pub use private::{Proof, pool_released, prove};
pub use recognize::EntityRecognizer;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
