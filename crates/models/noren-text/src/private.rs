//! [`PrivateTokens`]: the tokens that contain private text.

use crate::Error;
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
    /// Returns the tokens of `text`, given in `encoding`, and marks as private those that contain a part of a finding
    /// in `findings`.
    ///
    /// * A token is private if it contains at least one byte of a finding.
    /// * If several byte-level tokens share a character, and the character is private, all of these tokens are private.
    /// * A token with an empty range inside a finding is private. Tokenizers that trim offsets give such a range to
    ///   tokens of white space.
    /// * Special tokens hold no text and are never private.
    /// * If a character of a finding is in no token (a tokenizer may drop or change the character), the tokens before
    ///   and after this character are private, because they may contain a trace of the character. White space is
    ///   excepted.
    pub fn locate(findings: &[Finding], text: &str, encoding: &Encoding) -> Self {
        let mut by_kind: BTreeMap<Kind, Vec<bool>> = BTreeMap::new();
        let ranges = Ranges::new(encoding);
        for finding in findings {
            let marks = by_kind.entry(finding.kind.clone()).or_insert_with(|| vec![false; encoding.len()]);
            ranges.mark(marks, &finding.range, text);
        }
        PrivateTokens { len: encoding.len(), by_kind }
    }

    /// Returns the tokens of a text of `len` tokens. `kinds` has pairs (kind, indices of the private tokens of this
    /// kind).
    ///
    /// ```
    /// use noren_text::{Kind, PrivateTokens};
    /// let private = PrivateTokens::at(8, [(Kind::new("name")?, vec![2, 3]), (Kind::new("email")?, vec![3, 4])])?;
    /// assert_eq!(private.positions(), [2, 3, 4]);
    /// # Ok::<(), noren_text::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Span`] for a position that is not below `len`.
    pub fn at(len: usize, kinds: impl IntoIterator<Item = (Kind, Vec<usize>)>) -> Result<Self, Error> {
        let mut by_kind: BTreeMap<Kind, Vec<bool>> = BTreeMap::new();
        for (kind, positions) in kinds {
            let marks = by_kind.entry(kind.clone()).or_insert_with(|| vec![false; len]);
            for at in positions {
                let problem = || format!("the text has {len} tokens, counted from 0: give a smaller position");
                *marks.get_mut(at).ok_or_else(|| Error::Span {
                    name: kind.to_string(),
                    start: at,
                    end: at + 1,
                    problem: problem(),
                })? = true;
            }
        }
        Ok(PrivateTokens { len, by_kind })
    }

    /// Returns the tokens from index `first` to `first + len - 1`, renumbered from 0. Tokens after the end of the text,
    /// such as generated tokens, are public.
    ///
    /// ```
    /// use noren_text::{Kind, PrivateTokens};
    /// let private = PrivateTokens::at(4, [(Kind::new("name")?, vec![2, 3])])?;
    /// let window = private.window(1, 6);
    /// assert_eq!((window.len(), window.positions()), (6, vec![1, 2]));
    /// # Ok::<(), noren_text::Error>(())
    /// ```
    pub fn window(&self, first: usize, len: usize) -> Self {
        let cut = |marks: &Vec<bool>| {
            let mut cut: Vec<bool> = marks.iter().skip(first).take(len).copied().collect();
            cut.resize(len, false);
            cut
        };
        PrivateTokens { len, by_kind: self.by_kind.iter().map(|(kind, marks)| (kind.clone(), cut(marks))).collect() }
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

    /// Returns whether the token with the index `at` contains private text of any kind.
    pub fn is_private(&self, at: usize) -> bool {
        self.by_kind.values().any(|marks| marks[at])
    }

    /// Returns the indices of the private tokens, ascending.
    pub fn positions(&self) -> Vec<usize> {
        (0..self.len).filter(|at| self.is_private(*at)).collect()
    }

    /// Returns each kind of private text with the indices of the tokens that contain it, ascending.
    pub fn kinds(&self) -> impl Iterator<Item = (&Kind, Vec<usize>)> {
        self.by_kind.iter().map(|(kind, marks)| (kind, (0..self.len).filter(|at| marks[*at]).collect()))
    }

    /// Returns the kinds of private text in the token with the index `at`.
    pub fn kinds_at(&self, at: usize) -> impl Iterator<Item = &Kind> {
        self.by_kind.iter().filter(move |(_, marks)| marks.get(at) == Some(&true)).map(|(kind, _)| kind)
    }
}

/// The byte ranges of the tokens of a text, in sorted lists for binary searches.
struct Ranges<'a> {
    encoding: &'a Encoding,
    /// The indices of the tokens with text, sorted by the start of their range of bytes.
    by_start: Vec<usize>,
    /// For each entry of `by_start`, the maximum end of the ranges of this entry and all earlier entries.
    ends: Vec<usize>,
    /// For each entry of `by_start`, the smallest token index among this entry and all later entries; special tokens
    /// are ignored. `usize::MAX` if all of these tokens are special.
    next: Vec<usize>,
    /// Pairs `(end, token)`, one for each non-special token with text, ascending by `end`. `end` is the end of the
    /// token's byte range; `token` is the largest index among the token and those of all earlier pairs.
    before: Vec<(usize, usize)>,
    /// The indices of the non-special tokens with an empty byte range.
    empty: Vec<usize>,
}

impl<'a> Ranges<'a> {
    fn new(encoding: &'a Encoding) -> Self {
        let range = |token: &usize| encoding.ranges[*token].clone();
        let mut by_start: Vec<usize> = (0..encoding.len()).filter(|token| !range(token).is_empty()).collect();
        by_start.sort_by_key(|token| (range(token).start, *token));
        let ends = running(by_start.iter().map(|token| range(token).end), usize::max);
        let of_text = |token: &usize| !encoding.special[*token];
        let mut next = running(by_start.iter().rev().map(|t| if of_text(t) { *t } else { usize::MAX }), usize::min);
        next.reverse();
        let mut by_end: Vec<usize> = by_start.iter().copied().filter(of_text).collect();
        by_end.sort_by_key(|token| (range(token).end, *token));
        let last = running(by_end.iter().copied(), usize::max);
        let before = by_end.iter().map(|token| range(token).end).zip(last).collect();
        let empty = (0..encoding.len()).filter(|token| of_text(token) && range(token).is_empty()).collect();
        Ranges { encoding, by_start, ends, next, before, empty }
    }

    /// Sets `marks` to true for each token that contains a part of the byte range `private`. If a character of this
    /// range is in no token and is not white space, the token before the character, the token after it, and tokens with
    /// an empty range between these two are also marked.
    fn mark(&self, marks: &mut [bool], private: &Range<usize>, text: &str) {
        let mut claimed = vec![false; private.len()];
        let mut entry = self.by_start.partition_point(|token| self.encoding.ranges[*token].start < private.end);
        while entry > 0 && self.ends[entry - 1] > private.start {
            entry -= 1;
            let token = self.by_start[entry];
            let range = &self.encoding.ranges[token];
            if range.end > private.start {
                marks[token] = true;
                let inside = range.start.max(private.start)..range.end.min(private.end);
                claimed[inside.start - private.start..inside.end - private.start].fill(true);
            }
        }
        for token in &self.empty {
            let at = self.encoding.ranges[*token].start;
            marks[*token] |= private.start < at && at < private.end;
        }
        for (offset, c) in text[private.clone()].char_indices() {
            if !c.is_whitespace() && !claimed[offset] {
                self.mark_around(marks, private.start + offset);
            }
        }
    }

    /// Sets `marks` to true for the tokens before and after the character at byte `at`, which is in no token, and for
    /// the tokens with an empty range between these two tokens.
    fn mark_around(&self, marks: &mut [bool], at: usize) {
        let ending = self.before.partition_point(|(end, _)| *end <= at);
        let before = ending.checked_sub(1).map(|entry| self.before[entry].1);
        let entry = self.by_start.partition_point(|token| self.encoding.ranges[*token].start <= at);
        let after = self.next.get(entry).copied().filter(|token| *token < self.encoding.len());
        for token in before.into_iter().chain(after) {
            marks[token] = true;
        }
        let first = self.empty.partition_point(|token| before.is_some_and(|before| *token < before));
        let inner = self.empty[first..].iter().take_while(|token| after.is_none_or(|after| **token < after));
        inner.for_each(|token| marks[*token] = true);
    }
}

/// Returns the running results of `combine`: entry `n` combines the values 0 to `n`. With `usize::max`, entry `n` is
/// the maximum of these values.
fn running(values: impl Iterator<Item = usize>, combine: fn(usize, usize) -> usize) -> Vec<usize> {
    let mut last: Option<usize> = None;
    values
        .map(|value| {
            let combined = last.map_or(value, |last| combine(last, value));
            last = Some(combined);
            combined
        })
        .collect()
}
