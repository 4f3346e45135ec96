//! Exact masked attention over many ranks (processes or threads).
//!
//! Executes a [`Partition`](crate::Partition). Each rank holds the queries, keys and values that it owns, and
//! gets the outputs and gradients for them: the same rows that one process would compute. Ranks send only data that
//! other ranks read, and meanwhile compute with the data that they already have. The partition fixes the order of all
//! additions, so repeated runs give the same bits.
//!
//! A [`Link`] transports the bytes: [`threads`] between threads of one process, or `Mpi` between processes under
//! `mpirun`. `Mpi` is part of the feature `mpi`, which needs an MPI and libclang (on Debian,
//! `libopenmpi-dev openmpi-bin libclang-dev`).
//!
//! ```
//! use noren_mask::{Facts, Shape, atoms::*};
//! use noren_dist::ranks::{Link, Local, Options, Split, attention, threads};
//! use std::time::Duration;
//!
//! let plan = (causal() & documents_of([6, 2])).bind(&Shape::square(8), &Facts::new())?.plan();
//! let x: Vec<f32> = (0..8 * 4).map(|i| (i as f32).sin()).collect(); // [1, 1, 8, 4]: the queries, keys and values
//! let results = threads(2, Duration::from_secs(10), |link| {
//!     let split = Split::new(&plan, link)?;
//!     let (q, k) = (split.take_rows(&x, 4, 0.0), split.take_keys(&x, 4, 0.0));
//!     let local = Local { q: &q, k: &k, v: &k, head_dim: 4, v_dim: 4 };
//!     let found = attention(&split, link, &local, &Options::default())?;
//!     assert_eq!(link.job().traffic().sent, split.predicted([4, 4], 4)[0].sent);
//!     Ok::<_, noren_dist::ranks::Error>(found.out)
//! });
//! assert_eq!(results.into_iter().map(|out| out.map_or(0, |out| out.len())).sum::<usize>(), 8 * 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors and exactness
//!
//! If ranks are about to make different calls, every rank returns an error before any array is sent. If a rank dies or
//! stalls, every rank that waits for it returns an error within the time-out of the link. The other ranks return an
//! error in their next call. After such a loss, the link transports nothing more: end all ranks, and start them again
//! from the last checkpoint.
//!
//! Partial results are merged by their log-sum-exps in `f32`. Results differ from those of one process by the rounding of the
//! log-sum-exps: relatively `2^-23` times the size of a row's log-sum-exp.
//!
//! # Modules
//!
//! | modules | contents |
//! |---|---|
//! | `inputs`, `array`, `split` | the arrays and options of one rank; indices of the whole sequence as places in a rank's arrays |
//! | `link`, `threads`, `mpi`, `agree` | transport of bytes, and the comparison of the ranks' calls before data is sent |
//! | `attention`, `decode`, `merge` | forward and backward passes, steps over a cache that is split, the merge of partial results |

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
