//! The answers for the text view: the description of the model, and the result of running a text through the model.

use crate::message::{JSON, Reply};
use crate::problem::Problem;
use crate::scene::parse;
use crate::state::{Answer, State, json};
use crate::store::identity;
use crate::texts::{TextAnswer, TextRequest};
use crate::wire::Frame;

/// The maximum size of a text, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// Returns the description of the model.
pub(super) fn model(state: &mut State) -> Answer {
    json(&state.texts()?.model()?)
}

/// Runs a text through the model.
pub(super) fn text(state: &mut State, body: &[u8]) -> Answer {
    let mut request: TextRequest = serde_json::from_slice(body)?;
    if request.text.trim().is_empty() {
        return Err(Problem::new("the text is empty").into());
    }
    if request.text.len() > MOST_BYTES {
        let message = format!("the text has {} bytes: give at most {MOST_BYTES} bytes", request.text.len());
        return Err(Problem::new(message).into());
    }
    request.mask = request.mask.filter(|mask| !mask.trim().is_empty());
    if let Some(mask) = &request.mask {
        // Parses the mask first: its errors have positions in its text.
        parse(mask, None)?;
    }
    let TextAnswer { mut value, scene } = state.texts()?.run(&request)?;
    let definition = serde_json::to_vec(&scene)?;
    value["id"] = identity(&definition).into();
    Ok(Frame { head: Reply::of(JSON), blobs: vec![serde_json::to_vec(&value)?, definition] })
}
