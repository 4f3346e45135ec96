//! Masked attention for burn: attention over burn's tensors with gradients, and burn's multi-head attention under noren masks.
//!
//! burn provides tensors, gradients, layers and optimisers. This crate adds noren's attention and masks on burn's CPU
//! backend Flex.
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use noren_burn::attend;
//!
//! let x = Tensor::<4>::random([1, 2, 8, 16], Distribution::Default, &Device::flex()); // [batch, heads, length, head_dim]
//! let out = attend(x.clone(), x.clone(), x, "causal & documents([5, 3])")?;
//! assert_eq!(out.dims(), [1, 2, 8, 16]);
//! # Ok::<(), noren_burn::Error>(())
//! ```
//!
//! # Where to go next
//!
//! * [`attend`](attend()), [`attention`](attention()): attention as an operation with a backward pass
//! * [`multi_head_attention`]: burn's own `MultiHeadAttention` layer under a noren mask
//! * [`to_drop`], [`array_from_drop`], [`facts_from_drop`]: masks to and from the tensors of burn's layers
//!
//! # Why functions, and not burn's own attention
//!
//! burn's function `burn::tensor::module::attention` calls the attention of the tensor's backend. Other crates cannot
//! replace it: burn selects the backend among the variants of an enum that is fixed in the crate `burn-dispatch`, and the
//! attention of `Autodiff` is fixed as the decomposed formula (matmul, mask, softmax, matmul). burn's `MultiHeadAttention`
//! does not call that function, and computes the decomposed formula by itself. A program therefore calls the functions of
//! this crate instead of burn's.

mod attend;
mod attention;
mod device;
mod error;
mod masks;
mod mha;
mod op;
mod options;
mod storage;

pub use attend::attend;
pub use attention::{attention, plan};
pub use burn;
pub use error::{Error, Result};
pub use masks::{array_from_drop, array_from_keep, facts_from_drop, to_drop, to_keep};
pub use mha::multi_head_attention;
pub use options::{Bias, Options};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
