//! Partitions of attention over many ranks (processes): the tokens and cells of each rank, and the data that ranks exchange.
//!
//! A sequence too long for one machine is split over several. [`partition`] plans the split from the exact mask: the owner of each
//! token, the rank that computes each cell, the keys (or queries and results) that ranks send to each other, and the order in which
//! partial results are merged. [`ranks`] executes a [`Partition`] over threads or MPI; `noren.distributed`
//! does so for Python.
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
#![deny(unsafe_code)]

mod costs;
mod error;
pub mod masks;
mod partition;
mod picture;
pub mod ranks;
mod strategies;

pub use costs::measure::Measures;
pub use costs::simulate::{Simulation, short_seconds, simulate};
pub use costs::{Costs, Machine};
pub use error::Error;
pub use partition::export::RankSlices;
pub use partition::runs::{Runs, count};
pub use partition::wire::{Traffic, Wire};
pub use partition::{Exchange, Partition, RowPartition, Share, Step, Travel, VERSION};
pub use picture::picture;
pub use strategies::baselines::Baseline;
pub use strategies::bound::Bound;
pub use strategies::search::{Candidate, Objective, Options, RowSearch, Search, compare, partition, search};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
