//! A worker: a separate process that answers one call at a time. A call that takes too much time or memory ends only
//! its worker; the server continues.

use crate::answer;
use crate::request::message::{JSON, Reply, Request};
use crate::request::problem::Problem;
use crate::request::state::{State, Stop};
use crate::request::texts::Texts;
use crate::request::wire::Frame;
use std::io::{BufReader, BufWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The maximum address space of a worker without a model, in bytes.
pub(crate) const MOST_MEMORY: u64 = 3 << 30;
/// The interval at which a worker checks whether its server still runs.
#[cfg(unix)]
const WATCH: std::time::Duration = std::time::Duration::from_millis(500);

/// Answers the calls on standard input until the input ends. [`serve`](crate::serve) starts a process that calls this
/// function.
///
/// If `limited` is true and the system supports such a limit, the process has at most 3 GiB of address space; a model
/// needs more. `texts` is the model; without a model, requests about texts receive an error.
///
/// # Errors
/// Returns an error if standard input or output fails.
pub fn worker(limited: bool, texts: Option<Box<dyn Texts>>) -> std::io::Result<()> {
    if limited {
        // If the system has no such limit, the limit on time still applies.
        let _ = rlimit::Resource::AS.set(MOST_MEMORY, MOST_MEMORY);
    }
    end_with_the_server();
    let mut state = State::new(texts);
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut output = BufWriter::new(std::io::stdout().lock());
    while let Some(frame) = Frame::<Request>::read(&mut input)? {
        let reply = catch_unwind(AssertUnwindSafe(|| answer(&mut state, frame)));
        reply
            .unwrap_or_else(|_| refusal(&Problem::status(500, "an internal error of noren: the request has no answer")))
            .write(&mut output)?;
    }
    Ok(())
}

/// Starts a thread that ends this process soon after the server ends. Without the server, no process enforces the limit
/// on the time of a call.
fn end_with_the_server() {
    #[cfg(unix)]
    {
        let server = std::os::unix::process::parent_id();
        let watch = move || {
            while std::os::unix::process::parent_id() == server {
                std::thread::sleep(WATCH);
            }
            std::process::exit(0);
        };
        // Without this thread, the process ends after its current call, when it finds its input closed.
        let _ = std::thread::Builder::new().spawn(watch);
    }
}

fn answer(state: &mut State, frame: Frame<Request>) -> Frame<Reply> {
    let mut blobs = frame.blobs.into_iter();
    let body = blobs.next().unwrap_or_default();
    for (id, definition) in frame.head.defined.iter().zip(blobs) {
        if let Err(problem) = state.define(id, &definition) {
            return refusal(&problem);
        }
    }
    match answer::answer(state, &frame.head.call, &body) {
        Ok(frame) => frame,
        Err(Stop::Needs(id)) => Frame { head: Reply { needs: Some(id), ..Reply::default() }, blobs: vec![Vec::new()] },
        Err(Stop::Problem(problem)) => refusal(&problem),
    }
}

fn refusal(problem: &Problem) -> Frame<Reply> {
    let head = Reply { status: problem.status, content_type: JSON.into(), ..Reply::default() };
    Frame { head, blobs: vec![problem.body()] }
}
