//! [`BoundMask`]: a mask with its shape and facts, after all checks.

pub(crate) mod agree;
mod atoms;
pub(crate) mod budget;
pub(crate) mod count;
pub(crate) mod eval;
pub(crate) mod lower;
mod samples;
pub(crate) mod select;
mod sound;
mod used;

use crate::Error;
use crate::facts::Facts;
use crate::facts::resolve::{RowFacts, frame};
use crate::facts::shape::Shape;
use crate::mask::basis::{Input, Site};
use crate::mask::pattern::Pattern;
use crate::mask::{Mask, Node};
use crate::sets::frame::Frame;
use crate::sets::interval::Interval;
use crate::sets::order::Order;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A mask with a shape and facts that fit it; returned by [`Mask::bind`].
///
/// A bound mask gives cells ([`allowed`](Self::allowed)), explanations ([`explain`](Self::explain)), comparisons with other masks
/// ([`first_difference`](Self::first_difference)) and a [`Plan`](crate::Plan). The crate `noren-picture` draws it. Two bound
/// masks are equal if mask, shape and facts are equal, and, for selections ([`select`](Self::select)), the selected rows,
/// queries and keys too; [`first_difference`](Self::first_difference) compares their cells.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundMask {
    mask: Mask,
    shape: Shape,
    facts: Arc<Facts>,
    frames: Vec<Frame>,
    /// The distinct patterns (a pattern is the set of cells of one batch row and head). Each pattern is stored with the
    /// frame that maps its indices to positions.
    patterns: Vec<Resolved>,
    /// For each pair (batch row, head), the index of its pattern in `patterns`: all heads of batch row 0, then those of
    /// batch row 1, and so on.
    pattern_of: Vec<u32>,
    /// If this mask is a selection from another mask, that mask and the selected batch rows, queries and keys;
    /// otherwise `None`.
    whole: Option<Arc<Whole>>,
}

/// A pattern (the mask of one batch row and head, prepared for planning) together with the frame that maps indices to
/// positions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Resolved {
    pub(crate) frame: Frame,
    pub(crate) pattern: Pattern,
}

/// The original mask of a selection, and the selected batch rows, queries and keys.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Whole {
    pub(crate) bound: BoundMask,
    /// The selected batch rows of the original mask; `None` if all are selected.
    pub(crate) batch: Option<Vec<usize>>,
    /// The selected query rows of the original mask.
    pub(crate) rows: Arc<Order>,
    /// The selected keys of the original mask.
    pub(crate) keys: Arc<Order>,
}

impl Whole {
    /// Converts the indices of a cell of the selection. Returns the original mask, and the batch row, query row and key
    /// of the cell in the original mask.
    pub(crate) fn cell(&self, batch: usize, row: usize, key: usize) -> (&BoundMask, usize, usize, usize) {
        let batch = self.batch.as_ref().map_or(batch, |rows| rows[batch]);
        (&self.bound, batch, self.rows.origin(row as u32) as usize, self.keys.origin(key as u32) as usize)
    }
}

impl Mask {
    /// Checks the mask, the shape and the facts, and returns the mask bound to them.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, atoms::*};
    /// let error = padding().bind(&Shape::square(4), &Facts::new()).unwrap_err();
    /// assert!(error.to_string().starts_with("`padding` needs lengths"));
    /// ```
    ///
    /// # Errors
    /// Returns an error if the shape or a parameter of an atom is invalid, if facts are missing, malformed or do not fit the
    /// shape, or if the mask contains `layers(...)` (call [`at_layer`](Mask::at_layer) first). With debug assertions, also
    /// returns an error if samples show that the bounds of a function are wrong.
    pub fn bind(&self, shape: &Shape, facts: &Facts) -> Result<BoundMask, Error> {
        shape.check()?;
        self.check()?;
        sound::check_facts(facts, shape)?;
        atoms::check_atoms(self, shape, facts)?;
        let facts = Arc::new(facts.clone());
        let frames: Vec<Frame> = (0..shape.batch_len()).map(|row| frame(shape, &facts, row)).collect();
        let simple = self.simplify();
        debug_assert_eq!(simple.check(), Ok(()), "the canonical form of `{self}`");
        debug_assert_eq!(atoms::check_atoms(&simple, shape, &facts), Ok(()), "the canonical form of `{self}`");
        let by_head = depends_on_head(&simple, &facts);
        let mut patterns: Vec<Resolved> = Vec::new();
        let mut known: HashMap<Resolved, u32> = HashMap::new();
        let mut pattern_of = Vec::with_capacity(shape.batch_len() * shape.head_count());
        for (row, frame) in frames.iter().enumerate() {
            for head in 0..shape.head_count() {
                if head > 0 && !by_head {
                    pattern_of.push(*pattern_of.last().expect("head 0 was resolved"));
                    continue;
                }
                let row = RowFacts { facts: &facts, frame, row };
                let pattern = crate::bind::lower::lower(&simple, Site { row, shared: &facts, head });
                let resolved = Resolved { frame: frame.clone(), pattern };
                let next = patterns.len() as u32;
                pattern_of.push(*known.entry(resolved.clone()).or_insert_with(|| {
                    patterns.push(resolved);
                    next
                }));
            }
        }
        let (mask, shape) = (self.clone(), shape.clone());
        let bound = BoundMask { mask, shape, facts, frames, patterns, pattern_of, whole: None };
        if cfg!(debug_assertions) && self.atoms().iter().any(|atom| atom.name() == "function") {
            samples::sample_bounds(self, bound.patterns.iter().map(|resolved| (&resolved.frame, &resolved.pattern)))?;
        }
        Ok(bound)
    }
}

impl BoundMask {
    /// Returns the mask as given to [`Mask::bind`].
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the facts.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the position of query row `row` of batch row `batch`.
    pub fn query_position(&self, batch: usize, row: usize) -> i64 {
        match &self.whole {
            None => self.shape.query_offset(batch) + row as i64,
            Some(whole) => {
                let (bound, batch, row, _) = whole.cell(batch, row, 0);
                bound.query_position(batch, row)
            }
        }
    }

    /// Returns the position of key `key` of batch row `batch`. The position is negative if this slot of the cache holds
    /// no key.
    pub fn key_position(&self, batch: usize, key: usize) -> i64 {
        match &self.whole {
            None => self.frames[batch].key(key as u32),
            Some(whole) => {
                let (bound, batch, _, key) = whole.cell(batch, 0, key);
                bound.key_position(batch, key)
            }
        }
    }

    /// Returns the number of distinct patterns. A pattern is the set of cells of a batch row and head; equal sets count
    /// once.
    pub fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// Returns the index of the pattern (set of cells) of this batch row and query head.
    pub fn pattern_of(&self, batch: usize, head: usize) -> usize {
        self.pattern_of[batch * self.shape.head_count() + head] as usize
    }

    /// Writes the cells of pattern `pattern` ([`pattern_of`](Self::pattern_of)) in the query rows `rows` and the keys
    /// `keys` into `words`, one bit per cell, 1 for allowed. `words` has `bits::row_words(keys.len())` words for each
    /// query row, row after row, and is overwritten. Bits beyond the keys are 0.
    ///
    /// # Panics
    /// Panics if the mask has no pattern with this index, or if the rectangle is not inside the shape.
    pub fn fill_bits(&self, pattern: usize, rows: Range<u32>, keys: Interval, words: &mut [u64]) {
        let Resolved { frame, pattern } = &self.patterns[pattern];
        assert!(rows.end <= frame.q_len && keys.end <= frame.kv_len, "{rows:?} x {keys:?}");
        pattern.fill(frame, rows, keys, words);
    }

    pub(crate) fn resolved(&self) -> &[Resolved] {
        &self.patterns
    }

    /// Returns the mask from which this mask was selected, with the selected batch rows, queries and keys; `None` if
    /// this mask is not a selection.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.whole.as_deref()
    }

    /// Returns the index of the pattern (set of cells) of each (batch row, head), in batch-major order.
    pub(crate) fn pattern_list(&self) -> &[u32] {
        &self.pattern_of
    }

    /// Returns the bound mask of a selection from this mask. All arguments belong to the selection: its shape, its
    /// frames (maps from indices to positions), its patterns (sets of cells), the index of the pattern of each (batch
    /// row, head) in batch-major order, and this mask with the selected indices (`whole`).
    pub(crate) fn narrowed(
        &self,
        shape: Shape,
        frames: Vec<Frame>,
        (patterns, pattern_of): (Vec<Resolved>, Vec<u32>),
        whole: Whole,
    ) -> BoundMask {
        let (mask, facts) = (self.mask.clone(), self.facts.clone());
        BoundMask { mask, shape, facts, frames, patterns, pattern_of, whole: Some(Arc::new(whole)) }
    }

    pub(crate) fn frame(&self, batch: usize) -> &Frame {
        &self.frames[batch]
    }

    /// Returns the facts (data given when the mask was bound, such as lengths) of batch row `row`.
    pub(crate) fn row_facts(&self, row: usize) -> RowFacts<'_> {
        RowFacts { facts: &self.facts, frame: &self.frames[row], row }
    }
}

/// Returns whether the cells of two heads of one batch row may differ.
fn depends_on_head(mask: &Mask, facts: &Facts) -> bool {
    let by_head = |input: Input<'_>| match input {
        Input::Head => true,
        Input::Array(name) => facts.arrays.get(name).is_some_and(|array| array.shape()[1] > 1),
        _ => false,
    };
    mask.nodes().into_iter().any(|part| match part.node() {
        Node::Heads(_) => true,
        Node::Atom(atom) => atom.inputs().into_iter().any(by_head),
        _ => false,
    })
}
