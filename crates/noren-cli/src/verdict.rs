//! [`Verdict`]: what a command that ran to its end tells the shell.

/// The exit code of a command that ran to its end.
pub(crate) enum Verdict {
    /// Exit code 0.
    Yes,
    /// Exit code 1: the masks differ, or a check failed.
    No,
    /// Exit code 3: too little is declared for a verdict.
    Open,
}
