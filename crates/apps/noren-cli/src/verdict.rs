//! [`Verdict`]: the exit code of a command that finished without an error.

/// The exit code of a command that finished without an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Exit code 0: the masks are equal, all checks passed, or the command has nothing to check.
    Yes,
    /// Exit code 1: the masks differ, or a check failed.
    No,
    /// Exit code 3: `noren check` needs more declared properties of the mask for a verdict.
    Open,
}
