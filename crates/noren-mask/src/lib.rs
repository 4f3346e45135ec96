//! Attention masks: define any mask, plan it exactly, ask about its cells.
//!
//! A transformer's *mask* decides which token may read which. Here a mask is a value: an expression over atoms such as
//! [`causal`](atoms::causal) or [`documents`](atoms::documents), written in Rust or as text.
//!
//! ```
//! use noren_mask::{Mask, atoms::*};
//! let mask = sliding(4096) | causal() & keys(0..4);
//! assert_eq!(mask, "sliding(4096) | causal & keys(0..4)".parse::<Mask>()?);
//! # Ok::<(), noren_mask::ParseError>(())
//! ```
//!
//! It knows no lengths. [`Mask::bind`] gives it a [`Shape`] and [`Facts`] (lengths, documents, labels, levels, arrays) and
//! checks everything; a [`BoundMask`] knows each cell.
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! let facts = Facts::new().lengths([5, 3]);
//! let bound = (causal() & padding()).bind(&Shape::square(5).batch(2), &facts)?;
//! assert!(bound.allowed(0, 0, 4, 3));
//! assert!(!bound.allowed(1, 0, 4, 3));
//! assert_eq!(bound.explain(1, 0, 4, 3)?.root.why, "denied by `padding`: key 3 is padding in batch row 1, which holds 3 tokens");
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! A [`Plan`] is what kernels and other systems read: query tiles with the keys they read, full or mixed, in memory that
//! goes with the tiles and not with `q_len * kv_len`.
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! let bound = (sliding(4096) | causal() & keys(0..4)).bind(&Shape::square(1 << 20), &Facts::new())?;
//! let plan = bound.plan();
//! assert!(plan.bytes() < 1 << 20); // a dense mask would take a terabyte
//! # Ok::<(), noren_mask::Error>(())
//! ```
//!
//! Where to go on:
//!
//! * [`atoms`]: everything a mask can say, each with its picture
//! * [`Facts`]: what masks need to know of the data, and how to make it from what you have
//! * [`BoundMask`]: cells, explanations, comparisons; crate `noren-picture` draws it
//! * [`Plan`], [`PatternPlan`], [`Transposed`], [`Stats`]: what to compute and what it costs
//! * [`Spec`] and [`Score`]: a mask with what is done to the scores
//! * [`resolve`], [`frame`], [`bits`], [`interval`], [`text`]: what other crates that read masks are built on
//!
//! The feature `serde` gives masks, shapes, facts, arrays, plans and answers their serial forms (`to_json`, `from_json`, serde's traits).
//! It is off unless selected.
//!
//! The crate has no `unsafe`, no threads and no tensor type.
#![forbid(unsafe_code)]

mod agree;
mod array;
pub mod atom;
pub mod atoms;
mod basis;
mod bind;
pub mod bits;
mod bounds;
mod budget;
mod check;
mod compare;
mod count;
mod cut;
mod definition;
mod equivalent;
mod error;
mod eval;
mod explain;
mod export;
mod facts;
pub mod frame;
mod grid;
mod guard;
pub mod interval;
#[cfg(feature = "serde")]
mod json;
mod keep;
pub mod language;
mod leaf;
mod lower;
mod mask;
mod member;
mod ops;
mod order;
pub(crate) mod parse;
mod patch;
mod pattern;
mod philox;
#[doc(hidden)] // for the dropout of crate `noren`, which draws from the same generator
pub use philox::philox;
mod plan;
mod print;
mod reorder;
mod resolution;
pub mod resolve;
mod resolved;
mod scalar;
mod schedule;
mod score;
mod select;
#[cfg(feature = "serde")]
mod serial;
mod set;
mod shape;
mod simplify;
mod split;
mod stats;
mod syntax;
pub mod text;
mod transpose;
mod verify;

pub use array::Array;
pub use atoms::Padding;
pub use bind::BoundMask;
pub use budget::{Budget, Progress, Stage};
pub use compare::Cell;
pub use equivalent::Equivalence;
pub use error::Error;
pub use explain::{Explanation, Part};
pub use export::{Blocks, Runs, Slice, SliceKind};
pub use facts::{Facts, RealTokens};
pub use grid::{Cover, Grid, GridOptions, checked_range};
pub use keep::Keep;
pub use mask::{Arm, Mask, Node};
pub use order::Order;

pub use plan::{Kind, PatternPlan, Plan, PlanOptions, Reorder, Tile, TileSpan};
pub use scalar::{Real, Rows, Side};
pub use schedule::WorkItem;
pub use score::{Score, Spec};
pub use set::{Selector, Set, Span};
pub use shape::Shape;
pub use stats::{Reordered, Stats, short_bytes, short_count};
pub use syntax::{ParseError, nearest};
pub use transpose::{KeyTile, Transposed};
pub use verify::Verified;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
