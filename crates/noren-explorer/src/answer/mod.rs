//! The answers of a worker: one file for each view of the page.

mod cost;
mod doctor;
mod export;
mod flow;
mod language;
mod mask;
mod number;
mod text;

use crate::call::Call;
use crate::state::{Answer, State};

/// Runs a call and returns its answer.
pub(crate) fn answer(state: &mut State, call: Call, body: &[u8]) -> Answer {
    match call {
        Call::Read { id } => mask::read(state, &id, body),
        Call::Tile { id, tile } => mask::tile(state, &id, &tile),
        Call::Explain { id, cell } => mask::explain(state, &id, &cell),
        Call::Difference { id, other } => mask::difference(state, &id, &other),
        Call::Cost { id, speeds } => cost::cost(state, &id, &speeds),
        Call::Curve { speeds } => cost::curve(body, &speeds),
        Call::Export { id, export } => export::export(state, &id, &export),
        Call::Flow => flow::flow(body),
        Call::Text => text::text(state, body),
        Call::Model => text::model(state),
        Call::Doctor { request } => doctor::doctor(&request, body),
        Call::Classes => doctor::classes(),
        Call::Language => language::language(),
        Call::Presets => language::presets(),
        Call::Calibrate => cost::calibrate(),
    }
}
