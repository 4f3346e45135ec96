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
//! | `http`, `date`, `guard`, `routes`, `page`, `server` | HTTP, checks of the origin of requests, routes, the embedded page |
//! | `pool`, `call`, `message`, `wire` | worker processes and the messages to them |
//! | `worker`, `state`, `store`, `answer/*` | the worker: masks by the hash of their definition, and the answers |
//! | `query`, `scene`, `pasted`, `texts` | parameters of requests, masks with shapes and facts, pasted arrays, the text view |
//! | `budget`, `problem`, `cause` | limits, error responses |

mod answer;
mod request;
mod serve;
mod worker;

pub use request::texts::{TextAnswer, TextRequest, Texts};
pub use worker::worker;

use request::problem::Problem;
use serve::budget::Budget;
use serve::server::Server;
use std::io::Result;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// The minimum and the maximum of the limit on worker processes for requests about masks. Within these bounds, the
/// limit is the number of processor cores.
const WORKERS: std::ops::RangeInclusive<usize> = 2..=8;
/// The maximum number of connections whose requests the server answers at a time. Further connections receive only the
/// HTTP status 503.
const MOST_CONNECTIONS: usize = 256;
/// The maximum number of connections beyond `MOST_CONNECTIONS` to which the server sends the HTTP status 503 at a time.
/// Further connections are closed without a response.
const MOST_REFUSALS: usize = 16;

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
/// Returns an error if the address of `listener` cannot be read.
pub fn serve(listener: &TcpListener, options: &Options) -> Result<()> {
    let own = Arc::new(serve::guard::Own::new(listener.local_addr()?.port()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(*WORKERS.start(), *WORKERS.end());
    let server = Arc::new(Server::new(&options.mask_worker, &options.text_worker, workers));
    let connections = Budget::new(MOST_CONNECTIONS);
    let refusals = Budget::new(MOST_REFUSALS);
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // The process may have too many open files. Open connections continue, and some of them close.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let Some(slot) = connections.take(1, Duration::ZERO) else {
            // Beyond this second limit, a connection is closed without a response, so that open connections continue.
            let Some(slot) = refusals.take(1, Duration::ZERO) else { continue };
            let _ = std::thread::Builder::new().spawn(move || {
                let _slot = slot;
                let problem = Problem::status(503, "too many connections are open: try again in a moment");
                serve::http::turn_away(stream, &serve::guard::protect(serve::routes::refusal(&problem)))
            });
            continue;
        };
        let (own, server) = (own.clone(), server.clone());
        let answer = move |head: &serve::http::Head, body: &mut serve::http::Body<'_>| {
            let response = match serve::guard::refused(&own, head) {
                Some(reason) => serve::routes::refusal(&Problem::status(403, reason)),
                None => serve::routes::answer(&server, head, body),
            };
            serve::guard::harden(head, response)
        };
        // If no thread can be started, the connection is closed. A client that disconnects is not an error.
        let _ = std::thread::Builder::new().spawn(move || {
            let _slot = slot;
            serve::http::converse(stream, answer, |status| {
                let message = if status == 431 {
                    "the headers of the request are too large"
                } else {
                    "the request is not HTTP/1.1"
                };
                serve::guard::protect(serve::routes::refusal(&Problem::status(status, message)))
            })
        });
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
