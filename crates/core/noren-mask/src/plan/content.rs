//! The keys at which content begins, so that a kernel can lay out a document in the same way wherever it is.

use crate::bind::Resolved;
use crate::mask::pattern::Pattern;
use crate::plan::PatternPlan;
use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;

impl PatternPlan {
    /// Returns the keys at which content begins, ascending: the first non-padding key of each document, and of the keys
    /// without documents. The list is the same whichever queries a plan has. It is empty for plans that reorder keys.
    ///
    /// ```
    /// use noren_mask::{Facts, Mask, Shape};
    /// let mask: Mask = "causal & documents([3, 5]) & keys(1..)".parse()?;
    /// let plan = mask.bind(&Shape::square(8), &Facts::new())?.plan();
    /// assert_eq!(plan.patterns()[0].content_starts(), [1, 3]);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    pub fn content_starts(&self) -> Vec<u32> {
        if self.key_order().is_some() {
            return Vec::new();
        }
        let Resolved { frame, pattern } = &self.resolved;
        let kv_len = frame.kv_len;
        let set = |leaf: &Pattern| match leaf {
            Pattern::Keys(set) => Bounds::exact((**set).clone()),
            _ => Bounds::unknown(kv_len),
        };
        let real = pattern.bounds_with(kv_len, &set).upper;
        let mut starts = pattern.document_starts(frame);
        if starts.first() != Some(&0) {
            starts.insert(0, 0);
        }
        for i in 0..starts.len() {
            let end = starts.get(i + 1).copied().unwrap_or(kv_len);
            // Keys before the first key of a cache are unknown: its content may have begun before.
            let first = real.within(starts[i], end).next().map(|run| run.start);
            starts[i] = first.filter(|first| *first == 0 || frame.key(first - 1) >= 0).unwrap_or(starts[i]);
        }
        starts.dedup();
        starts
    }
}

impl Pattern {
    /// Returns the first keys of all documents, ascending: keys before such a key and keys from it on are never read by the
    /// same query, as far as documents decide it.
    pub(crate) fn document_starts(&self, frame: &Frame) -> Vec<u32> {
        match self {
            Pattern::Documents(borders) => {
                let mut starts = Vec::new();
                frame.pieces((0, frame.kv_len), &mut |first, last, shift| {
                    let inside = |index: &i64| (i64::from(first)..i64::from(last)).contains(index);
                    starts.extend(borders.iter().map(|border| border - shift).filter(inside).map(|index| index as u32));
                });
                starts
            }
            Pattern::Selected(selection, leaf) => selection.document_starts(leaf),
            Pattern::And(parts) => {
                let mut all: Vec<u32> = parts.iter().flat_map(|part| part.document_starts(frame)).collect();
                all.sort_unstable();
                all.dedup();
                all
            }
            Pattern::Or(parts) => {
                let each = parts.iter().map(|part| part.document_starts(frame));
                let both = |a: Vec<u32>, b: Vec<u32>| a.into_iter().filter(|x| b.binary_search(x).is_ok()).collect();
                each.reduce(both).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}
