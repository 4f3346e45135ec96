//! Whether true allows or hides a cell.

use crate::array::decode::{Decoded, Fill};
use crate::read::context::Context;
use crate::report::Open;
use noren_mask::Keep;

/// Returns true if the array holds truth values, and no declaration states whether true allows or hides a cell.
pub(crate) fn open_polarity(decoded: &Decoded, context: &Context) -> bool {
    decoded.fill == Fill::Logical && context.convention.is_none() && !context.slot.says_polarity()
}

/// Returns the question whether true means "may attend" or "ignored" in an array whose inverted cells are the mask `name`. `declared` is
/// true if it is the declared mask, cell by cell.
pub(crate) fn which_polarity(declared: bool, name: &str) -> Open {
    let attends = match declared {
        true => {
            "if true means \"may attend\", every cell is the opposite of the declaration (inverted_polarity): apply `~mask`"
        }
        false => "if true means \"may attend\", the mask is another one",
    };
    let ignored = format!("if true means \"ignored\", the mask is {name}");
    let question = "does true mean \"may attend\" or \"ignored\"? declare convention=keep_bool or convention=ignore_bool, or the function \
                    that takes the mask, such as api=sdpa or api=mha";
    Open::new(&[attends, &ignored], question)
}

/// Returns the mask in which allowed cells are hidden and hidden cells are allowed.
pub(crate) fn inverted(keep: &Keep) -> Keep {
    Keep::from_cells(keep.dims(), keep.cells().map(|allowed| !allowed))
}
