//! Exact masked attention on CPUs.
//!
//! A mask defines which query may read which key, in the language of [`noren_mask`]. This crate plans it exactly and computes
//! attention with it at the processor's speed, on strided arrays that are read in place.
//!
//! # In one call
//!
//! [`attend`](attend()) takes queries, keys, values and a mask. Sizes, batch and grouped heads come from the arrays:
//!
//! ```
//! let q = vec![0.5f32; 4 * 8 * 64]; // 4 heads, 8 tokens, 64 numbers each
//! let kv = vec![0.25f32; 2 * 8 * 64]; // 2 key-value heads: two query heads share each
//! let (q, kv) = ((&q, [1, 4, 8, 64]), (&kv, [1, 2, 8, 64]));
//! let result = noren::attend(q, kv, kv, "causal & documents([5, 3])")?;
//! assert_eq!((result.shape, result.out[0]), ([1, 4, 8, 64], 0.25));
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! Arrays are slices with a shape, [`View`]s with any strides, or arrays of the crate `ndarray` (feature `ndarray`). They hold
//! `f32`, [`bf16`] or [`f16`](struct@f16) ([`Element`]), all of a call the same. Tensors of candle, with gradients, are taken
//! by the function of the same name in the crate `noren-candle`.
//!
//! # Masks
//!
//! A mask is a text or a value, an expression over [`atoms`] with `&`, `|`, `!` and `-`:
//!
//! ```
//! use noren::{Mask, atoms::*};
//! let mask = sliding(4096) | causal() & keys(0..4);
//! assert_eq!(mask, "sliding(4096) | causal & keys(0..4)".parse::<Mask>()?);
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! An atom of your own is a type that implements the trait of [`noren_mask::atom`]; [`Mask::of`] makes a mask of it.
//!
//! # Facts, scores and options
//!
//! [`Attend`] is the builder for everything else. What a mask must know of the data comes as [`Facts`]; score modifiers are
//! part of the text or set by methods:
//!
//! ```
//! use noren::{Attend, Facts};
//!
//! let attend = Attend::new("causal & documents & padding + alibi + softcap(30)")?
//!     .facts(Facts::new().lengths([7, 5]).documents([3, 4]))
//!     .scale(0.1)
//!     .threads(2);
//! let x = vec![0.5f32; 2 * 2 * 7 * 4];
//! let x = (&x, [2, 2, 7, 4]);
//! let result = attend.forward(x, x, x)?; // .out, .shape and the log-sum-exps .lse
//! let gradients = attend.backward(x, x, x, &result, x)?; // .dq, .dk and .dv
//! # assert_eq!(gradients.dv.len(), result.out.len());
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! Where there are not as many queries as keys, [`Attend::query_offset`] gives the position of the first query.
//! [`Attend::forward_into`] writes to a given array.
//!
//! # Plans
//!
//! A mask bound to sizes and facts becomes a [`Plan`], which is small whatever the length. `attend` plans in each call and
//! [`Attend`] keeps the plan of the last shape. A plan of your own serves many layers, threads and calls:
//!
//! ```
//! use noren::{Facts, Inputs, Options, Shape, View, attend, attention, atoms::causal};
//!
//! let shape = Shape::square(6).heads(4).kv_heads(2);
//! let plan = causal().bind(&shape, &Facts::new())?.plan();
//! let (q, kv) = (vec![0.5f32; 4 * 6 * 8], vec![0.25; 2 * 6 * 8]);
//! let (q, kv) = (View::new(&q, [1, 4, 6, 8])?, View::new(&kv, [1, 2, 6, 8])?);
//! let result = attend(q, kv, kv, &plan)?;
//! // the same as:
//! assert_eq!(result, attention(&Inputs { q, k: kv, v: kv }, &plan, &Options::new())?);
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! # Decoding
//!
//! A [`KvCache`] holds keys and values packed for the kernels. A step appends new tokens and attends:
//!
//! ```
//! use noren::{Attend, KvCache, KvShape};
//!
//! let attend = Attend::new("sliding(4)")?;
//! let mut cache = KvCache::contiguous(&KvShape::new(2, 8), 64)?; // 2 key-value heads, room for 64 tokens
//! for _ in 0..3 {
//!     let (q, kv) = (vec![0.5f32; 4 * 8], vec![0.25f32; 2 * 8]);
//!     let (q, kv) = ((&q, [1, 4, 1, 8]), (&kv, [1, 2, 1, 8])); // one new token
//!     assert_eq!(attend.decode(&mut cache, q, kv, kv)?.out[0], 0.25);
//! }
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! # Errors
//!
//! [`Error`] is the one error type: `?` turns those of parsing and binding into it. Each message has the given values, what
//! was expected and how to fix it, and each variant can be matched on:
//!
//! ```
//! use noren::{Error, attend};
//!
//! let (new, all) = ([0f32; 8], [0f32; 3 * 8]);
//! let (new, all) = ((&new, [1, 1, 1, 8]), (&all, [1, 1, 3, 8]));
//! match attend(new, all, all, "causal") {
//!     Err(Error::Alignment { q_len: 1, kv_len: 3 }) => {} // is the query the last token? Attend::query_offset says so
//!     other => panic!("{other:?}"),
//! }
//! ```
//!
//! # What is promised
//!
//! For every type of values, on each [`Isa`] (processor path):
//!
//! * *Nothing hidden leaks.* The content of keys, values and biases that a query may not read, NaN and infinities included,
//!   changes no bit of its result.
//! * *Same content, same bits.* A query's result does not depend on threads, batch mates, padding on either side, or
//!   whether its document was packed with others; decoding token by token gives the bits of one pass.
//!   [`Reorder`] lists which long plans of scattered global keys trade the last bits for speed, and how to prevent it.
//! * *A query that may read nothing* gets an output of 0 and a log-sum-exp of minus infinity.
//! * *Cost follows what is allowed*: time goes with the allowed cells, memory with the length.
//!
//! The definition of attention is [`reference`](mod@reference), in `f64`; every path is tested against it. `kernel/tile.rs`
//! explains how the kernel keeps these promises.

mod attend;
mod attention;
mod backward;
mod cache;
mod dropout;
mod dtype;
mod error;
mod isa;
mod kernel;
pub mod machine;
mod options;
pub mod reference;
mod view;
mod weights;

pub use attend::{Attend, CowView, IntoMasking, IntoView, IntoViewMut, Masking, attend};
pub use attention::{Attention, Inputs, Outputs, attention, attention_into};
pub use backward::{Gradients, GradientsMut, Saved, attention_backward, attention_backward_into};
pub use cache::{KvCache, KvShape, StepPlan};
pub use dropout::Dropout;
pub use dtype::{Dtype, Element};
pub use error::Error;
pub use half::{bf16, f16};
pub use isa::Isa;
pub use noren_mask;
pub use noren_mask::{
    Array, BoundMask, Budget, Facts, Kind, Mask, ParseError, Plan, PlanOptions, Reorder, Score, Set, Shape, Side, Span,
    Spec, Stats, atom, atoms,
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
