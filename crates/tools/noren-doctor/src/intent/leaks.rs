//! Counts the cells in which the given mask differs from the intended mask. If a wrongly visible cell would be allowed
//! by the intended mask without one term, such as causality, the cell is counted for this term.

use crate::intent::Intent;
use noren_mask::Keep;
use std::rc::Rc;

/// Numbers of cells in which the given mask differs from the intended mask. Only the rows of non-padding queries are
/// counted.
pub(crate) struct Leaks {
    /// Number of cells that are visible in the given mask but hidden in the intended mask.
    pub(crate) visible: u64,
    /// Number of cells that are hidden in the given mask but allowed in the intended mask.
    pub(crate) hidden: u64,
    /// Number of wrongly visible cells that the intended mask without its causality would allow.
    pub(crate) future: u64,
    /// Number of wrongly visible cells that the intended mask without its padding would allow.
    pub(crate) padding: u64,
    /// Number of wrongly visible cells that the intended mask without its documents would allow.
    pub(crate) documents: u64,
    /// Number of wrongly visible cells that the intended mask without its redactions would allow.
    pub(crate) redacted: u64,
    /// Number of wrongly visible cells that the intended mask without the left limit of its window would allow.
    pub(crate) before: u64,
}

impl Leaks {
    /// Counts the cells in which `given` differs from the intended mask `right`, over all heads and all non-padding queries.
    pub(crate) fn count(given: &Keep, right: &Intent) -> Self {
        let own = right.build();
        let [batch, heads, q_len, _] = given.dims();
        // The number of cells for which `of` gives 1 for the given mask, the intended mask and `other`.
        let sum = |other: &Keep, of: fn(u64, u64, u64) -> u64| -> u64 {
            let rows = (0..batch).flat_map(|b| (0..q_len).map(move |i| (b, i))).filter(|&(b, i)| right.cares(b, i));
            let of_row = |(b, h, i): (usize, usize, usize)| -> u64 {
                let words = given.row(b, h, i).iter().zip(own.row(b, 0, i)).zip(other.row(b, 0, i));
                words.map(|((given, own), other)| u64::from(of(*given, *own, *other).count_ones())).sum()
            };
            rows.flat_map(|(b, i)| (0..heads).map(move |h| (b, h, i))).map(of_row).sum()
        };
        let (visible, hidden) = (sum(&own, |given, own, _| given & !own), sum(&own, |given, own, _| own & !given));
        let without = |variant: Intent| match visible {
            0 => 0,
            _ => sum(&variant.build(), |given, own, other| given & !own & other),
        };
        Leaks {
            visible,
            hidden,
            future: without(Intent { causal: None, ..right.clone() }),
            padding: without(Intent { valid: None, ..right.clone() }),
            documents: without(Intent { segments: None, ..right.clone() }),
            redacted: without(Intent { redactions: Rc::new(Vec::new()), ..right.clone() }),
            before: without(Intent { left: None, ..right.clone() }),
        }
    }
}
