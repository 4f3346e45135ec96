//! [`Membership`]: an atom whose cells planning evaluates one at a time with
//! [`Atom::allows`](crate::atom::Atom::allows).

use crate::facts::Facts;
use crate::facts::resolve::RowFacts;
use crate::mask::AtomRef;
use crate::mask::basis::{ByAddress, Input, Pair, Site};
use crate::mask::resolved::ByCell;
use crate::sets::frame::Frame;

/// The cells of an atom in one batch row and head. Planning calls the function `allows` of the atom for each cell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Membership {
    atom: AtomRef,
    facts: ByAddress<Facts>,
    batch: usize,
    head: usize,
}

impl Membership {
    /// Returns the cells of `atom` in the batch row and head of `site`. Stores 0 as the index of the batch row if the
    /// cells do not depend on the batch row, and 0 as the index of the head if they do not depend on the head. So equal
    /// cells of several batch rows and heads compare as equal.
    pub(crate) fn new(atom: &AtomRef, site: &Site<'_>) -> Self {
        let inputs = atom.inputs();
        let by_head = inputs.iter().any(|i| matches!(i, Input::Head | Input::Array(_)));
        let by_batch = inputs.iter().any(|i| *i != Input::Head);
        let pick = |depends: bool, index: usize| if depends { index } else { 0 };
        let (batch, head) = (pick(by_batch, site.row.row), pick(by_head, site.head));
        Membership { atom: atom.clone(), facts: ByAddress(site.shared.clone()), batch, head }
    }
}

impl ByCell for Membership {
    fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32)) {
        let facts = RowFacts { facts: &self.facts, frame, row: self.batch };
        let (batch, head) = (self.batch, self.head);
        let q = frame.query(row);
        frame.pieces(keys, &mut |first, last, shift| {
            for key in first..last {
                let k = i64::from(key) + shift;
                let pair = Pair { q, k, row: row as usize, key: key as usize, batch, head, facts };
                if self.atom.allows(&pair) {
                    emit(key, key + 1);
                }
            }
        });
    }
}
