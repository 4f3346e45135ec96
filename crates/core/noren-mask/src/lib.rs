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
//! * [`Plan`], [`PatternPlan`], [`Transposed`], [`Stats`]: tiles, keys by query, queries by key, and costs
//! * [`Spec`] and [`Score`]: a mask with score modifiers
//! * [`resolve`], [`frame`], [`bits`], [`interval`], [`text`]: parts for other crates that read masks
//! * The crate `noren` computes attention over plans
//!
//! # Modules
//!
//! | modules | contents |
//! |---|---|
//! | `mask`, `ops`, `set`, `scalar`, `score` | expressions as values: operators, sets of positions, parameters, score modifiers |
//! | `atoms/*`, `basis/*`, `definition`, `language` | one file for each atom; the parts that atoms share; the list of words for help and editors |
//! | `atom`, `agree`, `member`, `resolved`, `resolution` | the trait of atoms, and the forms in which planning reads an atom |
//! | `syntax/*`, `parse/*`, `print`, `check`, `simplify` | text to mask and back, checks of parameters, the canonical form |
//! | `shape/*`, `facts/*`, `batch/*`, `array/*`, `resolve` | sizes and facts; `batch` reads facts from named arrays; `resolve` is the one place that finds the tokens that a fact refers to |
//! | `bind`, `lower`, `select`, `eval` | binding; one pattern for each distinct set of cells; `eval` is the definition |
//! | `interval`, `bounds`, `frame`, `pattern`, `leaf` | the parts of planning: ranges of keys that some or all queries read |
//! | `cut`, `plan`, `guard`, `schedule`, `transpose`, `stats`, `count/*`, `budget` | tiles and spans, work items, the plan by key, exact counts, limits |
//! | `order`, `reorder`, `split`, `patch`, `verify` | plans with queries and keys in another order, and their verification |
//! | `compare`, `equivalent/*`, `explain`, `grid`, `export/*` | differences, equality at every length, reasons, pictures, forms for other systems |
//! | `serial`, `json` | serial forms, with the feature `serde` |
//! | `keep`, `bits`, `philox`, `text` | cells as bits; the random generator; forms of text that several crates write |
//!
//! The feature `serde` [default: off] adds the serial forms of masks, shapes, facts, arrays and plans (`to_json`, `from_json`, the traits
//! of serde).
//!
//! The crate has no `unsafe`, no threads and no tensor type.
#![forbid(unsafe_code)]

mod agree;
mod array;
pub mod atom;
pub mod atoms;
mod basis;
pub mod batch;
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
mod fold;
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
pub mod sentence;
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

pub use array::{Array, HIDES};
pub use atoms::{Cell, Cells, Padding};
pub use bind::BoundMask;
pub use budget::{Budget, Progress, Stage};
pub use compare::CellIndex;
pub use equivalent::Equivalence;
pub use error::Error;
pub use explain::{Explanation, Part, Reasons};
pub use export::{Blocks, DecodePlan, DevicePlan, DeviceSide, Runs, Slice, SliceKind};
pub use facts::{Facts, RealTokens};
pub use fold::{Fold, FoldOptions, FoldPlace, FoldRow, FoldRun};
pub use grid::{Cover, Grid, GridOptions, checked_range};
pub use keep::Keep;
pub use mask::{Arm, Mask, Node};
pub use order::Order;

pub use plan::{PatternPlan, Plan, PlanOptions, Reorder, SpanKind, Tile, TileSpan};
pub use scalar::{Offset, Real, Rows, Side};
pub use schedule::WorkItem;
pub use score::{Score, Spec};
pub use set::{Positions, Selector, Span};
pub use shape::Shape;
pub use stats::{Reordered, Stats, short_bytes, short_count};
pub use syntax::{ParseError, nearest};
pub use transpose::{KeyTile, Transposed};
pub use verify::Verified;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
