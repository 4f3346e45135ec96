//! Functions that several detectors use: for the characters before and after private text, and for groups of digits.

use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The maximum number of letters between a number and other digits of the same identifier. A number next to more
/// letters is treated as a part of encoded data, whether digits follow the letters or not.
const LONGEST_WORD: usize = 32;

/// Compiles a regular expression for folded texts (texts in the form that detectors read). The letters of the
/// expression are decomposed (NFKD) first, because the letters of a folded text are decomposed.
pub(super) fn pattern(pattern: &str) -> Regex {
    Regex::new(&pattern.nfkd().collect::<String>()).expect("the fixed pattern is a valid regular expression")
}

/// Returns true if a letter or digit is directly before or after `range`. Letters of scripts without spaces between
/// words, such as Thai, do not count.
pub(super) fn goes_on(folded: &Folded, range: &Range<usize>) -> bool {
    let (before, after) = folded.around(range);
    [before, after].into_iter().flatten().any(adjoins)
}

/// Returns true if `c` is a letter, digit or `_`: a number that touches `c` is then a part of a longer word or number.
/// Returns false for letters of scripts without spaces between words, such as Thai.
pub(super) fn adjoins(c: char) -> bool {
    (c.is_alphanumeric() || c == '_') && !is_spaceless(c)
}

/// Returns whether the number at `range` is a part of an identifier: other digits touch the number, or only letters are
/// between the number and other digits. A word that touches the number (`4111111111111111USD`) does not make it an
/// identifier.
pub(super) fn is_embedded(folded: &Folded, range: &Range<usize>) -> bool {
    leads_to_digits(folded.text[..range.start].chars().rev()) || leads_to_digits(folded.text[range.end..].chars())
}

/// Returns whether a number is a part of an identifier, according to `chars`: the characters before or after the
/// number, beginning with the nearest. This is so if `chars` begin with a digit, with letters and then a digit, or with
/// more than [`LONGEST_WORD`] letters.
pub(super) fn leads_to_digits(chars: impl Iterator<Item = char>) -> bool {
    for (at, c) in chars.enumerate() {
        if c.is_numeric() || at > LONGEST_WORD {
            return true;
        }
        if is_spaceless(c) || !(c.is_alphabetic() || c == '_' || is_combining_mark(c)) {
            return false;
        }
    }
    false
}

/// Returns the consecutive letters at the end of `text`. Letters of scripts without spaces between words, such as Thai,
/// do not count.
pub(super) fn word_before(text: &str) -> &str {
    let rest = text.trim_end_matches(|c: char| c.is_alphabetic() && !is_spaceless(c));
    &text[rest.len()..]
}

/// Returns the consecutive letters at the start of `text`. Letters of scripts without spaces between words, such as
/// Thai, do not count.
pub(super) fn word_after(text: &str) -> &str {
    let rest = text.trim_start_matches(|c: char| c.is_alphabetic() && !is_spaceless(c));
    &text[..text.len() - rest.len()]
}

/// Returns whether a character is a letter of Thai, Lao, Myanmar, Khmer, Chinese, Japanese, Korean or Tangut, in
/// composed or decomposed form. In these scripts, a number that touches a letter is not a part of a word. Korean is
/// included because it has no space between a number and a suffix.
pub(super) fn is_spaceless(c: char) -> bool {
    matches!(c as u32, 0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x9fff | 0x1100..=0x11ff
        | 0xa960..=0xa97f | 0xac00..=0xd7ff | 0xf900..=0xfaff | 0x16fe0..=0x1b2ff | 0x20000..=0x3ffff)
}

/// A part of a text that consists of groups of digits and separators between them, such as `030 123-45`. `groups` are
/// the byte ranges of the groups in `text`.
pub(super) struct Run<'a> {
    pub(super) text: &'a str,
    pub(super) groups: Vec<Range<usize>>,
}

impl<'a> Run<'a> {
    /// Returns the groups of digits in the byte range `range` of a text. All other characters of the range are
    /// separators.
    pub(super) fn new(text: &'a str, range: Range<usize>) -> Self {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (at, byte) in text.as_bytes()[range.clone()].iter().enumerate() {
            let at = range.start + at;
            match groups.last_mut() {
                Some(last) if byte.is_ascii_digit() && last.end == at => last.end += 1,
                _ if byte.is_ascii_digit() => groups.push(at..at + 1),
                _ => {}
            }
        }
        Run { text, groups }
    }

    /// Returns the digits of the group with the index `group`.
    pub(super) fn digits(&self, group: usize) -> &'a str {
        &self.text[self.groups[group].clone()]
    }

    /// Returns the characters between the group of digits with the index `group` and the next group of digits.
    pub(super) fn separator(&self, group: usize) -> &'a str {
        &self.text[self.groups[group].end..self.groups[group + 1].start]
    }

    /// Returns whether the groups of digits with the indices `groups` can be one number: either at most one line break
    /// is between the groups, or `groups` are all groups of this run.
    pub(super) fn is_one_number(&self, groups: Range<usize>) -> bool {
        let breaks = (groups.start..groups.end - 1).filter(|group| self.separator(*group).contains('\n')).count();
        breaks <= 1 || groups == (0..self.groups.len())
    }
}
