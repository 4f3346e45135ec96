//! [`Call`]: the requests that a worker answers, with their parameters.

use serde::{Deserialize, Serialize};

/// A batch row and a head.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pair {
    #[serde(default)]
    pub(crate) batch: usize,
    #[serde(default)]
    pub(crate) head: usize,
}

/// A call with its parameters. Large parameters are in the body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Reads a scene and stores its mask under `id`. Body: the scene.
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
    /// Predicts the cost at several lengths. Body: a scene, optionally with the lengths.
    Curve {
        speeds: Speeds,
    },
    Export {
        id: String,
        export: ExportRequest,
    },
    /// Computes a flow. Body: a stack of layers with a policy.
    Flow,
    /// Runs a text through the model. Body: the text and its settings.
    Text,
    Model,
    /// Diagnoses a file. Body: the file.
    Doctor {
        request: DoctorRequest,
    },
    Classes,
    Language,
    Presets,
    /// Measures the speed of this machine.
    Calibrate,
}

/// A tile of the mask's picture: its level, its row and column counted in tiles, and its batch row and head.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TileRequest {
    pub(crate) level: u32,
    pub(crate) row: u64,
    pub(crate) col: u64,
    pub(crate) pair: Pair,
    /// Whether the kinds of the plan's spans are included.
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

/// The request to download a mask in some form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExportRequest {
    pub(crate) form: String,
    /// The pair of batch row and head to draw; `None` for all patterns.
    pub(crate) pair: Option<Pair>,
    pub(crate) plan: bool,
    pub(crate) other: Option<String>,
    pub(crate) rows: Option<String>,
    pub(crate) keys: Option<String>,
}

/// The declarations about a file for the doctor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DoctorRequest {
    pub(crate) name: String,
    /// A JSON object of declarations.
    pub(crate) context: Option<String>,
    /// The text of the intended mask, as a complete expression.
    pub(crate) meant: Option<String>,
}

/// The measured speeds of this machine, in seconds per cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Speeds {
    pub(crate) full: f64,
    pub(crate) mixed: f64,
    /// The time to start a kernel, in seconds.
    pub(crate) start: f64,
    pub(crate) machine: String,
}
