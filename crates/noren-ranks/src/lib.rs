//! Exact masked attention over many ranks, from Rust.
//!
//! [`noren_dist`] plans who owns which tokens of a sequence, who computes which cells of a mask, and what travels; this crate
//! carries that out. Each rank holds its own queries, keys and values and gets its own outputs and gradients, the rows of what
//! one process computes. Only what is read travels, while what is here is computed, and everything is added in an order that the
//! partition fixes: the same bits each time.
//!
//! What carries the bytes is a [`Link`]: [`threads`] of this process, to try it, or `Mpi`, processes under `mpirun` (feature `mpi`;
//! it needs an MPI and libclang, on Debian `libopenmpi-dev openmpi-bin libclang-dev`).
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! use noren_ranks::{Link, Local, Options, Split, attention, threads};
//! use std::time::Duration;
//!
//! let plan = (causal() & documents_of([6, 2])).bind(&Shape::square(8), &Facts::new())?.plan();
//! let x: Vec<f32> = (0..8 * 4).map(|i| (i as f32).sin()).collect(); // [1, 1, 8, 4], queries, keys and values alike
//! let results = threads(2, Duration::from_secs(10), |link| {
//!     let split = Split::new(&plan, link)?;
//!     let (q, k) = (split.take_rows(&x, 4, 0.0), split.take_keys(&x, 4, 0.0));
//!     let local = Local { q: &q, k: &k, v: &k, head_dim: 4, v_dim: 4 };
//!     let found = attention(&split, link, &local, &Options::default())?;
//!     assert_eq!(link.job().traffic().sent, split.predicted([4, 4], 4)[0].sent);
//!     Ok::<_, noren_ranks::Error>(found.out)
//! });
//! assert_eq!(results.into_iter().map(|out| out.map_or(0, |out| out.len())).sum::<usize>(), 8 * 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Ranks that are about to compute different things are told so before any array is sent. A rank that dies or stalls is an error
//! within the link's time-out on every rank that waits for it, on the others in their next call, and after an error a link carries
//! nothing any more: the job ends, and starts again from its last checkpoint.
//!
//! Partial results are merged by log-sum-exps in `f32`, so results are as far from one process's as those are rounded: relatively
//! `2^-23` times the size of a row's log-sum-exp.
#![deny(unsafe_code)]

mod agree;
mod array;
mod attention;
mod decode;
mod error;
mod inputs;
mod link;
mod merge;
#[cfg(feature = "mpi")]
#[allow(unsafe_code)] // calls of MPI
mod mpi;
mod split;
mod threads;

#[cfg(feature = "mpi")]
pub use self::mpi::Mpi;
pub use agree::{agree, refuse};
pub use attention::{Attended, Gradients, attention, attention_backward};
pub use decode::{Shards, decode};
pub use error::Error;
pub use inputs::{Local, Options};
pub use link::{Arrivals, Job, Link, Messages, Sizes, Traffic, gather};
pub use split::Split;
pub use threads::{ThreadLink, threads};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
