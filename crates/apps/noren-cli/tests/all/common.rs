//! Functions that several tests of the command share.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder of one test, removed at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder.
    pub(crate) fn new(name: &str) -> Folder {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the command and returns its output.
pub(crate) fn noren(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_noren")).args(args).env_remove("NOREN_ISA").output().expect("the command starts")
}

/// Asserts that the command returned an error with the text `expected`, without a panic.
#[track_caller]
pub(crate) fn refused(output: &Output, expected: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
    assert!(!said.contains("panicked"), "{said}");
}
