//! [`Queue`]: requests that wait for the model, and the thread that computes them in batches.

use noren_models::embed::Embedder;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of tokens of a batch. A single request may have more.
    pub batch_tokens: usize,
    /// The maximum number of tokens of all requests that wait. A request above this limit is refused.
    pub waiting_tokens: usize,
}

/// The vectors of a request, one for each of its texts, or the reason why there are none.
pub type Vectors = Result<Vec<Vec<f32>>, String>;

/// The reason why a queue refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Too many tokens wait.
    Full {
        /// The number of tokens of the requests that wait.
        waiting: usize,
        /// The maximum number of tokens that may wait.
        limit: usize,
    },
    /// The server is shutting down.
    Closing,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Full { waiting, limit } => {
                write!(
                    f,
                    "the server is overloaded: {waiting} tokens wait, and the limit is {limit}. Send the request again later"
                )
            }
            Refused::Closing => write!(f, "the server is shutting down: send the request to another server"),
        }
    }
}

/// The numbers of tokens, requests and batches of a queue since its start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Counts {
    /// The number of tokens that wait now.
    pub waiting_tokens: usize,
    /// The maximum number of tokens that waited at the same time.
    pub most_waiting_tokens: usize,
    /// The number of requests that were computed.
    pub computed: u64,
    /// The number of requests that were refused because too many tokens waited.
    pub refused: u64,
    /// The number of requests that were not computed because the client had closed the connection.
    pub abandoned: u64,
    /// The number of batches that were computed.
    pub batches: u64,
}

/// A request that waits.
struct Job {
    /// The token ids of each text.
    texts: Vec<Vec<u32>>,
    /// The number of tokens of all texts.
    tokens: usize,
    reply: oneshot::Sender<Vectors>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    counts: Counts,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    limits: Limits,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Waits for requests, and removes and returns the requests of the next batch. Returns `None` if the queue is closed and
    /// empty.
    fn next(&self) -> Option<Vec<Job>> {
        let mut state = self.state();
        loop {
            let jobs = state.take(&self.limits);
            if !jobs.is_empty() {
                return Some(jobs);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// Removes the oldest requests from the queue, as many as fit in one batch, and returns them. Requests whose clients
    /// have closed the connection are removed too, but not returned.
    fn take(&mut self, limits: &Limits) -> Vec<Job> {
        let (mut jobs, mut used): (Vec<Job>, _) = (Vec::new(), 0);
        while let Some(job) = self.jobs.front() {
            let abandoned = job.reply.is_closed();
            if !abandoned && !jobs.is_empty() && used + job.tokens > limits.batch_tokens {
                break;
            }
            self.counts.waiting_tokens -= job.tokens;
            let job = self.jobs.pop_front().expect("the queue has a first request");
            if abandoned {
                self.counts.abandoned += 1;
            } else {
                used += job.tokens;
                jobs.push(job);
            }
        }
        self.counts.batches += u64::from(!jobs.is_empty());
        jobs
    }
}

/// Requests that wait for a model, and the thread that computes them. Clones share the queue.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<Shared>,
}

impl Queue {
    /// Starts the thread that computes the requests of a new queue. The thread ends after [`close`](Self::close), when
    /// all waiting requests are computed.
    pub fn start(embedder: Arc<Embedder>, limits: Limits) -> (Self, JoinHandle<()>) {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), limits });
        let queue = Queue { shared: Arc::clone(&shared) };
        let thread = std::thread::spawn(move || {
            let ended = CloseAtEnd(&shared);
            while let Some(jobs) = shared.next() {
                answer(&embedder, &shared, jobs);
            }
            drop(ended);
        });
        (queue, thread)
    }

    /// Adds a request to the queue. The returned receiver gets the vectors. If the receiver is dropped before the request is
    /// computed, the request is removed.
    ///
    /// # Errors
    /// Returns an error if too many tokens wait, or if the queue is closed.
    pub fn submit(&self, texts: Vec<Vec<u32>>) -> Result<oneshot::Receiver<Vectors>, Refused> {
        let tokens = texts.iter().map(Vec::len).sum();
        let (reply, receiver) = oneshot::channel();
        let mut state = self.shared.state();
        if state.closed {
            return Err(Refused::Closing);
        }
        let (waiting, limit) = (state.counts.waiting_tokens, self.shared.limits.waiting_tokens);
        // A request that is larger than the limit is computed if no other request waits.
        if waiting + tokens > limit && waiting > 0 {
            state.counts.refused += 1;
            return Err(Refused::Full { waiting, limit });
        }
        state.counts.waiting_tokens += tokens;
        state.counts.most_waiting_tokens = state.counts.most_waiting_tokens.max(state.counts.waiting_tokens);
        state.jobs.push_back(Job { texts, tokens, reply });
        drop(state);
        self.shared.changed.notify_one();
        Ok(receiver)
    }

    /// Refuses all further requests. Requests that wait are still computed.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Returns the numbers of tokens, requests and batches of this queue since its start.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }
}

/// Closes the queue when the thread ends, also by a panic, and drops the requests that wait: their clients get an error.
struct CloseAtEnd<'a>(&'a Shared);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
        let jobs = std::mem::take(&mut self.0.state().jobs);
        drop(jobs);
    }
}

/// Computes the vectors of requests, and sends them. If the batch fails, each request is computed alone, so that one
/// faulty request fails only for its own client.
fn answer(embedder: &Embedder, shared: &Shared, jobs: Vec<Job>) {
    let texts: Vec<Vec<u32>> = jobs.iter().flat_map(|job| job.texts.clone()).collect();
    let results: Vec<Vectors> = match compute(embedder, &texts, &shared.limits) {
        Ok(vectors) => {
            let mut vectors = vectors.into_iter();
            jobs.iter().map(|job| Ok(vectors.by_ref().take(job.texts.len()).collect())).collect()
        }
        Err(problem) if jobs.len() == 1 => vec![Err(problem)],
        Err(_) => jobs.iter().map(|job| compute(embedder, &job.texts, &shared.limits)).collect(),
    };
    shared.state().counts.computed += jobs.len() as u64;
    for (job, result) in jobs.into_iter().zip(results) {
        let _ = job.reply.send(result); // the client may have left
    }
}

/// Returns the vector of each text, given as token ids. The texts are divided into one batch for each thread.
fn compute(embedder: &Embedder, texts: &[Vec<u32>], limits: &Limits) -> Vectors {
    let budget = limits.batch_tokens.div_ceil(rayon::current_num_threads());
    embedder.embed(texts, budget).map_err(|e| e.to_string())
}
