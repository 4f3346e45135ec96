//! [`Held`]: the cells that a mask was held against, for the checks that follow.

use super::intent::{Intent, PerRow, row};
use noren_mask::Keep;

/// What later checks need of the comparison.
pub(crate) struct Held {
    /// The cells as they were meant, of all queries and keys.
    pub(crate) keep: Keep,
    /// The intent that the mask was held against.
    pub(crate) intent: Option<Intent>,
    /// Which queries are real, where no intent says so.
    pub(crate) real: Option<PerRow<bool>>,
}

impl Held {
    /// Whether query `i` of batch row `b` is a real token.
    pub(crate) fn cares(&self, b: usize, i: usize) -> bool {
        match (&self.intent, &self.real) {
            (Some(intent), _) => intent.cares(b, i),
            (None, Some(rows)) => row(rows, b).get(i).copied().unwrap_or(true),
            (None, None) => true,
        }
    }
}
