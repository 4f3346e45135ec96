//! The answer for the panel "Code": a mask as code of another library.

use crate::request::call::Call;
use crate::request::problem::Problem;
use crate::request::state::{Answer, State, json};
use noren_code::{Error, Target};
use serde_json::json as object;

/// Returns the mask `id` as code of the library `to`, or the reason why this is not possible. The answer also has the
/// names of all libraries.
pub(crate) fn code(state: &mut State, call: &Call) -> Answer {
    let to = call.need("to", "the library is missing: give for example to=flex")?;
    let target: Target = to.parse().map_err(Problem::new)?;
    let known = state.mask(call.id())?;
    let bound = &known.bound;
    let (code, inputs, reason) = match noren_code::code(&known.spec(), bound.shape(), bound.facts(), target) {
        Ok(code) => (Some(code.text), code.inputs, None),
        Err(Error::Mask(error)) => return Err(Problem::from(error).into()),
        Err(error) => (None, Vec::new(), Some(error.to_string())),
    };
    json(&object!({
        "code": code,
        "inputs": inputs,
        "reason": reason,
    }))
}
