//! [`Policy`]: which tokens may read private tokens, as a mask with its facts, and the outputs that may be released.

use crate::detect::{Kind, PRIVATE};
use crate::private::PrivateTokens;
use noren_mask::{Facts, Mask, Selector, Set, Span, atoms};
use std::collections::BTreeMap;

/// The rule for which tokens may read private tokens.
///
/// A policy changes the mask of every layer, so that hidden content cannot pass through a token that read it one layer
/// earlier. A private token still holds its own content, whatever the mask. Outputs at private positions are therefore
/// not [`released`](Policy::released), and pooling, classification and decoding must leave them out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Policy {
    /// No other token reads private tokens: `mask - keys(label="private")`.
    Hide,
    /// Each token reads tokens up to its own level: `mask & clearance`. The level of a kind of private text is given
    /// here [default: 1]. A token of several kinds has the highest of their levels. Other text has level 0.
    Clearance {
        /// The level of each kind, above 0.
        levels: BTreeMap<Kind, i64>,
        /// The highest level whose outputs the reader may see.
        reader: i64,
    },
    /// The given query heads do not read private tokens, other heads do: a means to study the effect of attention. The
    /// other heads pass on private content, so no output is released.
    Heads(
        /// The query heads that do not read private tokens.
        Vec<Span>,
    ),
}

impl Policy {
    /// Returns `base` without the cells that the policy denies. The facts come from [`facts`](Self::facts).
    ///
    /// ```
    /// use noren_mask::{Span, atoms::causal};
    /// use noren_text::Policy;
    /// let heads = Policy::Heads(vec![Span::from(0..2)]);
    /// assert_eq!(
    ///     heads.mask(causal()).to_string(),
    ///     "heads(0..2: causal - keys(label=\"private\"), else: causal)"
    /// );
    /// ```
    pub fn mask(&self, base: Mask) -> Mask {
        let hidden = |base: Mask| base - atoms::keys(Set::label(PRIVATE));
        match self {
            Policy::Hide => hidden(base),
            Policy::Clearance { .. } => base & atoms::clearance(),
            Policy::Heads(spans) => {
                atoms::heads([(Selector::Spans(spans.clone()), hidden(base.clone())), (Selector::Else, base)])
            }
        }
    }

    /// Adds the labels and levels of the private tokens of each batch row to `facts`. Rows may be shorter than the
    /// batch; padding on the right is public.
    pub fn facts(&self, rows: &[&PrivateTokens], facts: Facts) -> Facts {
        let mut facts = facts.label_rows(PRIVATE, rows.iter().map(|row| to_spans(&row.positions())).collect());
        let kinds: std::collections::BTreeSet<&Kind> =
            rows.iter().flat_map(|row| row.kinds().map(|(kind, _)| kind)).collect();
        for kind in kinds {
            let of_row = |row: &&PrivateTokens| {
                row.kinds().find(|(k, _)| *k == kind).map(|(_, at)| to_spans(&at)).unwrap_or_default()
            };
            facts = facts.label_rows(kind.as_str(), rows.iter().map(of_row).collect());
        }
        if let Policy::Clearance { .. } = self {
            let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
            let levels = |row: &&PrivateTokens| (0..longest).map(|at| self.level(row, at)).collect::<Vec<_>>();
            facts = facts.levels(rows.iter().map(levels).collect::<Vec<_>>());
        }
        facts
    }

    /// Returns the level of token `at`, which is that of its highest kind, or 0 if it is public.
    pub fn level(&self, tokens: &PrivateTokens, at: usize) -> i64 {
        let of = |kind: &Kind| match self {
            Policy::Clearance { levels, .. } => levels.get(kind).copied().unwrap_or(1),
            _ => 1,
        };
        tokens.kinds_at(at).map(of).max().unwrap_or(0)
    }

    /// Returns whether the output at token `at` may be released to the reader. Such an output cannot depend on text
    /// that the policy hides.
    pub fn released(&self, tokens: &PrivateTokens, at: usize) -> bool {
        match self {
            Policy::Hide => !tokens.is_private(at),
            Policy::Clearance { reader, .. } => self.level(tokens, at) <= *reader,
            Policy::Heads(_) => tokens.count() == 0,
        }
    }

    /// Returns whether token `at` is hidden from the reader. No released output may depend on its content.
    pub fn secret(&self, tokens: &PrivateTokens, at: usize) -> bool {
        match self {
            Policy::Clearance { .. } => !self.released(tokens, at),
            _ => tokens.is_private(at),
        }
    }
}

/// Returns ascending positions as spans.
fn to_spans(positions: &[usize]) -> Vec<Span> {
    let mut spans: Vec<std::ops::Range<u64>> = Vec::new();
    for at in positions.iter().map(|at| *at as u64) {
        match spans.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => spans.push(at..at + 1),
        }
    }
    spans.into_iter().map(Span::from).collect()
}
