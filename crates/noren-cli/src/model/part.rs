//! [`Part`]: vectors that are finished, kept beside the output until all are.

use crate::failure::{Failure, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes before the first vector: what the vectors belong to, as text filled up with spaces.
const HEAD: usize = 512;

/// A file `OUT.part` of vectors in the order of the lines. A run that was ended goes on where it stopped.
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    width: usize,
    rows: usize,
}

impl Part {
    /// Opens the part beside `output`, or begins it. `about` says what the vectors belong to.
    pub(crate) fn open(output: &Path, about: &str, width: usize) -> Result<Part> {
        let mut name = output.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let failed = |e: std::io::Error| Failure::new(format!("{}: cannot be written: {e}", path.display()));
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let head = format!("{:<HEAD$}", about.chars().take(HEAD / 4).collect::<String>());
        let head = &head.as_bytes()[..HEAD];
        let len = file.metadata().map_err(failed)?.len();
        let rows = match len {
            0 => {
                file.write_all(head).map_err(failed)?;
                0
            }
            _ => {
                let mut found = Vec::with_capacity(HEAD);
                Read::by_ref(&mut file).take(HEAD as u64).read_to_end(&mut found).map_err(failed)?;
                if found != head {
                    let problem = format!("{} holds vectors of another model or text", path.display());
                    return Err(Failure::new(problem).hint("delete it to begin anew, or give -o another name"));
                }
                (len as usize - HEAD) / (4 * width)
            }
        };
        // A vector that was cut off is computed again.
        let end = (HEAD + rows * 4 * width) as u64;
        file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))).map_err(failed)?;
        Ok(Part { path, file, width, rows })
    }

    /// Vectors that it holds.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Appends vectors and has them reach the disk.
    pub(crate) fn append(&mut self, vectors: &[Vec<f32>]) -> Result<()> {
        let bytes: Vec<u8> = vectors.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        written.map_err(|e| {
            let message = format!("{}: cannot be written: {e}", self.path.display());
            Failure::new(message).hint("what is finished stays there: run the same command again to go on")
        })?;
        self.rows += vectors.len();
        Ok(())
    }

    /// Copies all vectors, piece by piece, each of whole vectors.
    pub(crate) fn copy(&mut self, mut piece: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(HEAD as u64))?;
        let mut left = self.rows;
        let most = (1 << 20) / (4 * self.width) + 1;
        while left > 0 {
            let rows = left.min(most);
            let mut bytes = vec![0; rows * 4 * self.width];
            self.file.read_exact(&mut bytes)?;
            piece(&bytes)?;
            left -= rows;
        }
        Ok(())
    }

    /// Removes the file: its vectors stand in the output.
    pub(crate) fn remove(self) -> Result<()> {
        let failed = |e| Failure::new(format!("{}: cannot be removed: {e}", self.path.display()));
        std::fs::remove_file(&self.path).map_err(failed)
    }
}
