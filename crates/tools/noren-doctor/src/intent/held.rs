//! [`Held`]: the cells and the intended mask that a diagnosis found, for later checks.

use crate::intent::{Intent, PerRow, row};
use noren_mask::Keep;

/// The result of the comparison of an array with its intended mask: the cells and the intended mask. Later checks, such
/// as the check of probabilities, read this result.
#[derive(Clone)]
pub(crate) struct Held {
    /// The correct cells for all queries and keys; if the correct cells are unknown, the cells of the array.
    pub(crate) keep: Keep,
    /// The intended mask with which the array was compared; `None` if the intended mask is unknown.
    pub(crate) intent: Option<Intent>,
    /// For each batch row and query, true if the query is a non-padding token. This field is used only if `intent` is
    /// `None`.
    pub(crate) real: Option<PerRow<bool>>,
    /// The cells of the array, if they are faulty.
    pub(crate) given: Option<Keep>,
}

impl Held {
    /// Returns whether query `i` of batch row `b` is a non-padding token.
    pub(crate) fn cares(&self, b: usize, i: usize) -> bool {
        match (&self.intent, &self.real) {
            (Some(intent), _) => intent.cares(b, i),
            (None, Some(rows)) => row(rows, b).get(i).copied().unwrap_or(true),
            (None, None) => true,
        }
    }
}
