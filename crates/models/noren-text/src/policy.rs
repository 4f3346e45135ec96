//! [`Policy`]: the rule for which tokens may read private tokens, and which outputs may be released. A policy gives a
//! mask, and the facts (data that the mask needs: labels and clearance levels of tokens).

use crate::detect::{Kind, PRIVATE};
use crate::private::PrivateTokens;
use noren_mask::{Facts, Mask, Positions, Selector, Span, atoms};
use std::collections::BTreeMap;

/// The rule for which tokens may read private tokens.
///
/// A policy changes the mask of every layer. If one layer were not changed, a token could read hidden content there and
/// pass it on in later layers. Under any mask, the output of a private token contains the token's own content. Outputs
/// at private positions are therefore not [`released`](Policy::released), and pooling, classification and decoding must
/// leave them out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Policy {
    /// No token reads private tokens: `mask - keys(label="private")`.
    Hide,
    /// Each token reads tokens up to its own clearance level: `mask & clearance`. `levels` gives the clearance level of
    /// each kind of private text [default: 1]. A token of several kinds has the highest of their levels. Public tokens
    /// have level 0.
    Clearance {
        /// The clearance level of each kind of private text, above 0; a kind that is missing has level 1.
        levels: BTreeMap<Kind, i64>,
        /// The reader's clearance level: outputs of tokens up to this level may be released.
        reader: i64,
    },
    /// Only some query heads are prevented from reading private tokens, to study the effect of attention. The other heads
    /// read private tokens and pass on their content, so no output is released.
    Heads(
        /// The query heads that do not read private tokens.
        Vec<Span>,
    ),
}

impl Policy {
    /// Returns `base` without the cells that the policy denies. The facts (labels and clearance levels of tokens) that
    /// the returned mask needs come from [`facts`](Self::facts).
    ///
    /// Heads 0 and 1 of this policy may not read private tokens, and all other heads may:
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
        let hidden = |base: Mask| base - atoms::keys(Positions::label(PRIVATE));
        match self {
            Policy::Hide => hidden(base),
            Policy::Clearance { .. } => base & atoms::clearance(),
            Policy::Heads(spans) => {
                atoms::heads([(Selector::Spans(spans.clone()), hidden(base.clone())), (Selector::Else, base)])
            }
        }
    }

    /// Adds the labels and clearance levels of the private tokens to `facts` (data given with a mask). `rows` has one
    /// entry for each batch row: the private tokens of its text. A text may be shorter than others; the padding after
    /// its tokens is public.
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

    /// Returns the clearance level of token `at`: the highest level of its kinds, or 0 for a public token.
    pub fn level(&self, tokens: &PrivateTokens, at: usize) -> i64 {
        let of = |kind: &Kind| match self {
            Policy::Clearance { levels, .. } => levels.get(kind).copied().unwrap_or(1),
            _ => 1,
        };
        tokens.kinds_at(at).map(of).max().unwrap_or(0)
    }

    /// Returns whether the reader may have the output at token `at`. A released output does not depend on text that the
    /// policy hides.
    pub fn released(&self, tokens: &PrivateTokens, at: usize) -> bool {
        match self {
            Policy::Hide => !tokens.is_private(at),
            Policy::Clearance { reader, .. } => self.level(tokens, at) <= *reader,
            Policy::Heads(_) => tokens.count() == 0,
        }
    }

    /// Returns whether the content of token `at` is hidden from the reader. No released output may depend on this
    /// content.
    pub fn secret(&self, tokens: &PrivateTokens, at: usize) -> bool {
        match self {
            Policy::Clearance { .. } => !self.released(tokens, at),
            _ => tokens.is_private(at),
        }
    }
}

/// Joins consecutive numbers of the ascending list `positions` to ranges: for example, `[2, 3, 7]` gives 2..4 and 7..8.
fn to_spans(positions: &[usize]) -> Vec<Span> {
    let mut spans: Vec<std::ops::Range<usize>> = Vec::new();
    for &at in positions {
        match spans.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => spans.push(at..at + 1),
        }
    }
    spans.into_iter().map(Span::from).collect()
}
