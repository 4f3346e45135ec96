//! Exact masked attention on CPUs.
//!
//! Say which query may read which key, once, in the mask language of [`noren_mask`]; this crate computes attention with it
//! at the processor's speed, on strided arrays that stay where they are.
//!
//! # A tour
//!
//! A mask is an expression. Bound to sizes and facts it becomes a [`Plan`], which is small and can be used for many
//! layers and calls:
//!
//! ```
//! use noren::{Facts, Inputs, Options, Shape, Spec, View, attention};
//!
//! let spec: Spec = "causal & padding".parse()?;
//! let shape = Shape::square(6).batch(2).heads(4).kv_heads(2); // two query heads share a key-value head
//! let plan = spec.mask.bind(&shape, &Facts::new().lengths([6, 4]))?.plan();
//!
//! let q = vec![0.5; 2 * 4 * 6 * 8]; // [batch, heads, q_len, head_dim]
//! let k = vec![0.25; 2 * 2 * 6 * 8]; // [batch, kv_heads, kv_len, head_dim]
//! let v: Vec<f32> = (0..2 * 2 * 6 * 8).map(|x| x as f32).collect();
//! let (q, k, v) = (View::new(&q, [2, 4, 6, 8])?, View::new(&k, [2, 2, 6, 8])?, View::new(&v, [2, 2, 6, 8])?);
//!
//! let result = attention(&Inputs { q, k, v }, &plan, &Options::default())?;
//! assert_eq!(result.shape, [2, 4, 6, 8]);
//! // The first query reads the first key alone, so its output is the first value.
//! assert!((0..8).all(|d| (result.out[d] - d as f32).abs() < 1e-5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`View`] takes any strides, so `[batch, length, heads, head_dim]` memory needs no copy; [`attention_into`] writes
//! where you say. Arrays hold `f32`, [`bf16`] or [`f16`](struct@f16) ([`Element`]), all of a call the same. [`Options`]
//! holds the scale and everything that may be done to scores: softcap, bias, ALiBi, soft weights, sinks.
//!
//! [`attention_backward`] gives the gradients, on the same plan.
//! For decoding, a [`KvCache`] holds keys and values as the kernels read them: append what is new, then ask for the attention
//! of the new queries.
//!
//! # What is promised
//!
//! For every type of values, on each [`Level`] (processor path):
//!
//! * *Nothing hidden leaks.* What lies in keys, values and biases that a query may not read, NaN and infinities included,
//!   changes no bit of its result.
//! * *Same content, same bits.* A query's result does not depend on threads, batch mates, padding on either side, or
//!   whether its document was packed with others; decoding token by token gives the bits of one pass.
//!   [`Reorder`] says which long plans of scattered global keys trade the last bits for speed, and how to say no.
//! * *A query that may read nothing* gets an output of 0 and a log-sum-exp of minus infinity.
//! * *Cost follows what is allowed*: time goes with the allowed cells, memory with the length.
//!
//! What attention *is* stands in [`reference`](mod@reference), in `f64`, plainly; every path is tested
//! against it. How the kernel keeps these promises is told at the top of `kernel/tile.rs`.

mod attention;
mod backward;
mod cache;
mod dropout;
mod dtype;
mod error;
mod kernel;
pub mod machine;
mod options;
pub mod reference;
mod view;
mod weights;

pub use attention::{Attention, Inputs, Outputs, attention, attention_into};
pub use backward::{Gradients, GradientsMut, Saved, attention_backward, attention_backward_into};
pub use cache::{KvCache, KvShape, StepPlan};
pub use dropout::Dropout;
pub use dtype::{Dtype, Element};
pub use error::Error;
pub use half::{bf16, f16};
pub use kernel::level::Level;
pub use noren_mask;
pub use noren_mask::{
    Array, BoundMask, Facts, Kind, Mask, Plan, PlanOptions, Reorder, Score, Set, Shape, Side, Spec, Stats, atoms,
};
pub use options::{Bias, Options};
pub use view::{View, ViewMut};
pub use weights::attention_weights;

#[cfg(doctest)]
#[doc = include_str!("../docs/front-page.md")]
struct FrontPage;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
