//! [`Pool`]: worker processes. Each process runs one call at a time, and is ended if a call takes too long.

use crate::request::call::Call;
use crate::request::cause::Cause;
use crate::request::message::{Reply, Request};
use crate::request::problem::{Problem, Result};
use crate::request::store::Store;
use crate::request::wire::Frame;
use crate::serve::http::Share;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The maximum number of calls that wait for a worker. Further calls receive an error.
pub(crate) const MOST_WAITING: usize = 64;
/// The maximum number of times that one call is sent to a worker. A call is sent again if the worker answers that the
/// definition of a mask is missing.
const MOST_ROUNDS: usize = 4;

/// The worker processes for one kind of request: masks or texts.
pub(crate) struct Pool {
    arguments: Vec<String>,
    store: Arc<Store>,
    idle: Mutex<Vec<Worker>>,
    slots: Arc<Semaphore>,
    /// One permit for each call that may still wait for a worker.
    pub(crate) waiting: Semaphore,
}

/// A running worker process, with the pipes to its standard input and from its standard output.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The reservation of one worker process of a pool for one call. [`call`](Turn::call) runs the call. If the pool has no
/// idle process, `call` starts a process.
pub(crate) struct Turn {
    pool: Arc<Pool>,
    slot: Share,
}

impl Pool {
    /// Returns a pool of at most `size` worker processes. Each process runs this program with the arguments
    /// `arguments`, and is started when the first call needs it. `store` provides the definitions of masks that a
    /// worker lacks, and receives new definitions.
    pub(crate) fn new(arguments: &[String], size: usize, store: &Arc<Store>) -> Arc<Self> {
        Arc::new(Pool {
            arguments: arguments.to_vec(),
            store: store.clone(),
            idle: Mutex::default(),
            slots: Arc::new(Semaphore::new(size)),
            waiting: Semaphore::new(MOST_WAITING),
        })
    }

    /// Waits until a worker is free, and reserves this worker for one call. Calls receive workers in the order in which
    /// they wait. Returns an error if too many calls wait.
    pub(crate) async fn turn(self: &Arc<Self>) -> Result<Turn> {
        let busy = || Problem::status(503, "too many requests are waiting: try again in a moment").cause(Cause::Busy);
        let _waiting = self.waiting.try_acquire().map_err(|_| busy())?;
        let slot = self.slots.clone().acquire_owned().await.map_err(|_| busy())?;
        Ok(Turn { pool: self.clone(), slot })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Runs `call` on a worker. Returns an error if the call takes longer than `limit`; its process is then ended.
    pub(crate) async fn call(self, call: Call, body: Vec<u8>, limit: Duration) -> Result<Frame<Reply>> {
        let Turn { pool, slot: _slot } = self;
        let known = pool.idle().pop();
        // A worker that ended after its last answer is replaced: its end has nothing to do with this call.
        let known =
            known.and_then(|mut worker| worker.child.try_wait().is_ok_and(|end| end.is_none()).then_some(worker));
        let worker = known.map_or_else(|| Worker::start(&pool.arguments), Ok)?;
        let Worker { mut child, mut input, mut output } = worker;
        let store = pool.store.clone();
        let asked = spawn_blocking(move || {
            let answer = ask(&mut input, &mut output, call, body, &store);
            (answer, input, output)
        });
        let asked = timeout(limit, asked).await;
        if let Ok(Ok((Ok(answer), input, output))) = asked {
            pool.idle().push(Worker { child, input, output });
            return answer;
        }
        let is_late = asked.is_err();
        // Closes the pipes, so that the process ends.
        drop(asked);
        let end = spawn_blocking(move || {
            if is_late {
                let _ = child.kill();
            }
            child.wait()
        });
        let end = end.await.ok().and_then(io::Result::ok);
        if is_late {
            return Err(beyond(
                408,
                format!("the request takes longer than {} s, the explorer's limit", limit.as_secs()),
            ));
        }
        Err(ended(end.and_then(|status| status.code())))
    }
}

/// Returns the problem of a call whose worker process ended by itself with this exit code. `None` means that a signal
/// ended the process, which happens when the process needs more memory than its limit.
pub(super) fn ended(code: Option<i32>) -> Problem {
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
