//! [`Call`]: what a worker answers.

use crate::request::problem::{Problem, Result};
use crate::request::query::{Query, number};
use noren::Dtype;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The head dimensions for which costs are predicted.
const HEAD_DIMS: [usize; 5] = [32, 64, 96, 128, 256];

/// A batch row and a head, as indices from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) batch: usize,
    pub(crate) head: usize,
}

/// The functions of a worker, in `answer`. Large input, such as a scene or a file, is in the body of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Reads a scene, which is a mask with its shape and facts, and stores the mask.
    Read,
    Tile,
    Explain,
    Difference,
    /// Writes a mask as code for a library.
    Code,
    Cost,
    /// Predicts the cost of a mask at several lengths. The body of the message is a scene.
    Curve,
    Export,
    /// Reads pasted arrays as facts. The body of the message is the text.
    Facts,
    /// Starts at a cell and searches the next border between allowed and denied cells.
    Border,
    /// Computes a flow: which tokens can influence which tokens over several layers. The body of the message is a stack
    /// of layers with a policy.
    Flow,
    /// Issues a certificate for a stack of layers and its policy. The body of the message is the body of `Flow`.
    FlowCertificate,
    /// Runs a text through the model. The body of the message is the text with its settings.
    Text,
    /// Issues a certificate for the masks of a text. The body of the message is the body of `Text`.
    TextCertificate,
    Model,
    /// Diagnoses the mask in a file. The body of the message is the file.
    Doctor,
    Classes,
    Language,
    Presets,
    /// Measures the speed of attention on this machine.
    Calibrate,
}

/// A request of the server to a worker, with its small parameters.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) question: Question,
    /// The values of the variable parts of the path, in order; the first is the identity of a mask.
    pub(crate) places: Vec<String>,
    pub(crate) query: Query,
    /// The measured speed, for predictions of costs.
    pub(crate) speeds: Option<Speeds>,
}

impl Call {
    /// Returns the identity of the mask.
    pub(crate) fn id(&self) -> &str {
        self.places.first().map_or("", String::as_str)
    }

    /// Returns a variable part of the path as a number.
    pub(crate) fn place<T: FromStr>(&self, at: usize, name: &str) -> Result<T> {
        number(name, self.places.get(at).map_or("", String::as_str))
    }

    /// Returns the parameters `batch` (batch row) and `head`. A missing parameter is 0.
    pub(crate) fn pair(&self) -> Result<Pair> {
        let index = |name: &str| -> Result<usize> { Ok(self.query.number(name)?.unwrap_or(0)) };
        Ok(Pair { batch: index("batch")?, head: index("head")? })
    }

    /// Returns the parameters `q` (query) and `k` (key).
    pub(crate) fn cell(&self) -> Result<(usize, usize)> {
        match (self.query.number("q")?, self.query.number("k")?) {
            (Some(q), Some(k)) => Ok((q, k)),
            _ => Err(Problem::new("the cell is missing: give the parameters q and k, both counted from 0")),
        }
    }

    /// Returns a parameter that must be given. `missing` is the error message.
    pub(crate) fn need(&self, name: &str, missing: &str) -> Result<String> {
        self.query.text(name).ok_or_else(|| Problem::new(missing))
    }
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

impl Numbers {
    /// Reads the parameters `head_dim` and `dtype`.
    pub(crate) fn of(query: &Query) -> Result<Numbers> {
        let head_dim = query.number("head_dim")?.unwrap_or(64);
        if !HEAD_DIMS.contains(&head_dim) {
            let listed = HEAD_DIMS.map(|dim| dim.to_string()).join(", ");
            return Err(Problem::new(format!("head_dim={head_dim}: expected {listed}")));
        }
        let dtype = query.text("dtype").unwrap_or_else(|| Dtype::F32.to_string());
        dtype.parse::<Dtype>().map_err(|_| Problem::new(format!("dtype={dtype}: expected f32, bf16 or f16")))?;
        Ok(Numbers { head_dim, dtype })
    }
}
