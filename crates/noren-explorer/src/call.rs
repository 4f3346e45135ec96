//! [`Call`]: the requests that a worker answers, with their parameters.

use serde::{Deserialize, Serialize};

/// A batch row and a head, as indices from 0.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pair {
    #[serde(default)]
    pub(crate) batch: usize,
    #[serde(default)]
    pub(crate) head: usize,
}

/// A request of the server to a worker, with its small parameters. The large parameters, such as a scene or a file, are
/// in the body of the message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Reads a scene, which is a mask with its shape and facts, and stores the mask under `id`. The body of the message
    /// is the scene.
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
    /// Computes the attention of one query step by step. The body of the message is a `RowRequest`.
    Row {
        id: String,
    },
    Difference {
        id: String,
        other: String,
    },
    /// Writes a mask as code for the library `to`.
    Code {
        id: String,
        to: String,
    },
    Cost {
        id: String,
        speeds: Speeds,
    },
    /// Predicts the cost of a mask at several lengths. The body of the message is a scene: a mask with its shape and
    /// facts, and optionally a list of lengths.
    Curve {
        speeds: Speeds,
    },
    Export {
        id: String,
        export: ExportRequest,
    },
    /// Reads pasted arrays as facts. The body of the message is the text.
    Facts,
    /// Starts at a cell and searches the next border between allowed and denied cells.
    Border {
        id: String,
        cell: CellRequest,
        search: BorderSearch,
    },
    /// Computes a flow: which tokens can influence which tokens over several layers. The body of the message is a stack
    /// of layers with a policy.
    Flow,
    /// Issues a certificate for a stack of layers and its policy. The body of the message is the body of `Flow`.
    FlowCertificate,
    /// Runs a text through the model. The body of the message is the text with its settings.
    Text,
    /// Issues a certificate that no hidden token of a text influences another token. The body of the message is the body
    /// of `Text`.
    TextCertificate,
    Model,
    /// Diagnoses the mask in a file. The body of the message is the file.
    Doctor {
        request: DoctorRequest,
    },
    Classes,
    Language,
    Presets,
    /// Measures the speed of this machine for the head dimension and the data type in `numbers`.
    Calibrate {
        numbers: Numbers,
    },
}

/// The direction of a search for a border between allowed and denied cells.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BorderSearch {
    /// True for a search along the column, over queries; false for a search along the row, over keys.
    pub(crate) queries: bool,
    /// True for a search towards smaller positions.
    pub(crate) back: bool,
}

/// A request for a tile of a mask's picture. At level L, each pixel of the tile shows 2^L queries and 2^L keys. `row`
/// and `col` are the indices of the tile among the tiles of this level, along the queries and along the keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TileRequest {
    pub(crate) level: u32,
    pub(crate) row: u64,
    pub(crate) col: u64,
    pub(crate) pair: Pair,
    /// True if the byte of each pixel also states how the plan computes the cells of the pixel: in full spans (ranges
    /// in which all cells are allowed), in mixed spans (some cells are allowed), or not at all.
    pub(crate) plan: bool,
    /// The identity of a second mask to compare with; `None` if the tile shows only one mask.
    pub(crate) other: Option<String>,
}

/// The request to explain why a cell is allowed or denied. `q` is the index of the query and `k` the index of the key,
/// both counted from 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CellRequest {
    pub(crate) pair: Pair,
    pub(crate) q: usize,
    pub(crate) k: usize,
    /// The identity of a second mask to compare with; `None` if only one mask is explained.
    pub(crate) other: Option<String>,
}

/// The request to download a mask in the format `form`, such as `svg`. The other fields are for pictures: `plan` is
/// true to draw the tiles of the plan, `other` is the identity of a second mask to compare with, and `rows` and `keys`
/// are the ranges of queries and keys to draw, such as `0..32`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExportRequest {
    pub(crate) form: String,
    /// The pair of batch row and head to draw; `None` draws one picture for each pattern (group of batch rows and heads
    /// with equal cells).
    pub(crate) pair: Option<Pair>,
    pub(crate) plan: bool,
    pub(crate) other: Option<String>,
    pub(crate) rows: Option<String>,
    pub(crate) keys: Option<String>,
}

/// The request to diagnose the mask in a file: the name of the file, and the declared properties of the mask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DoctorRequest {
    pub(crate) name: String,
    /// The declared properties of the mask, as a JSON object; `None` if nothing is declared.
    pub(crate) context: Option<String>,
    /// The expression of the complete intended mask; `None` if the intended mask is not given.
    pub(crate) meant: Option<String>,
    /// Whether the answer is the repaired array as an npy file instead of the report.
    pub(crate) repair: bool,
}

/// The measured speed of attention on this machine, in seconds per cell. `full` is the time for a cell of a full span
/// (a range of keys in which all cells are allowed), and `mixed` the time for a cell of a mixed span (some cells are
/// allowed). `machine` describes the processor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Speeds {
    pub(crate) full: f64,
    pub(crate) mixed: f64,
    /// The time to start a kernel, in seconds. Each predicted time contains it once.
    pub(crate) start: f64,
    pub(crate) machine: String,
    pub(crate) numbers: Numbers,
}

/// The head dimension (the number of columns of queries, keys and values) and the data type for which times are
/// predicted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Numbers {
    pub(crate) head_dim: usize,
    /// The name of a [`noren::Dtype`].
    pub(crate) dtype: String,
}
