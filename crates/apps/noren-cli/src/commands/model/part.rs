//! [`Part`]: a temporary file beside the output file, which stores the finished vectors until all vectors are finished.

use crate::failure::{Failure, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Length of the header of a `.part` file, in bytes. The header is the beginning of the argument `about` of
/// `Part::open`, padded with spaces to this length.
const HEAD: usize = 256;
/// Length of a mark, in bytes. A mark is the hash of a line of text. In the file, the mark of each line is followed by
/// the vector of the line.
const MARK: usize = 8;

/// A file `OUT.part`, which stores the vector of each finished line and the mark (hash) of the line. After an
/// interrupted run, the next run continues from this file, unless the lines have changed.
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    width: usize,
    marks: Vec<u64>,
}

/// Returns the mark of a line: the 64-bit FNV-1a hash of the bytes of the line.
pub(crate) fn mark(line: &[u8]) -> u64 {
    line.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Part {
    /// Opens or creates the file `OUT.part` beside the file `output`. `about` identifies the model and the pooling;
    /// `width` is the number of values of each vector.
    ///
    /// # Errors
    ///
    /// Returns an error if another process writes the file, or if the header of the file differs from `about`.
    pub(crate) fn open(output: &Path, about: &str, width: usize) -> Result<Part> {
        let mut name = output.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let failed = |e: std::io::Error| Failure::new(format!("{}: the file cannot be written: {e}", path.display()));
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let problem = format!("another run of noren is writing {}", path.display());
            return Err(Failure::new(problem).hint("wait until the other run of noren ends, or give -o another name"));
        }
        let head = format!("{:<HEAD$}", about.chars().take(HEAD / 4).collect::<String>());
        let head = &head.as_bytes()[..HEAD];
        let mut marks = Vec::new();
        if file.metadata().map_err(failed)?.len() == 0 {
            file.write_all(head).map_err(failed)?;
        } else {
            let mut reader = BufReader::new(&file);
            let mut found = Vec::with_capacity(HEAD);
            reader.by_ref().take(HEAD as u64).read_to_end(&mut found).map_err(failed)?;
            if found != head {
                let problem = format!(
                    "{} contains vectors of another model, or with another pooling, --dtype or processor path",
                    path.display()
                );
                return Err(Failure::new(problem).hint("delete the .part file to start again, or give -o another name"));
            }
            let mut row = vec![0; MARK + 4 * width];
            // An incomplete last row is computed again.
            while reader.read_exact(&mut row).is_ok() {
                marks.push(row.first_chunk().map_or(0, |mark| u64::from_le_bytes(*mark)));
            }
        }
        let end = (HEAD + marks.len() * (MARK + 4 * width)) as u64;
        file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))).map_err(failed)?;
        Ok(Part { path, file, width, marks })
    }

    /// Returns the mark (hash) of each text line whose vector is stored in the file, in the order of the lines.
    pub(crate) fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// Appends vectors to the file, each with the mark (hash) of its text line, and waits until the data is on the disk.
    pub(crate) fn append(&mut self, marks: &[u64], vectors: &[Vec<f32>]) -> Result<()> {
        let mut bytes = Vec::with_capacity(vectors.len() * (MARK + 4 * self.width));
        for (mark, vector) in marks.iter().zip(vectors) {
            bytes.extend(mark.to_le_bytes());
            bytes.extend(vector.iter().flat_map(|x| x.to_le_bytes()));
        }
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        written.map_err(|e| {
            let message = format!("{}: the file cannot be written: {e}", self.path.display());
            Failure::new(message).hint("finished vectors are kept: run the same command again to continue")
        })?;
        self.marks.extend(marks);
        Ok(())
    }

    /// Calls `vector` once for each stored vector, in the order of the lines. The argument of `vector` is the bytes of
    /// the stored vector: numbers as little-endian `f32`.
    pub(crate) fn copy(&mut self, mut vector: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(HEAD as u64))?;
        let mut reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut row = vec![0; MARK + 4 * self.width];
        for _ in &self.marks {
            reader.read_exact(&mut row)?;
            vector(&row[MARK..])?;
        }
        Ok(())
    }

    /// Deletes the file. The caller has written the vectors to the output file.
    pub(crate) fn remove(self) -> Result<()> {
        let failed = |e| Failure::new(format!("{}: the file cannot be removed: {e}", self.path.display()));
        std::fs::remove_file(&self.path).map_err(failed)
    }
}
