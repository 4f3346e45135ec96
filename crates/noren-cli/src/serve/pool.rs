//! [`Pool`]: worker processes, one call each at a time, ended when they take too long.

use super::answer::Call;
use super::problem::{Problem, Result};
use super::store::Store;
use super::wire::Frame;
use super::worker::{Answered, Asked};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;

/// Calls that wait for a worker; more are sent away.
const MOST_WAITING: usize = 64;
/// Times that a worker may say that it lacks a definition.
const MOST_ROUNDS: usize = 4;

/// Worker processes of one kind.
pub(super) struct Pool {
    arguments: Vec<String>,
    store: Arc<Store>,
    idle: Mutex<Vec<Worker>>,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A running process.
struct Worker {
    /// Killed when it is dropped.
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Counts a call that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// At most `size` processes, each started when it is needed. Masks that they do not know come from `store`, and new ones go
    /// there.
    pub(super) fn new(arguments: Vec<String>, size: usize, store: Arc<Store>) -> Arc<Self> {
        Arc::new(Pool {
            arguments,
            store,
            idle: Mutex::new(Vec::new()),
            slots: Arc::new(Semaphore::new(size)),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Has a worker answer `call` within `limit`.
    pub(super) async fn call(self: &Arc<Self>, call: Call, body: Vec<u8>, limit: Duration) -> Result<Frame<Answered>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= MOST_WAITING {
            return Err(Problem::status(503, "too many requests wait already: try again in a moment"));
        }
        let slot = self.slots.clone().acquire_owned().await;
        let slot = slot.map_err(|_| Problem::status(503, "the server is ending"))?;
        drop(waiting);
        let pool = self.clone();
        // A page that no longer wants an answer must not end the worker that is at it.
        let work = tokio::spawn(async move {
            let _slot = slot;
            let taken = pool.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let begin = async {
                // One that has ended since its last answer says nothing of this call.
                let lives = |worker: &mut Worker| worker.child.try_wait().is_ok_and(|ended| ended.is_none());
                let taken = taken.and_then(|mut worker| lives(&mut worker).then_some(worker));
                let mut worker = taken.map_or_else(|| Worker::start(&pool.arguments), Ok)?;
                let answer = worker.ask(call, body, &pool.store).await;
                Ok((worker, answer))
            };
            match tokio::time::timeout(limit, begin).await {
                Ok(Ok((worker, Ok(answer)))) => {
                    pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
                    answer
                }
                Ok(Ok((_, Err(_)))) => {
                    Err(beyond(507, "this takes more memory than the explorer gives to one request".into()))
                }
                Ok(Err(problem)) => Err(problem),
                Err(_) => {
                    Err(beyond(408, format!("this takes longer than {} s, the explorer's limit", limit.as_secs())))
                }
            }
        });
        work.await.unwrap_or_else(|_| Err(Problem::status(500, "a fault in noren; the request is not answered")))
    }
}

/// A call that a worker could not end.
fn beyond(status: u16, message: String) -> Problem {
    Problem::status(status, message).hint("ask about less, or use the command line, which has no such limit")
}

impl Worker {
    fn start(arguments: &[String]) -> Result<Self> {
        let failed = |e: std::io::Error| Problem::status(500, format!("a worker process cannot be started: {e}"));
        // The program's own file may have been replaced while it runs.
        let own = PathBuf::from("/proc/self/exe");
        let program = if own.exists() { own } else { std::env::current_exe().map_err(failed)? };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Worker { child, input, output: BufReader::new(output) }),
            _ => Err(Problem::status(500, "a worker process has no pipes")),
        }
    }

    /// Sends a call, again with definitions where the worker lacks them. The outer error is that of a process that has ended.
    async fn ask(&mut self, call: Call, body: Vec<u8>, store: &Store) -> std::io::Result<Result<Frame<Answered>>> {
        let mut frame = Frame { head: Asked { call, defined: Vec::new() }, blobs: vec![body] };
        for _ in 0..MOST_ROUNDS {
            frame.send(&mut self.input).await?;
            let mut answer = Frame::<Answered>::receive(&mut self.output).await?;
            let Some(id) = answer.head.needs.take() else {
                let body = answer.blobs.drain(1..).collect::<Vec<_>>();
                body.into_iter().for_each(|definition| store.insert(definition));
                return Ok(Ok(answer));
            };
            let Some(definition) = store.get(&id) else {
                let problem = Problem::status(410, format!("mask {id} is not known any more: send it again"));
                return Ok(Err(problem));
            };
            frame.head.defined.push(id);
            frame.blobs.push(definition.to_vec());
        }
        Ok(Err(Problem::status(500, "a worker does not keep what it is told")))
    }
}
