//! Attention over many ranks: the owner of each token, the rank that computes each cell of a mask, and the data that travels.
//!
//! A sequence too long for one machine is split over several. noren knows the mask exactly, so it can plan the split exactly:
//! [`partition`] fixes which rank owns which tokens, which keys (or queries and results) travel to whom, and in which order partial
//! results are merged. The crate moves no data: executors read a [`Partition`], `noren.distributed` in Python and the crate `noren-ranks`.
//!
//! ```
//! use noren_dist::{Options, partition};
//! use noren_mask::{Facts, Shape, atoms::*};
//! let bound = (causal() & documents_of([48, 16])).bind(&Shape::square(64), &Facts::new())?;
//! let split = partition(&bound.plan(), &Options { ranks: 4, ..Options::default() })?;
//! split.check(&bound)?;
//! # Ok::<(), noren_dist::Error>(())
//! ```
#![forbid(unsafe_code)]

mod affinity;
mod baselines;
mod bound;
mod check;
mod contiguous;
mod costs;
mod documents;
mod error;
mod exhaustive;
mod export;
mod improve;
mod layout;
pub mod masks;
mod measure;
mod partition;
mod picture;
mod place;
mod rectangles;
mod runs;
mod search;
mod simulate;
mod strips;
mod wire;
mod zigzag;

pub use baselines::Baseline;
pub use bound::Bound;
pub use costs::{Costs, Machine};
pub use error::Error;
pub use export::RankSlices;
pub use measure::Measures;
pub use partition::{Exchange, Partition, RowPartition, Share, Step, Travel, VERSION};
pub use picture::picture;
pub use runs::{Runs, count};
pub use search::{Candidate, Objective, Options, RowSearch, Search, compare, follow, partition, search};
pub use simulate::{Simulation, short_seconds, simulate};
pub use wire::{Traffic, Wire};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
