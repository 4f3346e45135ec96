//! Counts the cells in which the given mask differs from the intended mask. If a wrongly visible cell would be allowed
//! by the intended mask without one term, such as causality, the cell is counted for this term.

use crate::intent::Intent;
use noren_mask::Keep;
use noren_mask::bits::count;
use std::rc::Rc;

/// Numbers of cells in which the given mask differs from the intended mask. Only the rows of non-padding queries are
/// counted.
#[derive(Default)]
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
        let mut leaks = Leaks::default();
        let variants = [
            Intent { valid: None, ..right.clone() },
            Intent { segments: None, ..right.clone() },
            Intent { causal: None, ..right.clone() },
            Intent { redactions: Rc::new(Vec::new()), ..right.clone() },
            Intent { left: None, ..right.clone() },
        ];
        let mut words = vec![0; right.words()];
        let mut wrong = words.clone();
        let [batch, heads, q_len, _] = given.dims();
        for b in 0..batch {
            for i in (0..q_len).filter(|&i| right.cares(b, i)) {
                right.fill(b, i, &mut words);
                for h in 0..heads {
                    let row = given.row(b, h, i);
                    leaks.hidden += row.iter().zip(&words).map(|(g, w)| u64::from((w & !g).count_ones())).sum::<u64>();
                    wrong.iter_mut().zip(row).zip(&words).for_each(|((x, g), w)| *x = g & !w);
                    let visible = count(&wrong);
                    if visible == 0 {
                        continue;
                    }
                    leaks.visible += visible;
                    let mut without = vec![0; words.len()];
                    let counts = [
                        &mut leaks.padding,
                        &mut leaks.documents,
                        &mut leaks.future,
                        &mut leaks.redacted,
                        &mut leaks.before,
                    ];
                    for (variant, total) in variants.iter().zip(counts) {
                        variant.fill(b, i, &mut without);
                        *total += without.iter().zip(&wrong).map(|(o, x)| u64::from((o & x).count_ones())).sum::<u64>();
                    }
                }
            }
        }
        leaks
    }
}
