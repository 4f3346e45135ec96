//! [`Folded`]: a text in the form that detectors read, and the way back to the bytes it came from.
//!
//! People write the same secret in many ways: with full-width or Arabic digits, dashes of several lengths, spaces that do not
//! break, characters of no width between. Folding brings these to one form, so that a detector is one plain pattern.

use std::ops::Range;
use unicode_normalization::char::decompose_compatible;

/// A folded text; byte `i` of it came from the bytes `start[i]..end[i]` of the text.
pub(crate) struct Folded {
    pub(crate) text: String,
    start: Vec<usize>,
    end: Vec<usize>,
}

impl Folded {
    /// Compatibility forms decomposed (full-width digits and letters among them), decimal digits of common scripts as ASCII,
    /// dashes and spaces of all kinds as `-` and ` `, characters of no width dropped.
    pub(crate) fn new(text: &str) -> Self {
        Self::with(text, |c, out| out(c))
    }

    /// The same in lower case, with each run of white space as one space: for words, whose case and line breaks do not matter.
    pub(crate) fn words(text: &str) -> Self {
        let mut folded = Self::with(text, |c, out| match c.is_whitespace() {
            true => out(' '),
            false => c.to_lowercase().for_each(out),
        });
        folded.collapse_spaces();
        folded
    }

    fn with(text: &str, each: impl Fn(char, &mut dyn FnMut(char))) -> Self {
        let mut folded = Folded { text: String::with_capacity(text.len()), start: Vec::new(), end: Vec::new() };
        for (at, c) in text.char_indices() {
            let end = at + c.len_utf8();
            decompose_compatible(c, |c| {
                if let Some(c) = plain(c) {
                    each(c, &mut |c| folded.push(c, at..end));
                }
            });
        }
        folded
    }

    fn push(&mut self, c: char, from: Range<usize>) {
        self.text.push(c);
        self.start.resize(self.text.len(), from.start);
        self.end.resize(self.text.len(), from.end);
    }

    fn collapse_spaces(&mut self) {
        let mut out = Folded { text: String::with_capacity(self.text.len()), start: Vec::new(), end: Vec::new() };
        for (at, c) in self.text.char_indices() {
            match c == ' ' && out.text.ends_with(' ') {
                true => *out.end.last_mut().expect("a space is there") = self.end[at],
                false => out.push(c, self.start[at]..self.end[at]),
            }
        }
        *self = out;
    }

    /// The bytes of the text that `range` of the folded text came from, which is not empty.
    pub(crate) fn origin(&self, range: Range<usize>) -> Range<usize> {
        self.start[range.start]..self.end[range.end - 1]
    }

    /// The characters before and after `range`.
    pub(crate) fn around(&self, range: &Range<usize>) -> (Option<char>, Option<char>) {
        (self.text[..range.start].chars().next_back(), self.text[range.end..].chars().next())
    }
}

/// The one form of a character; `None` for those of no width.
fn plain(c: char) -> Option<char> {
    Some(match c {
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => {
            return None;
        }
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' => '-',
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        _ => digit(c).unwrap_or(c),
    })
}

/// The ASCII digit of a decimal digit of another script. Full-width and mathematical ones are decomposed before.
fn digit(c: char) -> Option<char> {
    const ZEROS: [u32; 12] = [
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xe50, // Arabic to Thai
    ];
    let zero = ZEROS.into_iter().find(|zero| (*zero..zero + 10).contains(&(c as u32)))?;
    char::from_digit(c as u32 - zero, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_same_are_one() {
        for (text, folded) in [
            ("４１１１ ", "4111 "),
            ("٤۴४", "444"),
            ("a\u{200b}b\u{ad}c", "abc"),
            ("1\u{2011}2\u{a0}3\u{2212}4", "1-2 3-4"),
            ("ｊａｎｅ＠ｘ．ｏｒｇ", "jane@x.org"),
            ("é", "e\u{301}"),
        ] {
            assert_eq!(Folded::new(text).text, folded, "{text}");
        }
        assert_eq!(Folded::words("Jane \n\u{a0} DOE").text, "jane doe");
    }

    #[test]
    fn ranges_lead_back() {
        let text = "x４\u{200b}１ é";
        let folded = Folded::new(text);
        assert_eq!(&text[folded.origin(1..3)], "４\u{200b}１");
        assert_eq!(&text[folded.origin(4..5)], "é"); // a part of a character is the character
        let text = "a  \n b";
        assert_eq!(Folded::words(text).origin(1..2), 1..5);
    }
}
