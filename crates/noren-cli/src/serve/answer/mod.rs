//! What a worker answers: one file for each view of the page.

mod cost;
mod doctor;
mod export;
mod flow;
mod language;
mod mask;
mod text;

pub(super) use cost::Speeds;
pub(super) use doctor::Asked as DoctorAsked;
pub(super) use export::Asked as ExportAsked;
pub(super) use mask::{CellAsked, TileAsked};

use super::problem::{Problem, Result};
use super::worker::{Answer, Desk};
use serde::{Deserialize, Serialize};

/// A batch row and a head.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Pair {
    #[serde(default)]
    pub(super) batch: usize,
    #[serde(default)]
    pub(super) head: usize,
}

/// A call with its parameters; what is large is in the body.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    /// Body: a scene, whose identity this is.
    Read {
        id: String,
    },
    Tile {
        id: String,
        tile: mask::TileAsked,
    },
    Explain {
        id: String,
        cell: mask::CellAsked,
    },
    Difference {
        id: String,
        other: String,
    },
    Cost {
        id: String,
        speeds: Speeds,
    },
    /// Body: a scene, with lengths if it likes.
    Curve {
        speeds: Speeds,
    },
    Export {
        id: String,
        asked: export::Asked,
    },
    /// Body: a stack with a policy.
    Flow,
    /// Body: a text and what is asked of it.
    Text,
    Model,
    /// Body: a file.
    Doctor {
        asked: doctor::Asked,
    },
    Classes,
    Language,
    Presets,
    /// How quick this machine is.
    Calibrate,
}

/// Answers a call.
pub(super) fn answer(desk: &mut Desk, call: Call, body: &[u8]) -> Answer {
    match call {
        Call::Read { id } => mask::read(desk, &id, body),
        Call::Tile { id, tile } => mask::tile(desk, &id, &tile),
        Call::Explain { id, cell } => mask::explain(desk, &id, &cell),
        Call::Difference { id, other } => mask::difference(desk, &id, &other),
        Call::Cost { id, speeds } => cost::cost(desk, &id, &speeds),
        Call::Curve { speeds } => cost::curve(body, &speeds),
        Call::Export { id, asked } => export::export(desk, &id, &asked),
        Call::Flow => flow::flow(body),
        Call::Text => text::text(desk, body),
        Call::Model => text::model(desk),
        Call::Doctor { asked } => doctor::doctor(&asked, body),
        Call::Classes => doctor::classes(),
        Call::Language => language::language(),
        Call::Presets => language::presets(),
        Call::Calibrate => cost::calibrate(),
    }
}

/// The range `a..b` of a query string, of things called `what`.
fn range(text: &str, what: &str, len: usize) -> Result<std::ops::Range<usize>> {
    let ends = text.split_once("..").map(|(a, b)| {
        let number = |text: &str, default| if text.is_empty() { Ok(default) } else { text.parse::<usize>() };
        Ok::<_, std::num::ParseIntError>((number(a, 0)?, number(b, len)?))
    });
    match ends {
        Some(Ok((start, end))) => Ok(start..end),
        _ => Err(Problem::new(format!("{what}={text}: expected a range such as 0..32, 100.. or ..8"))),
    }
}
