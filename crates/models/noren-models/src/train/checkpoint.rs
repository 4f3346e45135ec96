//! Writes and reads checkpoints, and writes trained models. If a write is interrupted, the previous file stays.

use super::history::History;
use super::weights::Weights;
use crate::error::{Error, Result};
use candle_core::Tensor;
use safetensors::tensor::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const FILE: &str = "checkpoint.safetensors";
/// The key in the metadata of the safetensors file under which a [`Checkpoint`] is stored as JSON.
const KEY: &str = "training";

/// The data of a checkpoint file apart from its tensors. These data, the weights and the averages of the optimiser are
/// enough to continue training as if it had not stopped, because all random choices depend only on the seed and the
/// step.
#[derive(Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// Number of completed steps.
    pub(super) step: u64,
    /// A hash of the configuration, the objective and the text. Training continues only if this hash is unchanged.
    pub(super) fingerprint: u64,
    /// The mean training and validation losses at each validation so far.
    pub(super) history: History,
    /// The losses since the last validation: two pairs (bits of the sum as `f64`, number of predicted tokens), as in `Sums`.
    #[serde(default)]
    pub(super) sums: [(u64, usize); 2],
}

impl Checkpoint {
    /// Returns the path of the checkpoint file in a folder.
    pub(super) fn path(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Writes the checkpoint with the tensors of `weights` to a file in `folder`. If the process ends during the write,
    /// the folder contains either this checkpoint or the previous one.
    pub(super) fn write(&self, folder: &Path, weights: &Weights) -> Result<()> {
        // One key only: the order of several keys is not fixed, so equal trainings could write different files.
        let said = serde_json::to_string(self).expect("numbers are JSON");
        let metadata = HashMap::from([(KEY.to_string(), said)]);
        write_tensors(&Self::path(folder), weights.state()?, Some(metadata))
    }

    /// Reads the checkpoint of a folder, and copies its tensors to `weights`. Returns `None` if the folder has no
    /// checkpoint.
    pub(super) fn read(folder: &Path, weights: &mut Weights) -> Result<Option<Self>> {
        let path = Self::path(folder);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::file(path, format!("the file cannot be read: {e}"))),
        };
        let broken = |problem: String| {
            Error::file(
                &path,
                format!(
                    "the file is not a checkpoint ({problem}): remove the file to start again, or give another folder"
                ),
            )
        };
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| broken(e.to_string()))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| broken(e.to_string()))?;
        let said = header.metadata().as_ref().and_then(|all| all.get(KEY));
        let said = said.ok_or_else(|| broken("the metadata of the file have no state of training".into()))?;
        let checkpoint = serde_json::from_str(said).map_err(|e| broken(e.to_string()))?;
        weights.restore(|name, shape| {
            let tensor = tensors.tensor(name).map_err(|_| broken(format!("{name} is missing")))?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
                let given = format!("{name} is {:?} of {:?}, not {shape:?} of F32", tensor.shape(), tensor.dtype());
                return Err(broken(given));
            }
            Ok(tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect())
        })?;
        Ok(Some(checkpoint))
    }
}

/// Writes tensors of `f32`, `bf16` or `f16` to a safetensors file. If the write is interrupted, a previous file at
/// `path` stays.
pub(super) fn write_tensors(
    path: &Path,
    tensors: Vec<(String, Tensor)>,
    metadata: Option<HashMap<String, String>>,
) -> Result<()> {
    let bytes = safetensors::serialize(tensors, metadata).map_err(|e| Error::file(path, e.to_string()))?;
    write_whole(path, &bytes)
}

/// Writes `bytes` to the file `path`. The bytes are first written to a temporary file in the same folder, which is
/// renamed to `path` when it is complete on the disk.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = fs::File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|e| {
        // The previous file stays. An incomplete new file is useless.
        let _ = fs::remove_file(&beside);
        Error::file(path, format!("the file cannot be written: {e}"))
    })
}
