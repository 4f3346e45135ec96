//! Exact masked attention on CPUs: forward, backward and decoding, in `f32`, `bf16` and `f16`.
//!
//! A mask defines which query may read which key, in the language of [`noren_mask`]. This crate makes a block-sparse
//! plan of the mask and computes attention only where cells are allowed, on strided arrays that it reads in place.
//!
//! # In one call
//!
//! [`attend`](attend()) takes queries, keys, values and a mask. The sizes come from the arrays:
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
//! Arrays are slices with a shape, [`View`]s with any strides, or arrays of the crate `ndarray` (feature `ndarray`).
//! All arrays of a call hold the same [`Element`]: `f32`, [`bf16`] or [`f16`](struct@f16). `noren_candle::attend` takes
//! tensors of candle, with gradients.
//!
//! # Masks
//!
//! A mask is an expression over [`atoms`] with `&`, `|`, `!` and `-`, as a value or as text:
//!
//! ```
//! use noren::{Mask, atoms::*};
//! let mask = sliding(4096) | causal() & keys(0..4);
//! assert_eq!(mask, "sliding(4096) | causal & keys(0..4)".parse::<Mask>()?);
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! A mask of your own is a function, a type or an array. [`Mask::from_fn`] makes a mask of a function of positions, which means the same
//! in a forward call and in every step of decoding; [bounds](Mask::with_bounds) make it as fast as a built-in mask. A type
//! that implements the trait of [`noren_mask::atom`] is an atom; [`Mask::of`] makes a mask of it. Arrays are
//! [`dense`](atoms::dense).
//!
//! ```
//! use noren::{Cell, Mask, atoms::*};
//! let sparse = causal() & Mask::from_fn(|Cell { query, key, .. }| query - key < 64 || key % 16 == 0);
//! let x = vec![0.5f32; 2 * 256 * 8];
//! let x = (&x, [1, 2, 256, 8]);
//! assert_eq!(noren::attend(x, x, x, sparse)?.out[0], 0.5);
//! # Ok::<(), noren::Error>(())
//! ```
//!
//! # Facts, scores and options
//!
//! [`Attend`] is the builder for all other settings. [`Facts`] are the data that a mask needs, such as the lengths of
//! documents. Score modifiers are written in the text of the mask or set by methods:
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
//! If the numbers of queries and keys differ, [`Attend::query_offset`] sets the position of the first query.
//! [`Attend::forward_into`] writes the output to a given array.
//!
//! # Plans
//!
//! A mask with sizes and facts becomes a [`Plan`] of the tiles to compute, which takes little memory at any length.
//! `attend` makes a plan in each call, and [`Attend`] stores the plan of the last shape. You can also make a plan and
//! use it in many layers, threads and calls:
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
//! # Sequences of different lengths
//!
//! The module [`varlen`] computes packed sequences (`cu_seqlens`) and padded batches with lengths, with the arguments
//! of flash-attention's varlen function. The module stores plans and uses them again for sequences of the same length.
//!
//! # Decoding
//!
//! A [`KvCache`] holds keys and values in the memory layout of the kernels. A decoding step appends new tokens and
//! computes the attention of their queries:
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
//! [`Error`] is the error of this crate: `?` converts the errors of parsing and binding a mask into it. Each message names
//! the given value, the expected value and how to fix the problem. Each variant can be matched:
//!
//! ```
//! use noren::{Error, attend};
//!
//! let (new, all) = ([0f32; 8], [0f32; 3 * 8]);
//! let (new, all) = ((&new, [1, 1, 1, 8]), (&all, [1, 1, 3, 8]));
//! match attend(new, all, all, "causal") {
//!     Err(Error::Alignment { q_len: 1, kv_len: 3 }) => {} // set the position of the query by Attend::query_offset
//!     other => panic!("{other:?}"),
//! }
//! ```
//!
//! # Guarantees
//!
//! For every element type, on each [`Isa`] (processor path):
//!
//! * *No leak.* The content of keys, values and biases that a query may not read, NaN and infinities included, changes
//!   no bit of the query's result.
//! * *Reproducible bits.* The result of a query does not depend on threads, other batch rows, padding on either side,
//!   or other documents in the same batch row. Decoding token by token gives the same bits as one pass over the
//!   sequence. There are three exceptions. [`Reorder`] lists the plans for which the last bits may differ, and how to
//!   prevent it. In `bf16`, keys are added in pairs on [`Isa::Avx512Bf16`] and in tiles of 32 on [`Isa::Amx`]. These begin
//!   where the masks `padding`, `keys` and `documents` show that content begins, so the last bits may differ if padding or
//!   documents are given as cells instead, or if a reordered plan places keys otherwise; those of gradients, if the tokens
//!   before the keys of a query are not a multiple of 2 or 32. And `f32` may have no normal number for a softmax weight below 2^-124 of the largest weight of its query: whether such
//!   keys count can depend on padding. Each of them changes an output by less than 2^-124 of the largest magnitude of a
//!   value. In `bf16` on [`Isa::Amx`], weights below 2^-47 of the largest are 0, and numbers below 2^-108 may count as 0.
//! * *A query that may read no key* gets the output 0 and the log-sum-exp minus infinity.
//! * *Cost by allowed cells.* Time grows with the allowed cells, memory with the length.
//!
//! # Modules
//!
//! | modules | contents |
//! |---|---|
//! | [`reference`](mod@reference) | the definition: naive attention in `f64`, with which every processor path is compared |
//! | `attend/*`, `attention`, `backward`, `options`, `error` | attention in one call, its builder, checks of inputs |
//! | `view`, `dtype` | strided arrays of four dimensions, element types |
//! | [`varlen`] | batches of sequences of different lengths, packed or padded; plans kept by length |
//! | `cache/*` | keys and values of earlier tokens: contiguous, rotating and paged |
//! | [`linear`] | products of rows with the packed weights of linear layers, in `f32` and `bf16` |
//! | `weights`, `dropout` | probabilities as an array; the weights that dropout removes |
//! | `kernel/tile`, `kernel/forward`, `kernel/backward/*` | the algorithm: a tile of queries against blocks of keys; `tile/mod.rs` explains the guarantees |
//! | `kernel/{arrays, math, keys}` | rows of callers and memory; products, exponentials and score modifiers; packed and cached keys |
//! | `isa`, `kernel/dispatch`, `kernel/simd/*` | processor paths, their detection and selection at run time, and their vector operations |
//! | [`machine`] | measured limits of the processor |
//!
//! `docs/kernels.md` has the measurements behind the kernels. The crate `noren-mask` documents masks and plans.

mod attend;
mod attention;
mod backward;
mod cache;
mod error;
mod inputs;
mod kernel;
pub mod linear;
pub mod machine;
mod processor;
pub mod reference;
pub mod varlen;
mod weights;

pub use attend::{Attend, CowView, IntoMasking, IntoView, IntoViewMut, Masking, attend};
pub use attention::{Attention, Inputs, Outputs, attention, attention_into};
pub use backward::{Gradients, GradientsMut, Saved, attention_backward, attention_backward_into};
pub use cache::{KvCache, KvShape, Queries, Rotating, StepPlan};
pub use error::Error;
pub use half::{bf16, f16};
pub use inputs::dropout::Dropout;
pub use inputs::dtype::{Dtype, Element};
pub use inputs::options::{Bias, Options};
pub use inputs::view::{View, ViewMut};
pub use noren_mask;
pub use noren_mask::{
    Array, BoundMask, Budget, Cell, Cells, Facts, Mask, Offset, ParseError, Plan, PlanOptions, Positions, Reorder,
    Score, Shape, Side, Spec, Stats, atom, atoms,
};
pub use processor::isa::Isa;
pub use weights::attention_weights;

#[cfg(doctest)]
#[doc = include_str!("../docs/front-page.md")]
struct FrontPage;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
struct Guide;
