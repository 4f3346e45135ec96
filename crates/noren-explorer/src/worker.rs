//! A worker: a process of its own that answers one call at a time, so that a call which takes too long or too much memory can be
//! ended without the server.

use crate::answer;
use crate::message::{JSON, Reply, Request};
use crate::problem::Problem;
use crate::state::{State, Stop};
use crate::texts::Texts;
use crate::wire::Frame;
use std::io::{BufReader, BufWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of address space of a worker without a model.
pub(crate) const MOST_MEMORY: u64 = 3 << 30;
/// How often a worker looks for its server.
#[cfg(unix)]
const WATCH: std::time::Duration = std::time::Duration::from_millis(500);

/// Answers calls from standard input until it ends: the work of a process that [`serve`](crate::serve) started.
///
/// With `limited`, the process may take at most 3 GiB of address space where the system has such a limit; a model needs more.
///
/// # Errors
/// Returns an error when standard input or output breaks.
pub fn worker(limited: bool, texts: Option<Box<dyn Texts>>) -> std::io::Result<()> {
    if limited {
        // Where there is no such limit, the one on time still holds.
        let _ = rlimit::Resource::AS.set(MOST_MEMORY, MOST_MEMORY);
    }
    end_with_the_server();
    let mut state = State::new(texts);
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut output = BufWriter::new(std::io::stdout().lock());
    while let Some(frame) = Frame::<Request>::read(&mut input)? {
        let reply = catch_unwind(AssertUnwindSafe(|| answer(&mut state, frame)));
        reply
            .unwrap_or_else(|_| refusal(&Problem::status(500, "a fault in noren; the request is not answered")))
            .write(&mut output)?;
    }
    Ok(())
}

/// Ends this process soon after the server's, whose limits on time end with it.
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
        // Without a thread a call still ends at its answer, which is not read.
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
    match answer::answer(state, frame.head.call, &body) {
        Ok(frame) => frame,
        Err(Stop::Needs(id)) => Frame { head: Reply { needs: Some(id), ..Reply::default() }, blobs: vec![Vec::new()] },
        Err(Stop::Problem(problem)) => refusal(&problem),
    }
}

fn refusal(problem: &Problem) -> Frame<Reply> {
    let head = Reply { status: problem.status, content_type: JSON.into(), ..Reply::default() };
    Frame { head, blobs: vec![problem.body()] }
}
