//! [`Form`]: writes vectors to files in the formats `.npy`, `.safetensors` and `.jsonl`.

use super::part::Part;
use crate::failure::{Failure, Result};
use noren_input::npy::write_npy_header;
use std::io::{Result as IoResult, Write};
use std::path::Path;

/// The file format of vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The NumPy format: one array `[number of vectors, width]`.
    Npy,
    /// The safetensors format: one tensor with the name `embeddings` and the shape `[number of vectors, width]`.
    Safetensors,
    /// The JSON Lines format: each line is one vector, as a JSON list of numbers.
    Jsonl,
}

impl Form {
    /// Returns the vector format for the extension of a file name.
    pub(crate) fn of(path: &Path) -> Result<Form> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Form::Npy),
            Some("safetensors") => Ok(Form::Safetensors),
            Some("jsonl") => Ok(Form::Jsonl),
            _ => {
                let message = format!("{}: unknown file format", path.display());
                Err(Failure::new(message).hint("end the file name with .npy, .safetensors or .jsonl"))
            }
        }
    }

    /// Reads all vectors from the temporary file `part` and writes them to `out` in this file format. Each vector has
    /// `width` numbers.
    pub(crate) fn write(self, part: &mut Part, width: usize, out: &mut dyn Write) -> IoResult<()> {
        let rows = part.marks().len();
        match self {
            Form::Npy => {
                write_npy_header(out, "<f4", &[rows, width])?;
                part.copy(|bytes| out.write_all(bytes))
            }
            Form::Safetensors => {
                let info = serde_json::json!({ "embeddings": {
                    "dtype": "F32", "shape": [rows, width], "data_offsets": [0, rows * width * 4]
                } });
                let mut text = info.to_string();
                text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
                out.write_all(&(text.len() as u64).to_le_bytes())?;
                out.write_all(text.as_bytes())?;
                part.copy(|bytes| out.write_all(bytes))
            }
            Form::Jsonl => part.copy(|bytes| {
                let row = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect::<Vec<_>>();
                write_json(&row, out)
            }),
        }
    }
}

/// Writes a vector as one line of JSON. A vector that contains NaN is written as `null`.
pub(crate) fn write_json(vector: &[f32], out: &mut dyn Write) -> IoResult<()> {
    if vector.iter().any(|x| x.is_nan()) {
        return out.write_all(b"null\n");
    }
    serde_json::to_writer(&mut *out, vector)?;
    out.write_all(b"\n")
}
