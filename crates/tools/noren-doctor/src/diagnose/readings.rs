//! The possible readings of an array. A reading fixes the meaning of each dimension and the stored value that allows a cell.

use crate::array::polarity::inverted;
use crate::candidates::expect::Hypothesis;
use crate::candidates::resemble;
use crate::diagnose::Case;
use crate::intent::Intent;
use crate::read::kinds::Role;
use crate::report::{Certainty, Finding};
use noren_mask::Keep;

impl Case<'_> {
    /// Returns true if the kind of the mask is unknown: no kind is declared, no window, chunk or prefix is declared
    /// (which would imply a kind), and the array is a mask of queries by keys of one text.
    pub(crate) fn open_kind(&self) -> bool {
        let context = self.context;
        context.kind.is_none()
            && context.window.is_none()
            && context.chunk.is_none()
            && context.prefix.is_empty()
            && context.role != Role::Cross
            && !self.alignment.keys_only
    }

    /// Returns the first of `readings` whose cells equal a known mask, as (cells, finding of the reading, known mask).
    /// Sizes of the known mask, such as a window width, are read from the array. Returns `None` if no reading equals a
    /// known mask, or if the kind of the mask is known (see [`open_kind`](Self::open_kind)).
    pub(crate) fn undeclared_family(
        &self,
        readings: &[(Keep, Option<Finding>)],
        hypotheses: &[Hypothesis],
    ) -> Option<(Keep, Option<Finding>, Intent)> {
        if !self.open_kind() {
            return None;
        }
        let fits = |(keep, finding): &(Keep, Option<Finding>)| {
            Some((keep.clone(), finding.clone(), resemble::exact(keep, hypotheses)?))
        };
        readings.iter().find_map(fits)
    }

    /// Returns known masks that one mistake may change into the given cells, with sizes that are read from the array. The last are
    /// the masks that equal the inverted and the transposed cells. If the kind is declared, only sizes that are not declared are read,
    /// from the transposed cells.
    pub(crate) fn families_near(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Vec<Hypothesis> {
        let [.., q_len, kv_len] = given.dims();
        let turned = (q_len == kv_len).then(|| given.transposed());
        if !self.open_kind() {
            let unsized_kind = hypotheses.iter().any(|h| h.open.iter().any(|open| !open.between));
            let read = turned.filter(|_| unsized_kind && self.context.kind.is_some());
            let found =
                read.map(|turned| crate::candidates::expect::hypotheses(&self.known, self.context, Some(&turned)));
            return found.into_iter().flatten().map(|h| Hypothesis { doubt: h.doubt + 0.1, ..h }).collect();
        }
        let open = hypotheses.first().map(|h| h.open.clone()).unwrap_or_default();
        let exact = |cells: Keep| resemble::exact(&cells, hypotheses);
        // A transposed mask with assumed padding may be many masks.
        let known = |intent: &Intent| intent.valid.is_some() == self.known.valid.is_some();
        let others = [exact(inverted(given)), turned.and_then(exact).filter(known)].into_iter().flatten();
        let others = others.map(|intent| Hypothesis { intent, doubt: 0.1, open: open.clone() });
        resemble::near(given, hypotheses).into_iter().chain(others).collect()
    }

    /// Returns the cells in each possible reading, first the default reading `given`. If a reading is possible only
    /// because of a mistake in the shape or the order of dimensions, it has a finding with this mistake; otherwise
    /// `None`.
    pub(crate) fn readings(&self, given: &Keep, structure: Option<&Intent>) -> Vec<(Keep, Option<Finding>)> {
        let mut readings = vec![(given.clone(), None)];
        if let Some(other) = &self.decoded.other {
            readings.push((self.whole(other, structure), None));
        }
        if let Some(dims) = self.alignment.other {
            let plane = Keep::from_cells(dims, self.decoded.keep.cells());
            let mut meant = plane.expand(self.dims());
            if dims[2] == 1
                && let Some(intent) = structure.filter(|_| self.context.kind.is_some())
            {
                meant = Intent { valid: None, ..intent.clone() }.cut(&meant, true);
            }
            let text = format!(
                "an array of shape {:?} can have two meanings: it is read as {:?}, but the declaration fits {dims:?}. With another batch size, the \
                 array would cause an error or have another meaning: give it with four dimensions",
                self.mask.shape(),
                self.alignment.dims
            );
            readings.push((meant, Some(Finding::of("rank_ambiguity", Certainty::Certain, text))));
        }
        if self.alignment.flat {
            let [batch, heads, ..] = self.alignment.dims;
            let text = format!(
                "the first dimension of {} holds heads before batch rows: [{batch} x {heads}] is read with batch rows first, so batch rows \
                 read each other's masks (repeat was used instead of repeat_interleave)",
                batch * heads
            );
            readings.push((swapped(given), Some(Finding::of("head_batch_layout", Certainty::Certain, text))));
        }
        readings
    }
}

/// Returns the cells with heads before batch rows in the first stored dimension, which has one entry for each pair of
/// batch row and head. Batch row `b`, head `h` gets entry `h * batch + b` of this dimension.
fn swapped(keep: &Keep) -> Keep {
    let [batch, heads, ..] = keep.dims();
    Keep::from_fn(keep.dims(), |[b, h, i, k]| {
        let flat = h * batch + b;
        keep.get([flat / heads, flat % heads, i, k])
    })
}
