//! [`Verdict`]: the exit code of a command that finished.

/// The exit code of a command that finished.
pub(crate) enum Verdict {
    /// Exit code 0.
    Yes,
    /// Exit code 1: the masks differ, or a check failed.
    No,
    /// Exit code 3: the declarations are not sufficient for a verdict.
    Open,
}
