//! [`Target`]: the output file of a command. The path is checked before the computation. The file is written completely
//! or not changed.

use crate::failure::{Failure, Result};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Maximum number of symbolic links that are followed. A longer chain of links is treated as a cycle, as in operating
/// systems.
const MOST_LINKS: usize = 40;

/// An output file whose path was checked.
#[derive(Debug)]
pub(crate) struct Target {
    /// The path that the user gave, for error messages.
    name: String,
    /// The path of the file after all symbolic links were followed.
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    New,
    /// An existing file with these permissions. The output replaces this file, and the new file gets the same
    /// permissions.
    File(Permissions),
    /// A device or a pipe. The output is written to it directly, without a temporary file.
    Device,
}

impl Target {
    /// Creates a target for a path that the user gave.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is a folder, if the parent folder does not exist, or if the file is not writable.
    pub(crate) fn new(given: &Path) -> Result<Target> {
        let name = given.display().to_string();
        let refuse = |problem: String| {
            Err(Failure::new(format!("{name}: {problem}")).hint("give a file in a folder that you may write to"))
        };
        let path = match follow(given) {
            Ok(path) => path,
            Err(e) => return refuse(format!("the file cannot be written: {e}")),
        };
        let kind = match std::fs::metadata(&path) {
            Ok(about) if about.is_dir() => return refuse("this path is a folder, but a file is needed".to_string()),
            Ok(about) if !about.is_file() => Kind::Device,
            Ok(about) if about.permissions().readonly() => {
                return refuse("the file is read-only".to_string());
            }
            Ok(about) => match OpenOptions::new().write(true).open(&path) {
                Ok(_) => Kind::File(about.permissions()),
                Err(e) => return refuse(format!("the file cannot be written: {e}")),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => Kind::New,
            Err(e) => return refuse(format!("the file cannot be written: {e}")),
        };
        if matches!(kind, Kind::New) {
            if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                return refuse("the path does not end with a file name".to_string());
            }
            let folder = folder_of(&path);
            if !folder.is_dir() {
                return refuse(format!("the file cannot be written, because there is no folder {}", folder.display()));
            }
        }
        Ok(Target { name, path, kind })
    }

    /// Creates a target for an SVG picture. `hint` is the fix of another file name.
    ///
    /// # Errors
    ///
    /// As for [`Target::new`], and if the path does not end with `.svg`, except for a device.
    pub(crate) fn svg(given: &Path, hint: &str) -> Result<Target> {
        let device = std::fs::metadata(given).is_ok_and(|about| !about.is_file());
        if device || given.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg")) {
            return Target::new(given);
        }
        let message = format!("{}: this picture is written only as SVG", given.display());
        Err(Failure::new(message).hint(hint))
    }

    /// Writes the output to a temporary file in the folder of the target, then replaces the target with the temporary
    /// file. A device or a pipe is written directly.
    pub(crate) fn write(&self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
        let named = |what: &str, e: std::io::Error| {
            Failure::new(format!("{}: {what}: {e}", self.name)).hint("give a file in a folder that you may write to")
        };
        let failed = |e| named("the file cannot be written", e);
        if matches!(self.kind, Kind::Device) {
            return OpenOptions::new().write(true).open(&self.path).and_then(|mut out| write(&mut out)).map_err(failed);
        }
        let (file, part) = create_part(folder_of(&self.path)).map_err(failed)?;
        let fill = || {
            let mut file = BufWriter::with_capacity(1 << 20, file);
            write(&mut file)?;
            let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            if let Kind::File(permissions) = &self.kind {
                file.set_permissions(permissions.clone())?;
            }
            file.sync_all()
        };
        let done = fill().map_err(failed).and_then(|()| {
            std::fs::rename(&part, &self.path).map_err(|e| named("the new file cannot replace the old file", e))
        });
        if done.is_err() {
            // The error above is returned; an error here is ignored.
            let _ = std::fs::remove_file(&part);
        }
        done
    }
}

/// Follows symbolic links and returns the final path. The final path may name a missing file.
fn follow(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match std::fs::read_link(&path) {
            Ok(link) => path = folder_of(&path).join(link),
            // The path is not a link, or does not exist.
            Err(_) => return Ok(path),
        }
    }
    Err(std::io::Error::other("the symbolic links of the path form a cycle"))
}

/// Returns the parent folder of a path; `.` for a file name without a folder.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Creates a temporary file in `folder`. If the first name is in use, for example by a file that an interrupted process
/// left, tries other names.
fn create_part(folder: &Path) -> std::io::Result<(File, PathBuf)> {
    let id = std::process::id();
    let mut part = folder.join(format!(".noren-{id}.tmp"));
    for more in 1.. {
        match OpenOptions::new().write(true).create_new(true).open(&part) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && more < 100 => {
                part = folder.join(format!(".noren-{id}-{more}.tmp"));
            }
            made => return Ok((made?, part)),
        }
    }
    unreachable!("the loop returns a file or an error after at most 100 file names")
}
