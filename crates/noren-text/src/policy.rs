//! [`Policy`]: who may read private tokens, as a mask, its facts, and the outputs that may be released.

use crate::detect::{Kind, PRIVATE};
use crate::private::PrivateTokens;
use noren_mask::{Facts, Mask, Selector, Set, Span, atoms};
use std::collections::BTreeMap;

/// Who may read private tokens.
///
/// A policy changes the mask of every layer, so that what may not be read does not come in by way of a token that read it one
/// layer earlier. A private token still holds itself, whatever the mask: outputs at private positions are not
/// [`released`](Policy::released), and whoever pools, classifies or decodes leaves them out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Nobody reads them: `mask - keys(label="private")`.
    Hide,
    /// Each token reads what its own level allows: `mask & clearance`. A kind of private text has the level that is given
    /// here, or 1; a token of several kinds the highest of theirs; other text has level 0.
    Clearance {
        /// Levels by kind, above 0.
        levels: BTreeMap<Kind, i64>,
        /// The highest level whose outputs the reader may have.
        reader: i64,
    },
    /// These query heads do not read them, others do: for seeing what attention changes. Other heads carry what they read
    /// on, so that no output is safe from private text and none is promised to be.
    Heads(
        /// The heads that do not.
        Vec<Span>,
    ),
}

impl Policy {
    /// `base` with what the policy denies taken out. Facts come from [`facts`](Self::facts).
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

    /// `facts` with the labels and levels of the private tokens of each batch row. Rows may be shorter than the batch: what
    /// comes after their tokens (padding on the right) is public.
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

    /// The level of token `at`: that of its highest kind, 0 for what is public.
    pub fn level(&self, tokens: &PrivateTokens, at: usize) -> i64 {
        let of = |kind: &Kind| match self {
            Policy::Clearance { levels, .. } => levels.get(kind).copied().unwrap_or(1),
            _ => 1,
        };
        tokens.kinds_at(at).map(of).max().unwrap_or(0)
    }

    /// Whether the output at token `at` may be released to the reader: whether it can hold nothing that the policy keeps.
    pub fn released(&self, tokens: &PrivateTokens, at: usize) -> bool {
        match self {
            Policy::Hide => !tokens.is_private(at),
            Policy::Clearance { reader, .. } => self.level(tokens, at) <= *reader,
            Policy::Heads(_) => tokens.count() == 0,
        }
    }

    /// Whether token `at` is a secret to the reader: whether nothing that is released may depend on what it says.
    pub fn secret(&self, tokens: &PrivateTokens, at: usize) -> bool {
        match self {
            Policy::Clearance { .. } => !self.released(tokens, at),
            _ => tokens.is_private(at),
        }
    }
}

/// Ascending positions as runs.
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
