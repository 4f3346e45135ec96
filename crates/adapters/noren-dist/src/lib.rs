//! Partitions of attention over many ranks (processes): the tokens and cells of each rank, and the data that ranks exchange.
//!
//! A sequence too long for one machine is split over several. [`partition`] plans the split from the exact mask: the owner of each
//! token, the rank that computes each cell, the keys (or queries and results) that ranks send to each other, and the order in which
//! partial results are merged. The crate moves no data: the crate `noren-ranks` executes a [`Partition`], for Rust and for
//! `noren.distributed` in Python.
//!
//! ```
//! use noren_dist::{Options, partition};
//! use noren_mask::{Facts, Shape, atoms::*};
//! let bound = (causal() & documents_of([48, 16])).bind(&Shape::square(64), &Facts::new())?;
//! let split = partition(&bound.plan(), &Options { ranks: 4, ..Options::default() })?;
//! split.check(&bound)?; // every allowed cell is computed exactly once
//! # Ok::<(), noren_dist::Error>(())
//! ```
//!
//! # Where to go next
//!
//! * [`Partition`]: the splits, and the rules for programs that execute them; [`Options`] and [`Objective`]: the choice
//!   of a split
//! * [`search()`], [`Candidate`]: all splits that were tried; [`Measures`], [`Bound`]: their costs and lower bounds
//! * [`Baseline`]: the splits by rules of other libraries; [`simulate()`]: the time of a pass on other machines
//! * [`RankSlices`]: export to MagiAttention
//! * `docs/scale.md`: measurements, and the files of this crate
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
