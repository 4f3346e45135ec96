//! [`PrivateTokens`]: the tokens that contain private text.

use crate::detect::{Finding, Kind};
use crate::tokens::Encoding;
use std::collections::BTreeMap;
use std::ops::Range;

/// The tokens of one text that contain private text. Each kind of private text has its own list of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PrivateTokens {
    len: usize,
    by_kind: BTreeMap<Kind, Vec<bool>>,
}

impl PrivateTokens {
    /// Finds the tokens of `encoding` that hold any part of `findings` in `text`.
    ///
    /// * A token is private if it holds any byte of a finding.
    /// * If several byte-level tokens share a character, and the character is private, all of these tokens are private.
    /// * Special tokens hold no text and are never private.
    /// * If a character of a finding is in no token (a tokenizer may drop or change it), the tokens on both sides are
    ///   private, because either may hold a trace of it. This does not apply to white space.
    pub fn locate(findings: &[Finding], text: &str, encoding: &Encoding) -> Self {
        let mut by_kind: BTreeMap<Kind, Vec<bool>> = BTreeMap::new();
        for finding in findings {
            let marks = by_kind.entry(finding.kind.clone()).or_insert_with(|| vec![false; encoding.len()]);
            mark(marks, &finding.range, text, encoding);
        }
        PrivateTokens { len: encoding.len(), by_kind }
    }

    /// Returns the number of all tokens of the text, private or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the text has no tokens.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of private tokens.
    pub fn count(&self) -> usize {
        (0..self.len).filter(|at| self.is_private(*at)).count()
    }

    /// Returns whether token `at` contains private text of any kind.
    pub fn is_private(&self, at: usize) -> bool {
        self.by_kind.values().any(|marks| marks[at])
    }

    /// Returns the private tokens, ascending.
    pub fn positions(&self) -> Vec<usize> {
        (0..self.len).filter(|at| self.is_private(*at)).collect()
    }

    /// Returns each kind with the ascending indices of its tokens.
    pub fn kinds(&self) -> impl Iterator<Item = (&Kind, Vec<usize>)> {
        self.by_kind.iter().map(|(kind, marks)| (kind, (0..self.len).filter(|at| marks[*at]).collect()))
    }

    /// Returns the kinds of private text in token `at`.
    pub fn kinds_at(&self, at: usize) -> impl Iterator<Item = &Kind> {
        self.by_kind.iter().filter(move |(_, marks)| marks.get(at) == Some(&true)).map(|(kind, _)| kind)
    }
}

/// Sets `marks` to true for each token that contains a part of the byte range `private`. If a character of this range,
/// other than white space, is in no token, also sets the marks of the tokens before and after it.
fn mark(marks: &mut [bool], private: &Range<usize>, text: &str, encoding: &Encoding) {
    let holds = |range: &Range<usize>| range.start < private.end && private.start < range.end;
    for (mark, range) in marks.iter_mut().zip(&encoding.ranges) {
        *mark |= holds(range);
    }
    let claimed = |at: usize| encoding.ranges.iter().any(|range| range.contains(&at));
    for (offset, c) in text[private.clone()].char_indices() {
        let at = private.start + offset;
        if c.is_whitespace() || claimed(at) {
            continue;
        }
        let of_text = |token: &usize| !encoding.special[*token];
        let tokens = (0..encoding.len()).filter(of_text);
        let before =
            tokens.clone().rfind(|token| encoding.ranges[*token].end <= at && !encoding.ranges[*token].is_empty());
        let after = tokens.clone().find(|token| encoding.ranges[*token].start > at);
        for token in before.into_iter().chain(after) {
            marks[token] = true;
        }
    }
}
