//! The answers of a worker to the requests of the page. There is one file for each view, each panel and each kind of
//! export; other files have functions that several answers use.

mod code;
mod cost;
mod doctor;
mod export;
mod facts;
mod flow;
mod language;
mod mask;
mod number;
mod parts;
mod share;
mod text;

use crate::request::call::{Call, Numbers, Question};
use crate::request::state::{Answer, State};

/// Computes and returns the answer to a call, which is a request from the server. `body` is the body of the call.
pub(crate) fn answer(state: &mut State, call: &Call, body: &[u8]) -> Answer {
    match call.question {
        Question::Read => mask::read(state, body),
        Question::Tile => mask::tile(state, call),
        Question::Explain => mask::explain(state, call),
        Question::Difference => mask::difference(state, call),
        Question::Code => code::code(state, call),
        Question::Cost => cost::cost(state, call),
        Question::Curve => cost::curve(call, body),
        Question::Export => export::export(state, call),
        Question::Facts => facts::facts(body),
        Question::Border => mask::border(state, call),
        Question::Flow => flow::flow(body),
        Question::FlowCertificate => flow::certificate(body),
        Question::Text => text::text(state, body),
        Question::TextCertificate => text::certificate(state, body),
        Question::Model => text::model(state),
        Question::Doctor => doctor::doctor(&call.query, body),
        Question::Classes => doctor::classes(),
        Question::Language => language::language(),
        Question::Presets => language::presets(),
        Question::Calibrate => cost::calibrate(Numbers::of(&call.query)?),
    }
}
