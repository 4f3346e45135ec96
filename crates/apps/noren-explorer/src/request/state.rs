//! [`State`]: the masks and the model that a worker keeps between calls.

use crate::request::call::Call;
use crate::request::message::{JSON, Reply};
use crate::request::problem::{Problem, Result};
use crate::request::scene::Known;
use crate::request::texts::Texts;
use crate::request::wire::Frame;
use serde::Serialize;
use std::collections::VecDeque;
use std::rc::Rc;

/// The maximum number of masks that a worker keeps.
const MOST_KNOWN: usize = 24;

/// The state of a worker: the masks and the model that it keeps between calls.
pub(crate) struct State {
    known: VecDeque<(String, Rc<Known>)>,
    texts: Option<Box<dyn Texts>>,
}

/// The reason why a call has no answer: the worker needs the definition of a mask, or the call failed.
pub(crate) enum Stop {
    /// The worker does not have the mask with this identity, and needs its definition from the server.
    Needs(String),
    Problem(Problem),
}

/// The result of a call: the reply, or the reason why the call has no answer.
pub(crate) type Answer = std::result::Result<Frame<Reply>, Stop>;

impl<E: Into<Problem>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Problem(error.into())
    }
}

impl State {
    /// Returns the state before the first call. `texts` is the model; `None` if the program has no model.
    pub(crate) fn new(texts: Option<Box<dyn Texts>>) -> Self {
        State { known: VecDeque::new(), texts }
    }

    /// Returns the mask with the identity `id`. Returns `Stop::Needs` if the worker does not have this mask.
    pub(crate) fn mask(&mut self, id: &str) -> std::result::Result<Rc<Known>, Stop> {
        let at = self.known.iter().position(|(known, _)| known == id).ok_or_else(|| Stop::Needs(id.to_string()))?;
        if let Some(found) = self.known.remove(at) {
            self.known.push_front(found);
        }
        Ok(self.known[0].1.clone())
    }

    /// Returns the mask of a call, and the mask that the parameter `other` names.
    pub(crate) fn masks(&mut self, call: &Call) -> std::result::Result<(Rc<Known>, Option<Rc<Known>>), Stop> {
        let known = self.mask(call.id())?;
        Ok((known, call.query.text("other").map(|id| self.mask(&id)).transpose()?))
    }

    /// Returns the mask with the identity `id`. If the worker does not have this mask, reads the mask from `definition`
    /// and keeps it.
    pub(crate) fn define(&mut self, id: &str, definition: &[u8]) -> Result<Rc<Known>> {
        if let Ok(known) = self.mask(id) {
            return Ok(known);
        }
        let known = Rc::new(Known::of_definition(definition)?);
        self.known.push_front((id.to_string(), known.clone()));
        self.known.truncate(MOST_KNOWN);
        Ok(known)
    }

    /// Returns the model that runs texts. Returns an error if the program was built without models.
    pub(crate) fn texts(&mut self) -> Result<&mut dyn Texts> {
        match &mut self.texts {
            Some(texts) => Ok(texts.as_mut()),
            None => Err(Problem::status(
                501,
                "this program was built without the feature `models`, so it cannot show texts",
            )
            .hint("build the program with --features models")),
        }
    }
}

/// Returns a value as an answer in JSON.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    Ok(Frame::of(JSON, serde_json::to_vec(value)?))
}
