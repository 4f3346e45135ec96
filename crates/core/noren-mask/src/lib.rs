//! Attention masks as expressions: exact cells, block-sparse plans, counts and comparisons.
//!
//! A mask defines which query may read which key. It is a value: an expression over atoms such as [`causal`](atoms::causal) or
//! [`documents`](atoms::documents), written in Rust or as text. A mask holds no lengths.
//!
//! ```
//! use noren_mask::{Mask, atoms::*};
//! let mask = sliding(4096) | causal() & keys(0..4);
//! assert_eq!(mask, "sliding(4096) | causal & keys(0..4)".parse::<Mask>()?);
//! # Ok::<(), noren_mask::ParseError>(())
//! ```
//!
//! [`Mask::bind`] adds a [`Shape`] (batch rows, heads, queries, keys) and [`Facts`] (lengths, documents, labels,
//! levels, arrays), and returns an error if they do not fit. The result is a [`BoundMask`], in which each cell is
//! allowed or denied.
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! let facts = Facts::new().lengths([5, 3]);
//! let bound = (causal() & padding()).bind(&Shape::square(5).batch(2), &facts)?;
//! assert!(bound.allowed(0, 0, 4, 3)); // batch row, head, query, key
//! assert!(!bound.allowed(1, 0, 4, 3));
//! assert_eq!(bound.explain(1, 0, 4, 3)?.root.why, "denied by `padding`: key 3 is padding in batch row 1, which has 3 non-padding tokens");
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! Kernels and other systems read a [`Plan`]: tiles of queries with the ranges of keys that they read, full or mixed. Its memory
//! grows with the number of tiles, not with `q_len * kv_len`.
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! let bound = (sliding(4096) | causal() & keys(0..4)).bind(&Shape::square(1 << 20), &Facts::new())?;
//! let plan = bound.plan();
//! assert!(plan.bytes() < 1 << 20); // a dense mask would take a terabyte
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! # Where to go next
//!
//! * [`atoms`]: every atom with its picture; [`atom`]: an atom of your own
//! * [`Facts`]: the data that masks need, and their conversion from tensors that you already have
//! * [`BoundMask`]: cells, explanations, comparisons; the crate `noren-picture` draws it
//! * [`Plan`], [`PatternPlan`], [`Stats`]: tiles, keys by query, and costs
//! * [`Spec`] and [`Score`]: a mask with score modifiers
//! * [`resolve`], [`frame`], [`bits`], [`interval`], [`text`]: parts for other crates that read masks
//! * The crate `noren` computes attention over plans
//!
//! # Modules
//!
//! | folders | contents |
//! |---|---|
//! | `syntax` | words and numbers of the text language, and its errors |
//! | `sets` | ranges, positions, rows of cells and their order; cells as bits; the random generator |
//! | `facts` | sizes and facts; arrays; `batch` reads facts from named arrays; `resolve` is the one place that finds the tokens that a fact refers to |
//! | `mask` | expressions as values: operators, score modifiers; the forms in which planning reads an atom |
//! | `atoms` | one file for each atom |
//! | `language` | text to mask and back, checks of parameters, the canonical form, the list of words for help and editors |
//! | `bind` | binding: one pattern for each distinct set of cells; `eval` is the definition; exact counts, limits |
//! | `plan` | tiles and spans, other orders of queries and keys, verification |
//! | `compare` | differences, equality at every length, reasons |
//! | `export` | forms for other systems: blocks, slices, bits, grids for pictures, serial forms |
//!
//! The feature `serde` [default: off] adds the serial forms of masks, shapes, facts, arrays and plans (`to_json`, `from_json`, the traits
//! of serde).
//!
//! The crate has no `unsafe`, no threads and no tensor type.
#![forbid(unsafe_code)]

pub mod atom;
pub mod atoms;
mod bind;
mod compare;
mod error;
mod export;
mod facts;
mod fold;
pub mod language;
mod mask;
mod plan;
mod sets;
mod syntax;
pub mod text;

pub use facts::{batch, resolve};
pub use mask::sentence;
#[doc(hidden)] // for the dropout of crate `noren`, which draws from the same generator
pub use sets::philox::philox;
pub use sets::{bits, frame, interval};

pub use atoms::{Cell, Cells, Padding};
pub use bind::BoundMask;
pub use bind::budget::{Budget, Progress, Stage};
pub use compare::CellIndex;
pub use compare::equivalent::Equivalence;
pub use compare::explain::{Explanation, Part, Reasons};
pub use error::Error;
pub use export::grid::{Cover, Grid, GridOptions, checked_range};
pub use export::keep::Keep;
pub use export::{Blocks, DecodePlan, DevicePlan, DeviceSide, Runs, Slice, SliceKind};
pub use facts::array::{Array, HIDES};
pub use facts::shape::Shape;
pub use facts::{Facts, RealTokens};
pub use fold::{Fold, FoldOptions, FoldPlace, FoldRow, FoldRun};
pub use mask::score::{Score, Spec};
pub use mask::{Arm, Mask, Node};
pub use plan::stats::{Reordered, Stats, short_bytes, short_count};
pub use plan::verify::Verified;
pub use plan::{PatternPlan, Plan, PlanOptions, Reorder, SpanKind, Tile, TileSpan};
pub use sets::order::Order;
pub use sets::scalar::{Offset, Real, Rows, Side};
pub use sets::set::{Positions, Selector, Span};
pub use syntax::{ParseError, nearest};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
