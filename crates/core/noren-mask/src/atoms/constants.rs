//! `full` and `none`: every cell and no cell, the neutral elements of `&` and `|`.

use crate::mask::definition::{Definition, Read, Word};
use crate::mask::{Mask, Node};
use crate::syntax::{Entry, Picture};

/// Returns the mask that allows every cell. Text: `full`.
pub fn full() -> Mask {
    Mask::new(Node::Full)
}

/// Returns the mask that allows no cell. Text: `none`.
pub fn none() -> Mask {
    Mask::new(Node::None)
}

pub(super) const FULL: Definition = Definition::new(
    Word {
        entry: Entry::new("full", "full", &[]),
        title: "`full`",
        doc: "Every cell.",
        pictures: &[Picture::square("full", 4)],
    },
    Read::Arguments(|_| Ok(full())),
);

pub(super) const NONE: Definition = Definition::new(
    Word {
        entry: Entry::new("none", "none", &[]),
        title: "`none`",
        doc: "No cell. A query row that may read no key is valid: its output is 0.",
        pictures: &[Picture::square("none", 4)],
    },
    Read::Arguments(|_| Ok(none())),
);
