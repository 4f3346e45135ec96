//! [`Pool`]: worker processes. Each process runs one call at a time, and is ended if a call takes too long.

use crate::request::call::Call;
use crate::request::cause::Cause;
use crate::request::message::{Reply, Request};
use crate::request::problem::{Problem, Result};
use crate::request::store::Store;
use crate::request::wire::Frame;
use crate::serve::budget::{Budget, Share};
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of calls that wait for a worker. Further calls receive an error.
const MOST_WAITING: usize = 64;
/// The maximum time for which a call waits for a worker. The limit is long because up to [`MOST_WAITING`] earlier calls
/// may be answered first, each of which may take its full time limit.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The maximum number of times that one call is sent to a worker. A call is sent again if the worker answers that the
/// definition of a mask is missing.
const MOST_ROUNDS: usize = 4;

/// The worker processes for one kind of request: masks or texts.
pub(crate) struct Pool {
    arguments: Vec<String>,
    store: Arc<Store>,
    idle: Mutex<Vec<Worker>>,
    slots: Arc<Budget>,
    waiting: AtomicUsize,
}

/// A running worker process, with the pipes to its standard input and from its standard output.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Ending a process that has already ended has no effect; `wait` removes it from the process table.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reservation of one worker process of a pool for one call. [`call`](Turn::call) runs the call. If the pool has no
/// idle process, `call` starts a process.
pub(crate) struct Turn<'a> {
    pool: &'a Pool,
    #[expect(dead_code, reason = "the field only keeps the worker reserved until it is dropped")]
    slot: Share,
}

/// A call that waits for a worker and is counted in `waiting` of [`Pool`]. Dropping the value decreases the count by 1.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Returns a pool of at most `size` worker processes. Each process runs this program with the arguments
    /// `arguments`, and is started when the first call needs it. `store` provides the definitions of masks that a
    /// worker lacks, and receives new definitions.
    pub(crate) fn new(arguments: Vec<String>, size: usize, store: Arc<Store>) -> Self {
        Pool { arguments, store, idle: Mutex::new(Vec::new()), slots: Budget::new(size), waiting: AtomicUsize::new(0) }
    }

    /// Waits until a worker is free, and reserves this worker for one call. Returns an error if too many calls wait, or
    /// if no worker is free within `PATIENCE`. Also returns an error if `gone()` returns true, which means that the
    /// client has disconnected.
    pub(crate) fn turn(&self, gone: &dyn Fn() -> bool) -> Result<Turn<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        let busy = || Problem::status(503, "too many requests are waiting: try again in a moment").cause(Cause::Busy);
        if before >= MOST_WAITING {
            return Err(busy());
        }
        let slot = self.slots.take_unless(1, PATIENCE, gone).ok_or_else(busy)?;
        drop(waiting);
        Ok(Turn { pool: self, slot })
    }
}

impl Turn<'_> {
    /// Runs `call` on a worker. Returns an error if the call takes longer than `limit`.
    pub(crate) fn call(self, call: Call, body: Vec<u8>, limit: Duration) -> Result<Frame<Reply>> {
        let Pool { arguments, store, idle, .. } = self.pool;
        let idle = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        let known = idle().pop();
        // A worker that ended after its last answer is replaced: its end has nothing to do with this call.
        let known =
            known.and_then(|mut worker| worker.child.try_wait().is_ok_and(|end| end.is_none()).then_some(worker));
        let mut worker = known.map_or_else(|| Worker::start(arguments), Ok)?;
        match worker.ask_within(limit, call, body, store) {
            (Ok(answer), ended) => {
                if !ended {
                    idle().push(worker);
                }
                answer
            }
            (Err(_), true) => {
                Err(beyond(408, format!("the request takes longer than {} s, the explorer's limit", limit.as_secs())))
            }
            (Err(_), false) => Err(ended(worker.child.wait().ok().and_then(|status| status.code()))),
        }
    }
}

/// Returns the problem of a call whose worker process ended by itself with this exit code. `None` means that a signal
/// ended the process, which happens when the process needs more memory than its limit.
fn ended(code: Option<i32>) -> Problem {
    match code {
        None => beyond(507, "the request needs more memory than one request may use".into()),
        Some(code) => Problem::status(500, format!("the worker process of this request ended with exit code {code}"))
            .hint("this is a defect of noren: please report it with the request"),
    }
}

/// Returns the problem of a call that exceeded the limit on time or memory. `status` is the HTTP status of the
/// response.
fn beyond(status: u16, message: String) -> Problem {
    Problem::status(status, message)
        .hint("use a smaller mask, text or file, or use the command line, which has no such limit")
        .cause(Cause::Resources)
}

impl Worker {
    fn start(arguments: &[String]) -> Result<Self> {
        let failed = |e: io::Error| Problem::status(500, format!("a worker process cannot be started: {e}"));
        // The file of the program may have been replaced while the program runs, so Linux's link to the running program
        // is preferred.
        let own = PathBuf::from("/proc/self/exe");
        let program = if own.exists() { own } else { std::env::current_exe().map_err(failed)? };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Worker { child, input, output: BufReader::new(output) }),
            _ => Err(Problem::status(
                500,
                "the server has no connection to a worker process: its standard input or output is not a pipe",
            )),
        }
    }

    /// Sends a call to the worker, and ends the process if the call takes longer than `limit`. Returns the result of
    /// `ask`, and whether the call exceeded `limit`.
    fn ask_within(
        &mut self,
        limit: Duration,
        call: Call,
        body: Vec<u8>,
        store: &Store,
    ) -> (io::Result<Result<Frame<Reply>>>, bool) {
        let Worker { child, input, output } = self;
        std::thread::scope(|scope| {
            let (answered, signal) = mpsc::channel::<()>();
            let guard = scope.spawn(move || {
                let late = signal.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
                if late {
                    let _ = child.kill();
                }
                late
            });
            let answer = ask(input, output, call, body, store);
            drop(answered);
            (answer, guard.join().unwrap_or(true))
        })
    }
}

/// Sends a call to a worker. If the worker lacks the definition of a mask, sends the call again with this definition.
/// The outer error means that the worker process has ended. The inner error means that the worker has not received all
/// definitions that it needs.
fn ask(
    input: &mut ChildStdin,
    output: &mut BufReader<ChildStdout>,
    call: Call,
    body: Vec<u8>,
    store: &Store,
) -> io::Result<Result<Frame<Reply>>> {
    let mut frame = Frame { head: Request { call, defined: Vec::new() }, blobs: vec![body] };
    for _ in 0..MOST_ROUNDS {
        frame.write(input)?;
        let Some(mut answer) = Frame::<Reply>::read(output)? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let Some(id) = answer.head.needs.take() else {
            answer.blobs.drain(1..).for_each(|definition| store.insert(definition));
            return Ok(Ok(answer));
        };
        let Some(definition) = store.get(&id) else {
            let problem =
                Problem::status(410, format!("the server no longer has mask {id}: send its definition again"));
            return Ok(Err(problem));
        };
        frame.head.defined.push(id);
        frame.blobs.push(definition.to_vec());
    }
    Ok(Err(Problem::status(500, "a worker repeatedly needs definitions of masks that it has received")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_that_a_signal_ended_had_too_little_memory() {
        assert_eq!((ended(None).status, ended(Some(101)).status), (507, 500));
    }
}
