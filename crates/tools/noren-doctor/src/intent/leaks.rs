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
    /// For each term of the intended mask: the class of a mistake that leaves it out, the number of wrongly visible cells that the intended
    /// mask without the term would allow, and what they are.
    pub(crate) terms: [(&'static str, u64, &'static str); 5],
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
        let terms = [
            (
                "multi_hop_leak",
                without(Intent { redactions: Rc::new(Vec::new()), ..right.clone() }),
                "keys that are declared redacted",
            ),
            ("cross_document", without(Intent { segments: None, ..right.clone() }), "keys of another document"),
            ("padding_keys_visible", without(Intent { valid: None, ..right.clone() }), "padding keys"),
            ("causal_leak", without(Intent { causal: None, ..right.clone() }), "keys after the query"),
            (
                "window_missing_or_wrong_layer",
                without(Intent { left: None, ..right.clone() }),
                "keys before the declared window",
            ),
        ];
        Leaks { visible, hidden, terms }
    }

    /// Returns the number of wrongly visible cells that the intended mask would allow without the term of `class`.
    pub(crate) fn of(&self, class: &str) -> u64 {
        self.terms.iter().find(|term| term.0 == class).map_or(0, |term| term.1)
    }
}
