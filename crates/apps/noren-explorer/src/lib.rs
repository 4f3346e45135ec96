//! The explorer: a local web page that shows masks, their costs, flow over layers, texts in a model, and diagnoses.
//!
//! The server answers the browser and computes nothing. Worker processes of the same program compute the answers, one at a time, with
//! limits on memory and time; a worker beyond a limit is ended, and the server continues.
//!
//! ```no_run
//! // Started with the argument `worker`, the program calls `noren_explorer::worker` instead.
//! let options = noren_explorer::Options::new(vec!["worker".to_owned()], Vec::new());
//! let listener = std::net::TcpListener::bind("127.0.0.1:8347")?;
//! noren_explorer::serve(&listener, &options)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A program calls [`serve`], and calls [`worker`] when it is started with the arguments in [`Options`]. [`Texts`] is the model of the
//! text view. `docs/explorer.md` describes the page, its limits, and who may send requests.
//!
//! | modules | contents |
//! |---|---|
//! | `connections`, `http`, `guard`, `routes`, `page`, `server` | HTTP, checks of the origin of requests, routes, the embedded page |
//! | `pool`, `call`, `message`, `wire` | worker processes and the messages to them |
//! | `worker`, `state`, `store`, `answer/*` | the worker: masks by the hash of their definition, and the answers |
//! | `query`, `scene`, `pasted`, `texts` | parameters of requests, masks with shapes and facts, pasted arrays, the text view |
//! | `problem`, `cause` | error responses |

mod answer;
mod request;
mod serve;
mod worker;

pub use request::texts::{TextAnswer, TextRequest, Texts};
pub use worker::worker;

use serve::server::Server;
use std::io::Result;
use std::net::TcpListener;
use std::sync::Arc;

/// The minimum and the maximum of the limit on worker processes for requests about masks. Within these bounds, the
/// limit is the number of processor cores.
const WORKERS: std::ops::RangeInclusive<usize> = 2..=8;

/// The settings of the explorer's server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The arguments with which this program is started as a worker for requests about masks.
    pub mask_worker: Vec<String>,
    /// The arguments with which this program is started as a worker with a model, for requests about texts.
    pub text_worker: Vec<String>,
}

impl Options {
    /// Returns settings with the arguments that start a worker for masks and a worker for texts.
    pub fn new(mask_worker: Vec<String>, text_worker: Vec<String>) -> Self {
        Options { mask_worker, text_worker }
    }
}

/// Answers requests on `listener` until the program ends. The address of `listener` must be reachable from this machine
/// only.
///
/// # Errors
/// Returns an error if the address of `listener` cannot be read, or if the system cannot watch `listener` for
/// connections.
pub fn serve(listener: &TcpListener, options: &Options) -> Result<()> {
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(*WORKERS.start(), *WORKERS.end());
    let port = listener.local_addr()?.port();
    let server = Arc::new(Server::new(port, &options.mask_worker, &options.text_worker, workers));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve::connections::listen(listener, server))
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
