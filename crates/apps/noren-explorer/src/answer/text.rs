//! The answers for the text view: the description of the model, and the result of running a text through the model.

use crate::request::cause::Cause;
use crate::request::message::JSON;
use crate::request::problem::{Problem, Result};
use crate::request::scene::parse;
use crate::request::state::{Answer, State, json};
use crate::request::store::identity;
use crate::request::texts::{TextAnswer, TextRequest};
use crate::request::wire::Frame;

/// The maximum size of a text that the text view gives to the model, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// Returns the description of the text view's model as an answer in JSON.
pub(super) fn model(state: &mut State) -> Answer {
    json(&state.texts()?.model()?)
}

/// Runs the text of the request `body` through the model, and returns the result as an answer in JSON.
pub(super) fn text(state: &mut State, body: &[u8]) -> Answer {
    let TextAnswer { mut value, scene } = state.texts()?.run(&read(body)?)?;
    let definition = serde_json::to_vec(&scene)?;
    value["id"] = identity(&definition).into();
    let mut answer = Frame::of(JSON, serde_json::to_vec(&value)?);
    answer.blobs.push(definition);
    Ok(answer)
}

/// Returns a certificate that no hidden token of a text influences another token: a file that `noren verify` checks. The
/// file has the masks and the positions of the hidden tokens, and not the text.
pub(super) fn certificate(state: &mut State, body: &[u8]) -> Answer {
    super::flow::file(state.texts()?.certificate(&read(body)?)?, "proof")
}

/// Reads the body of a request about a text.
fn read(body: &[u8]) -> Result<TextRequest> {
    let mut request: TextRequest = serde_json::from_slice(body)?;
    if request.text.trim().is_empty() {
        return Err(Problem::new("the text is empty").cause(Cause::TextEmpty));
    }
    if request.text.len() > MOST_BYTES {
        let message = format!("the text has {} bytes: give at most {MOST_BYTES} bytes", request.text.len());
        return Err(Problem::new(message).cause(Cause::TextTooLong));
    }
    request.mask = request.mask.filter(|mask| !mask.trim().is_empty());
    if let Some(mask) = &request.mask {
        // Parses the mask first: its errors have positions in its text.
        parse(mask, None)?;
    }
    Ok(request)
}
