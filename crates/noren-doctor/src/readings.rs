//! The possible readings of an array. A reading fixes the meaning of each dimension and the stored value that allows a cell.

use super::diagnose::Case;
use super::expect::Hypothesis;
use super::intent::Intent;
use super::kinds::Role;
use super::report::{Certainty, Finding, Open};
use super::resemble;
use super::values::Numbers;
use noren_mask::Keep;
use noren_mask::bits::bit;

impl Case<'_> {
    /// Returns true if the kind of the mask is unknown: no kind is declared, no window, chunk or prefix is declared
    /// (which would imply a kind), and the array is a mask of queries by keys of one text.
    pub(super) fn open_kind(&self) -> bool {
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
    pub(super) fn undeclared_family(
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

    /// Returns known masks that one mistake may change into the given cells. If the inverted cells equal a known mask,
    /// this mask is the last. The list is empty if the kind of the mask is known (see [`open_kind`](Self::open_kind)).
    pub(super) fn families_near(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Vec<Hypothesis> {
        if !self.open_kind() {
            return Vec::new();
        }
        let mut near = resemble::near(given, hypotheses);
        let inverted = resemble::exact(&inverted(given), hypotheses);
        let open = hypotheses.first().map(|h| h.open.clone()).unwrap_or_default();
        near.extend(inverted.map(|intent| Hypothesis { intent, doubt: 0.1, open }));
        near
    }

    /// If the inverted cells are a known mask, returns the question whether true means "may attend" or "ignored";
    /// otherwise `None`. Also returns `None` if a convention or kind is declared, if the declared function defines the
    /// convention, or if the stored numbers are floats.
    pub(super) fn other_polarity(&self, hypotheses: &[Hypothesis], structure: Option<&Intent>) -> Option<Open> {
        let logical = matches!(self.mask.numbers(), Numbers::Bool(_) | Numbers::Int(_));
        let context = self.context;
        if !logical || context.kind.is_some() || context.convention.is_some() || context.slot.says_polarity() {
            return None;
        }
        let other = self.whole(&inverted(&self.decoded.keep), structure);
        let family = || resemble::exact(&other, hypotheses).filter(|_| self.open_kind());
        let intent = self.accept(&other, hypotheses).map(|found| found.0).or_else(family)?;
        let ignored = format!("if true means \"ignored\", the mask is {}", resemble::in_words(&intent));
        Some(Open::new(
            &["if true means \"may attend\", the mask is no known mask", &ignored],
            "does true mean \"may attend\" or \"ignored\"? declare convention=keep_bool or convention=ignore_bool",
        ))
    }

    /// Returns the question whether the dimensions of a two-dimensional array of integers are (batch row, key) or
    /// (query, key); `None` if a declaration or the cells answer the question.
    pub(super) fn two_readings(&self) -> Option<Open> {
        let &[a, b] = self.mask.shape() else { return None };
        let whole = matches!(self.mask.numbers(), Numbers::Int(_));
        let context = self.context;
        let said = context.role_declared || context.role != Role::Attention || context.q_len.is_some();
        if !whole || said || self.alignment.batch_known || a == 1 || a == b && !self.rows_of_keys() {
            return None;
        }
        let keys =
            format!("{a} batch rows of {b} keys: 1 means a non-padding token, as in the attention_mask of a tokenizer");
        let square = format!("{a} queries by {b} keys: 1 means that the query may attend to the key");
        let question = format!(
            "the array {} [{a}, {b}] has two readings: does the array have {a} batch rows of keys or {a} queries by {b} keys? declare role=key_padding, or \
             role=attn with past_len",
            self.mask.dtype().name()
        );
        Some(Open::new(&[&keys, &square], question))
    }

    /// Returns the question whether a two-dimensional array of Booleans or floats, `[batch, keys]`, is key padding. `None` if a
    /// declaration answers the question, or if a row cannot be a row of key padding. The question about integers is
    /// [`two_readings`](Self::two_readings).
    pub(super) fn is_it_key_padding(&self) -> Option<Open> {
        let &[a, b] = self.mask.shape() else { return None };
        let context = self.context;
        let said = context.role_declared || context.role != Role::Attention || context.q_len.is_some();
        if said || !context.past.is_empty() || self.alignment.batch_known || a == 1 || !self.rows_of_keys() {
            return None;
        }
        let keys = format!("{a} batch rows of {b} keys, in which padding keys are hidden");
        let square = format!("{a} queries by {b} keys");
        let question = "is the array key padding, one row of keys for each batch row? declare role=key_padding, or role=attn for queries by keys";
        Some(Open::new(&[&keys, &square], question))
    }

    /// Returns true if every row may be a row of key padding: at most one change between visible and hidden keys. A row of
    /// integers, as in the `attention_mask` of a tokenizer, holds only 0 and 1 and has a visible key.
    fn rows_of_keys(&self) -> bool {
        let keep = &self.decoded.keep;
        let [.., q_len, kv_len] = keep.dims();
        let rows = keep.dims()[0] * q_len;
        let run = |n: usize| {
            let row = keep.row(n / q_len, 0, n % q_len);
            (1..kv_len).filter(|&k| bit(row, k) != bit(row, k - 1)).count() <= 1
        };
        let flags = |v: &[i64]| v.chunks(kv_len).all(|row| row.contains(&1) && row.iter().all(|x| matches!(x, 0 | 1)));
        let Numbers::Int(cells) = self.mask.numbers() else { return (0..rows).all(run) };
        flags(cells) && (0..rows).all(run)
    }

    /// Returns the cells in each possible reading, first the default reading `given`. If a reading is possible only
    /// because of a mistake in the shape or the order of dimensions, it has a finding with this mistake; otherwise
    /// `None`.
    pub(super) fn readings(&self, given: &Keep, structure: Option<&Intent>) -> Vec<(Keep, Option<Finding>)> {
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

/// Returns the mask in which allowed cells are hidden and hidden cells are allowed.
fn inverted(keep: &Keep) -> Keep {
    Keep::from_cells(keep.dims(), keep.cells().map(|allowed| !allowed))
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
