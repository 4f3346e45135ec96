//! [`Folded`]: a text in the form that detectors read, and for each byte of this form the range of bytes of the
//! original text.
//!
//! The same secret can be written in many forms: with digits of different scripts, dashes of different lengths, tabs,
//! line breaks, or characters without width. Folding converts all of these to one form, with the character properties
//! of Unicode, so that a detector needs only one simple pattern.

use icu_casemap::{CaseMapper, CaseMapperBorrowed};
use icu_properties::props::{Dash, DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;
use unicode_normalization::char::{canonical_combining_class, decompose_compatible, is_combining_mark};

/// The character that replaces consecutive white space with two or more line breaks in a folded text (a text in the
/// form that detectors read).
pub(crate) const PARAGRAPH: char = '\u{2029}';

/// The treatment of characters without width, such as the zero-width space (Unicode's `Default_Ignorable_Code_Point`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Invisible {
    /// Characters without width are ignored, so their neighbours become adjacent.
    Joins,
    /// Characters without width are read as a space, so they separate their neighbours.
    Parts,
}

/// Returns whether a text has characters without width, such as the zero-width space.
pub(crate) fn has_invisible(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(is_invisible)
}

fn is_invisible(c: char) -> bool {
    CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
}

/// A folded text: a text in the one form that detectors read. Byte `i` of the folded text came from the bytes
/// `start[i]..end[i]` of the original text.
pub(crate) struct Folded {
    pub(crate) text: String,
    start: Vec<usize>,
    end: Vec<usize>,
}

impl Folded {
    /// Returns the folded form of a text, in which patterns are searched:
    ///
    /// * Compatibility forms are decomposed and marks are sorted (NFKD). Marks on characters other than letters are removed.
    /// * Decimal digits (`Nd`) become ASCII digits, dashes (`Dash`, `Pd`) become `-`.
    /// * A run of white space and control characters becomes one character: a space if it has no line break, a line
    ///   feed if it has one, and [`PARAGRAPH`] if it has more.
    /// * Characters without width are read as `invisible` specifies.
    pub(crate) fn new(text: &str, invisible: Invisible) -> Self {
        Folder::new(text.len(), None).fold(text, invisible)
    }

    /// Returns the folded form of a text, in which words are searched: the form of [`new`](Self::new) with full case
    /// folding, and with one space in place of consecutive white space. Removes the accents of Greek letters, because
    /// Greek upper case has no accents. Removes the combining dot of `i`, which remains when the Turkish `İ` becomes
    /// lower case.
    pub(crate) fn words(text: &str, invisible: Invisible) -> Self {
        Folder::new(text.len(), Some(CaseMapper::new())).fold(text, invisible)
    }

    fn push(&mut self, c: char, from: Range<usize>) {
        self.text.push(c);
        self.start.resize(self.text.len(), from.start);
        self.end.resize(self.text.len(), from.end);
    }

    /// Returns the bytes of the original text from which the byte range `range` of the folded text (the form that
    /// detectors read) came. The returned range is never empty.
    pub(crate) fn origin(&self, range: Range<usize>) -> Range<usize> {
        self.start[range.start]..self.end[range.end - 1]
    }

    /// Returns the characters before and after `range`.
    pub(crate) fn around(&self, range: &Range<usize>) -> (Option<char>, Option<char>) {
        (self.text[..range.start].chars().next_back(), self.text[range.end..].chars().next())
    }
}

/// A builder of [`Folded`]: the part of the folded text (the form that detectors read) that was already written, and
/// the combining marks and white space that are still to be written.
struct Folder {
    out: Folded,
    /// The conversion of letters to one case, if the text is prepared for the search of words; `None` if letters keep
    /// their case.
    cases: Option<CaseMapperBorrowed<'static>>,
    /// Combining marks of the last character of the folded text, not yet sorted, each with its bytes in the original
    /// text.
    marks: Vec<(char, Range<usize>)>,
    /// White space after the last character of the folded text, as `(number of line breaks, bytes of the original
    /// text)`; `None` if there is no white space.
    blank: Option<(u32, Range<usize>)>,
}

impl Folder {
    fn new(len: usize, cases: Option<CaseMapperBorrowed<'static>>) -> Self {
        let out = Folded { text: String::with_capacity(len), start: Vec::with_capacity(len), end: Vec::new() };
        Folder { out, cases, marks: Vec::new(), blank: None }
    }

    fn fold(mut self, text: &str, invisible: Invisible) -> Folded {
        let mut last = None;
        for (at, c) in text.char_indices() {
            let from = at..at + c.len_utf8();
            let unseen = is_invisible(c);
            if c.is_whitespace() || c.is_control() {
                let breaks = u32::from(is_break(c) && !(c == '\n' && last == Some('\r')));
                self.blank(if c == PARAGRAPH { 2 } else { breaks }, from);
            } else if unseen {
                if invisible == Invisible::Parts {
                    self.blank(0, from);
                }
            } else {
                decompose_compatible(c, |c| self.add(c, &from));
            }
            // A character without width does not split a line break of two characters.
            last = if unseen { last } else { Some(c) };
        }
        self.flush();
        self.out
    }

    /// Adds `c`, one character of the decomposition of an original character. `from` is the range of bytes of the
    /// original character.
    fn add(&mut self, c: char, from: &Range<usize>) {
        if is_invisible(c) {
            return;
        }
        if c.is_whitespace() {
            return self.blank(0, from.clone());
        }
        let c = self.plain(c);
        match self.cases {
            Some(cases) if !c.is_ascii() => {
                let mut bytes = [0; 4];
                let small = cases.fold_string(c.encode_utf8(&mut bytes)).into_owned();
                for c in small.chars() {
                    decompose_compatible(c, |c| self.put(if c == 'ı' { 'i' } else { c }, from));
                }
            }
            Some(_) => self.put(c.to_ascii_lowercase(), from),
            None => self.put(c, from),
        }
    }

    fn put(&mut self, c: char, from: &Range<usize>) {
        if is_combining_mark(c) {
            // A mark after white space belongs to no character.
            if self.blank.is_none() {
                self.marks.push((c, from.clone()));
            }
            return;
        }
        self.flush();
        self.out.push(c, from.clone());
    }

    fn blank(&mut self, breaks: u32, from: Range<usize>) {
        self.flush_marks();
        match &mut self.blank {
            Some((all, range)) => {
                *all += breaks;
                range.end = from.end;
            }
            None => self.blank = Some((breaks, from)),
        }
    }

    fn flush(&mut self) {
        self.flush_marks();
        if let Some((breaks, from)) = self.blank.take() {
            let c = match breaks {
                1 if self.cases.is_none() => '\n',
                2.. if self.cases.is_none() => PARAGRAPH,
                _ => ' ',
            };
            self.out.push(c, from);
        }
    }

    /// Writes the stored combining marks after the last character, in the canonical order of Unicode. As its origin,
    /// each mark gets the range of original bytes from the first of these marks to the last. Marks on characters other
    /// than letters are removed.
    fn flush_marks(&mut self) {
        let (Some((_, first)), Some((_, last))) = (self.marks.first(), self.marks.last()) else { return };
        let from = first.start..last.end;
        let base = self.out.text.chars().next_back();
        if base.is_some_and(|base| base.is_alphabetic() || is_combining_mark(base)) {
            let mut marks = std::mem::take(&mut self.marks);
            sort_marks(&mut marks);
            let dropped = |c: &char| self.cases.is_some() && base.is_some_and(|base| is_dropped_in_words(base, *c));
            let kept: Vec<char> = marks.into_iter().map(|(c, _)| c).filter(|c| !dropped(c)).collect();
            kept.into_iter().for_each(|c| self.out.push(c, from.clone()));
        } else if let Some(base) = base {
            // A digit with a mark becomes the digit.
            let len = self.out.end.len();
            self.out.end[len - base.len_utf8()..].fill(from.end);
        }
        self.marks.clear();
    }

    /// Returns the ASCII form of a digit or a dash, and other characters unchanged.
    fn plain(&self, c: char) -> char {
        if c.is_ascii() {
            return c;
        }
        // The mark of a long vowel is a dash between digits.
        let after_digit = || self.blank.is_none() && self.out.text.ends_with(|c: char| c.is_ascii_digit());
        if CodePointSetData::new::<Dash>().contains(c)
            || CodePointMapData::<GeneralCategory>::new().get(c) == GeneralCategory::DashPunctuation
            || c == 'ー' && after_digit()
        {
            return '-';
        }
        digit(c).unwrap_or(c)
    }
}

/// Sorts combining marks by their canonical combining class, as Unicode requires. Marks of class 0 stay where they are,
/// and no other mark moves past them.
fn sort_marks(marks: &mut [(char, Range<usize>)]) {
    for run in marks.split_mut(|(c, _)| canonical_combining_class(*c) == 0) {
        run.sort_by_key(|(c, _)| canonical_combining_class(*c));
    }
}

/// Returns whether `mark` on the letter `base` is removed before words are searched. This is so if the same word in the
/// other case may lack the mark.
fn is_dropped_in_words(base: char, mark: char) -> bool {
    match mark {
        '\u{307}' => base == 'i',
        '\u{300}' | '\u{301}' | '\u{313}' | '\u{314}' | '\u{342}' => ('\u{370}'..='\u{3ff}').contains(&base),
        _ => false,
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | PARAGRAPH)
}

/// Returns the ASCII digit for a decimal digit of any script, such as `3` for the Arabic `٣`. In Unicode, the ten
/// digits of a script are consecutive characters, beginning with zero.
fn digit(c: char) -> Option<char> {
    static RUNS: LazyLock<Vec<RangeInclusive<u32>>> = LazyLock::new(|| {
        CodePointMapData::<GeneralCategory>::new().iter_ranges_for_value(GeneralCategory::DecimalNumber).collect()
    });
    let c = u32::from(c);
    let run = &RUNS[RUNS.partition_point(|run| *run.end() < c)..];
    let run = run.first().filter(|run| run.contains(&c))?;
    char::from_digit((c - run.start()) % 10, 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_normalization::UnicodeNormalization;

    fn folded(text: &str) -> String {
        Folded::new(text, Invisible::Joins).text
    }

    #[test]
    fn forms_of_the_same_are_one() {
        for (text, expected) in [
            ("４１１１ ", "4111 "),
            ("٤۴४", "444"),
            ("a\u{200b}b\u{ad}c", "abc"),
            ("1\u{2011}2\u{a0}3\u{2212}4", "1-2 3-4"),
            ("ｊａｎｅ＠ｘ．ｏｒｇ", "jane@x.org"),
            ("é", "e\u{301}"),
            ("1\t2  3\r\n4\n \n5\u{2029}6\u{0}7", "1 2 3\n4\u{2029}5\u{2029}6 7"),
            ("4\u{fe0f}\u{20e3}1\u{336}", "41"),
            ("03ー12 パー", "03-12 ハ\u{309a}ー"),
            ("q\u{307}\u{323}", "q\u{323}\u{307}"),
        ] {
            assert_eq!(folded(text), expected, "{text:?}");
        }
        assert_eq!(Folded::new("1\u{200b}2", Invisible::Parts).text, "1 2");
    }

    #[test]
    fn every_digit_is_its_value_and_every_invisible_character_is_none() {
        let mut counts = [0; 2];
        for c in (0..=0x10ffff).filter_map(char::from_u32) {
            let text = format!("1{c}2");
            if CodePointMapData::<GeneralCategory>::new().get(c) == GeneralCategory::DecimalNumber {
                counts[0] += 1;
                let inner = folded(&text);
                assert!(inner.len() == 3 && inner.bytes().all(|b| b.is_ascii_digit()), "{:x}", u32::from(c));
            }
            if is_invisible(c) {
                counts[1] += 1;
                assert_eq!(folded(&text), "12", "{:x}", u32::from(c));
            }
        }
        assert!(counts[0] >= 760 && counts[1] >= 4000, "{counts:?}");
        for zero in "0٠߀०০੦૦୦௦౦೦൦෦๐໐༠၀႐០᠐᥆᧐᪀᪐᭐᮰᱀᱐꘠꣐꤀꧐꧰꩐꯰０".chars()
        {
            let digits: String = (0..10).filter_map(|i| char::from_u32(u32::from(zero) + i)).collect();
            assert_eq!(folded(&digits), "0123456789", "{zero}");
        }
    }

    #[test]
    fn words_are_equal_in_all_cases() {
        let words = |text: &str| Folded::words(text, Invisible::Joins).text;
        assert_eq!(words("Jane \n\u{a0} DOE"), "jane doe");
        for (a, b) in [
            ("Straße", "STRASSE"),
            ("STRAẞE", "strasse"),
            ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
            ("Οδυσσέας", "ΟΔΥΣΣΕΑΣ"),
            ("İstanbul", "istanbul"),
            ("Diyarbakır", "DIYARBAKIR"),
            ("ŉgabe", "ʼNgabe"),
            ("ﬁn", "FIN"),
            ("Ǆamija", "ǆamija"),
            ("Ꭰ", "ꭰ"),
            ("ﬃ", "FFI"),
            ("q\u{307}\u{323}", "Q\u{323}\u{307}"),
        ] {
            assert_eq!(words(a), words(b), "{a} {b}");
        }
        // Letters of all scripts: both cases are the same word.
        for c in (0..=0x10ffff).filter_map(char::from_u32).filter(|c| c.is_alphabetic()) {
            let forms = [c.to_string(), c.to_uppercase().collect(), c.to_lowercase().collect(), c.nfc().collect()];
            for form in &forms[1..] {
                assert_eq!(words(&forms[0]), words(form), "{c} {:x}", u32::from(c));
            }
        }
    }

    #[test]
    fn ranges_lead_back() {
        let text = "x４\u{200b}１ é";
        let folded = Folded::new(text, Invisible::Joins);
        assert_eq!(&text[folded.origin(1..3)], "４\u{200b}１");
        assert_eq!(&text[folded.origin(4..5)], "é"); // a part of a character stands for the whole character
        let text = "a  \n b";
        assert_eq!(Folded::words(text, Invisible::Joins).origin(1..2), 1..5);
        let text = "4\u{fe0f}\u{20e3}!";
        assert_eq!(Folded::new(text, Invisible::Joins).origin(0..1), 0..text.len() - 1);
    }
}
