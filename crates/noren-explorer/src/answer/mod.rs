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
mod row;
mod share;
mod text;

use crate::call::Call;
use crate::state::{Answer, State};

/// Computes and returns the answer to a call, which is a request from the server. `body` is the body of the call.
pub(crate) fn answer(state: &mut State, call: Call, body: &[u8]) -> Answer {
    match call {
        Call::Read { id } => mask::read(state, &id, body),
        Call::Tile { id, tile } => mask::tile(state, &id, &tile),
        Call::Explain { id, cell } => mask::explain(state, &id, &cell),
        Call::Row { id } => row::row(state, &id, body),
        Call::Difference { id, other } => mask::difference(state, &id, &other),
        Call::Code { id, to } => code::code(state, &id, &to),
        Call::Cost { id, speeds } => cost::cost(state, &id, &speeds),
        Call::Curve { speeds } => cost::curve(body, &speeds),
        Call::Export { id, export } => export::export(state, &id, &export),
        Call::Facts => facts::facts(body),
        Call::Border { id, cell, search } => mask::border(state, &id, &cell, &search),
        Call::Flow => flow::flow(body),
        Call::FlowCertificate => flow::certificate(body),
        Call::Text => text::text(state, body),
        Call::TextCertificate => text::certificate(state, body),
        Call::Model => text::model(state),
        Call::Doctor { request } => doctor::doctor(&request, body),
        Call::Classes => doctor::classes(),
        Call::Language => language::language(),
        Call::Presets => language::presets(),
        Call::Calibrate { numbers } => cost::calibrate(numbers),
    }
}
