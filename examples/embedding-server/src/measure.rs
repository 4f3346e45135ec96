//! Measures the latencies of many parallel clients, with packed and with padded batches.

use crate::client;
use crate::http::{listen, routes};
use crate::queue::{Batching, Limits, Queue};
use noren_candle::embed::Embedder;
use std::io::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The requests that a measurement sends.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of clients, which send requests at the same time.
    pub clients: usize,
    /// The number of requests that each client sends, one after another.
    pub requests: usize,
    /// The maximum number of words of a text. The lengths of texts, from 3 words to this number, are spread evenly on a
    /// logarithmic scale.
    pub words: usize,
}

/// The latencies of one run, sorted.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// The time of each request, from the connection to the end of the response, in ascending order.
    pub sorted: Vec<Duration>,
    /// The time from the start of the first request to the end of the last response.
    pub total: Duration,
}

impl Latencies {
    /// Returns the latency that the fraction `part` of all requests does not exceed. `part` is from 0 to 1.
    pub fn percentile(&self, part: f64) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get((part * last as f64).round() as usize).copied().unwrap_or_default()
    }
}

/// Runs a server on a free port of the loopback address, sends the requests of `load`, and returns their latencies.
///
/// # Errors
/// Returns an error if the server cannot listen, or if a request has another status than 200.
pub async fn run(embedder: &Arc<Embedder>, batching: Batching, batch_tokens: usize, load: Load) -> Result<Latencies> {
    let limits = Limits { batch_tokens, waiting_tokens: usize::MAX / 2, batching };
    let (queue, thread) = Queue::start(Arc::clone(embedder), limits);
    let listener = listen(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, routes(Arc::clone(embedder), queue.clone())).into_future());
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..load.clients {
        clients.spawn(async move {
            let mut times = Vec::new();
            for request in 0..load.requests {
                let text = text(client * load.requests + request, load.words);
                let start = Instant::now();
                let response = client::embed(address, vec![text]).await?;
                times.push(start.elapsed());
                if response.status != 200 {
                    let body = String::from_utf8_lossy(&response.body).into_owned();
                    return Err(Error::other(format!("a request has the status {}: {body}", response.status)));
                }
            }
            Ok(times)
        });
    }
    let mut sorted = Vec::new();
    while let Some(times) = clients.join_next().await {
        sorted.extend(times.map_err(Error::other)??);
    }
    let total = start.elapsed();
    sorted.sort_unstable();
    server.abort();
    queue.close();
    tokio::task::spawn_blocking(move || thread.join())
        .await
        .map_err(Error::other)?
        .map_err(|_| Error::other("the queue's thread panicked"))?;
    Ok(Latencies { sorted, total })
}

/// Returns a text of 3 to `most` words from a fixed list. `number` selects the text.
pub fn text(number: usize, most: usize) -> String {
    const WORDS: [&str; 12] =
        ["the", "mask", "of", "a", "query", "reads", "keys", "in", "its", "document", "and", "no"];
    // a multiplicative hash spreads the lengths over the requests
    let hash = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let part = (hash >> 11) as f64 / (1u64 << 53) as f64;
    let words = (3.0 * (most.max(3) as f64 / 3.0).powf(part)).round() as usize;
    (0..words).map(|i| WORDS[(hash >> (i % 48)) as usize % WORDS.len()]).collect::<Vec<_>>().join(" ")
}
