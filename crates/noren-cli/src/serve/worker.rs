//! A worker: a process of its own that answers one call at a time, so that a call which takes too long or too much memory can be
//! ended without the server.

use super::answer::{self, Call};
use super::problem::{Problem, Result};
use super::scene::Known;
use super::wire::Frame;
use crate::failure::Failure;
use crate::text::Source;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{BufReader, BufWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;

/// Bytes of address space of a worker that knows no model.
pub(super) const MOST_MEMORY: u64 = 3 << 30;
/// Masks that a worker keeps.
const MOST_KNOWN: usize = 24;

/// A call on its way to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) call: Call,
    /// The identities of the masks whose definitions are the blobs after the first, which is the body.
    pub(super) defined: Vec<String>,
}

/// An answer on its way back; its first blob is the body, the others define new masks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) content_type: String,
    /// What a download is called.
    pub(super) file_name: Option<String>,
    /// A mask whose definition is needed before the call can be answered.
    pub(super) needs: Option<String>,
}

/// What a worker has at hand.
pub(super) struct Desk {
    known: VecDeque<(String, Rc<Known>)>,
    model: Option<PathBuf>,
    source: Option<Source>,
}

/// Why a call is not answered yet, or not at all.
pub(super) enum Stop {
    Needs(String),
    Problem(Problem),
}

/// What calls return.
pub(super) type Answer = std::result::Result<Frame<Answered>, Stop>;

impl<E: Into<Problem>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Problem(error.into())
    }
}

impl Answered {
    /// A success.
    pub(super) fn of(content_type: &str) -> Self {
        Answered { status: 200, content_type: content_type.into(), ..Answered::default() }
    }
}

impl Desk {
    /// A mask that a page speaks of by its identity.
    pub(super) fn mask(&mut self, id: &str) -> std::result::Result<Rc<Known>, Stop> {
        let at = self.known.iter().position(|(known, _)| known == id).ok_or_else(|| Stop::Needs(id.to_string()))?;
        if let Some(found) = self.known.remove(at) {
            self.known.push_front(found);
        }
        Ok(self.known[0].1.clone())
    }

    /// Reads a definition and keeps it.
    pub(super) fn define(&mut self, id: &str, definition: &[u8]) -> Result<Rc<Known>> {
        if let Ok(known) = self.mask(id) {
            return Ok(known);
        }
        let known = Rc::new(Known::of_definition(definition)?);
        self.known.push_front((id.to_string(), known.clone()));
        self.known.truncate(MOST_KNOWN);
        Ok(known)
    }

    /// The model, loaded once.
    pub(super) fn source(&mut self) -> Result<&Source> {
        if self.source.is_none() {
            self.source = Some(crate::text::load(self.model.as_deref())?);
        }
        self.source.as_ref().ok_or_else(|| Problem::status(500, "the model is not there"))
    }
}

/// Answers calls from standard input until it ends.
pub(super) fn run(limited: bool, model: Option<PathBuf>) -> crate::failure::Result<()> {
    if limited {
        // Where there is no such limit, that on time still holds.
        let _ = rlimit::Resource::AS.set(MOST_MEMORY, MOST_MEMORY);
    }
    let mut desk = Desk { known: VecDeque::new(), model, source: None };
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut output = BufWriter::new(std::io::stdout().lock());
    while let Some(frame) = Frame::<Asked>::read(&mut input).map_err(Failure::Output)? {
        let answered = catch_unwind(AssertUnwindSafe(|| answer(&mut desk, frame)));
        answered
            .unwrap_or_else(|_| refusal(&Problem::status(500, "a fault in noren; the request is not answered")))
            .write(&mut output)
            .map_err(Failure::Output)?;
    }
    Ok(())
}

fn answer(desk: &mut Desk, frame: Frame<Asked>) -> Frame<Answered> {
    let mut blobs = frame.blobs.into_iter();
    let body = blobs.next().unwrap_or_default();
    for (id, definition) in frame.head.defined.iter().zip(blobs) {
        if let Err(problem) = desk.define(id, &definition) {
            return refusal(&problem);
        }
    }
    match answer::answer(desk, frame.head.call, &body) {
        Ok(frame) => frame,
        Err(Stop::Needs(id)) => {
            Frame { head: Answered { needs: Some(id), ..Answered::default() }, blobs: vec![Vec::new()] }
        }
        Err(Stop::Problem(problem)) => refusal(&problem),
    }
}

fn refusal(problem: &Problem) -> Frame<Answered> {
    let head = Answered { status: problem.status, content_type: JSON.into(), ..Answered::default() };
    Frame { head, blobs: vec![problem.body()] }
}

/// The content type of nearly everything.
pub(super) const JSON: &str = "application/json";

/// An answer of JSON.
pub(super) fn json(value: &impl Serialize) -> Answer {
    Ok(Frame { head: Answered::of(JSON), blobs: vec![serde_json::to_vec(value)?] })
}
