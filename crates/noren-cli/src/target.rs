//! [`Target`]: the file that a command writes, checked before anything is computed and written whole or not at all.

use crate::failure::{Failure, Result};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// More links in a row than this are taken for a circle, as the system does.
const MOST_LINKS: usize = 40;

/// A file that can be written, as far as can be told before it is.
#[derive(Debug)]
pub(crate) struct Target {
    /// As it was given, for errors.
    name: String,
    /// Where links lead.
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    New,
    /// A file to replace, whose permissions its successor takes.
    File(Permissions),
    /// A device or a pipe has no place to take, so it is written as it stands.
    Device,
}

impl Target {
    /// Refuses folders, files in folders that do not exist, and files that must not be written.
    pub(crate) fn new(given: &Path) -> Result<Target> {
        let name = given.display().to_string();
        let refuse = |problem: String| {
            Err(Failure::new(format!("{name}: {problem}")).hint("give -o a file in a folder that you may write to"))
        };
        let path = match follow(given) {
            Ok(path) => path,
            Err(e) => return refuse(format!("cannot be written: {e}")),
        };
        let kind = match std::fs::metadata(&path) {
            Ok(about) if about.is_dir() => return refuse("is a folder, not a file".to_string()),
            Ok(about) if !about.is_file() => Kind::Device,
            Ok(about) if about.permissions().readonly() => {
                return refuse("is read-only and stays as it is".to_string());
            }
            Ok(about) => match OpenOptions::new().write(true).open(&path) {
                Ok(_) => Kind::File(about.permissions()),
                Err(e) => return refuse(format!("cannot be written: {e}")),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => Kind::New,
            Err(e) => return refuse(format!("cannot be written: {e}")),
        };
        if matches!(kind, Kind::New) {
            if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                return refuse("is no file name".to_string());
            }
            let folder = folder_of(&path);
            if !folder.is_dir() {
                return refuse(format!("cannot be written: there is no folder {}", folder.display()));
            }
        }
        Ok(Target { name, path, kind })
    }

    /// Writes into a new file beside the target, which then takes its place.
    pub(crate) fn write(&self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
        let named = |what: &str, e: std::io::Error| {
            Failure::new(format!("{}: {what}: {e}", self.name)).hint("give -o a file in a folder that you may write to")
        };
        let failed = |e| named("cannot be written", e);
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
        let done = fill()
            .map_err(failed)
            .and_then(|()| std::fs::rename(&part, &self.path).map_err(|e| named("cannot be put in place", e)));
        if done.is_err() {
            // The error above is the one to tell.
            let _ = std::fs::remove_file(&part);
        }
        done
    }
}

/// Where a link leads, also one to a file that is not there yet.
fn follow(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match std::fs::read_link(&path) {
            Ok(link) => path = folder_of(&path).join(link),
            // No link, or nothing at all.
            Err(_) => return Ok(path),
        }
    }
    Err(std::io::Error::other("its links lead in a circle"))
}

/// The folder that a path's last part lies in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// A new file in `folder`. Its name is short, so that the longest name of a target has room beside it; another process
/// that was ended may have left one of the same name.
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
    unreachable!("the hundredth attempt returns")
}
