//! [`Call`]: the questions that a worker answers, with their parameters.

use serde::{Deserialize, Serialize};

/// A batch row and a head.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pair {
    #[serde(default)]
    pub(crate) batch: usize,
    #[serde(default)]
    pub(crate) head: usize,
}

/// A call with its parameters; large parameters are in the body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Body: a scene, whose identity this is.
    Read {
        id: String,
    },
    Tile {
        id: String,
        tile: TileRequest,
    },
    Explain {
        id: String,
        cell: CellRequest,
    },
    Difference {
        id: String,
        other: String,
    },
    Cost {
        id: String,
        speeds: Speeds,
    },
    /// Body: a scene, optionally with lengths.
    Curve {
        speeds: Speeds,
    },
    Export {
        id: String,
        export: ExportRequest,
    },
    /// Body: a stack with a policy.
    Flow,
    /// Body: a text and its settings.
    Text,
    Model,
    /// Body: a file.
    Doctor {
        request: DoctorRequest,
    },
    Classes,
    Language,
    Presets,
    /// Measures the speed of this machine.
    Calibrate,
}

/// A tile of the mask's picture: its level and its place in tiles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TileRequest {
    pub(crate) level: u32,
    pub(crate) row: u64,
    pub(crate) col: u64,
    pub(crate) pair: Pair,
    /// Whether the kinds of the plan's spans are added.
    pub(crate) plan: bool,
    /// The identity of a mask to compare with.
    pub(crate) other: Option<String>,
}

/// A cell to explain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CellRequest {
    pub(crate) pair: Pair,
    pub(crate) q: usize,
    pub(crate) k: usize,
    /// The identity of a mask to compare with.
    pub(crate) other: Option<String>,
}

/// A form in which a mask is downloaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExportRequest {
    pub(crate) form: String,
    /// One pattern only.
    pub(crate) pair: Option<Pair>,
    pub(crate) plan: bool,
    pub(crate) other: Option<String>,
    pub(crate) rows: Option<String>,
    pub(crate) keys: Option<String>,
}

/// The declarations beside a file for the doctor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DoctorRequest {
    pub(crate) name: String,
    /// A JSON object of declarations.
    pub(crate) context: Option<String>,
    /// The intended mask, in full.
    pub(crate) meant: Option<String>,
}

/// The cost of one cell on this machine, in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Speeds {
    pub(crate) full: f64,
    pub(crate) mixed: f64,
    /// A start of a kernel.
    pub(crate) start: f64,
    pub(crate) machine: String,
}
