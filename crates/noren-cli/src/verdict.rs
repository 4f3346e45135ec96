//! [`Verdict`]: the exit code of a command that finished without an error.

/// The exit code of a command that finished without an error.
pub(crate) enum Verdict {
    /// Exit code 0: the masks are equal, all checks passed, or the command checks nothing.
    Yes,
    /// Exit code 1: the masks differ, or a check failed.
    No,
    /// Exit code 3: the declarations are not sufficient for a verdict.
    Open,
}
