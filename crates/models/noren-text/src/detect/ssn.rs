//! Social security numbers of the United States: three, two and four digits, in the ranges of numbers that are issued.

use super::around::{goes_on, is_embedded, pattern};
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The pattern of a social security number: digits with separators (`123-45-6789`), or nine digits after words that
/// announce such a number (`SSN 123456789`).
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    let separator = r"(?: ?[-._/] ?|[ \n])";
    let said = r"(?i:(?-u:\b)ssn|(?-u:\b)social security(?: number| no\.?| #)?)[^0-9\u{2029}]{0,12}(?P<plain>[0-9]{9})";
    pattern(&format!(r"(?P<parted>[0-9]{{3}}{separator}[0-9]{{2}}{separator}[0-9]{{4}})|{said}"))
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(caught) = FORMS.captures_at(&folded.text, at) {
        let (form, parted) = match (caught.name("parted"), caught.name("plain")) {
            (Some(form), _) => (form, true),
            (None, form) => (form.expect("one of the two alternatives of the pattern has matched"), false),
        };
        let range = form.range();
        // An invalid number may overlap a valid one: `1 123-45-6789` after `001`.
        at = range.start + 1;
        let touched = if parted { is_embedded(folded, &range) } else { goes_on(folded, &range) };
        if given_out(form.as_str()) && !touched && alone(folded, &range) {
            at = range.end;
            found.push(range);
        }
    }
    found
}

/// Returns whether the number is in a range that is issued. The first three digits are the area, the next two the
/// group, the last four the serial number. Areas 000, 666 and 900 to 999, group 00 and serial 0000 are never issued.
/// Both separators must be equal.
fn given_out(text: &str) -> bool {
    let mut separators = text.split(|c: char| c.is_ascii_digit()).map(str::trim).filter(|s| !s.is_empty());
    let spaced = text.contains([' ', '\n']);
    let same = match (separators.next(), separators.next()) {
        (Some(first), Some(second)) => first == second,
        (Some(_), None) => !spaced,
        _ => true,
    };
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let (area, group, serial) = (&digits[..3], &digits[3..5], &digits[5..]);
    same && area != "000" && area != "666" && !area.starts_with('9') && group != "00" && serial != "0000"
}

/// Returns whether the number at `range` is not a part of a longer number. It is a part if another digit is next to it,
/// separated by one `-`, `.` or `/`.
fn alone(folded: &Folded, range: &Range<usize>) -> bool {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let before = folded.text[..range.start].strip_suffix(['-', '.', '/']).map(|rest| rest.chars().next_back());
    let after = folded.text[range.end..].strip_prefix(['-', '.', '/']).map(|rest| rest.chars().next());
    !before.is_some_and(digit) && !after.is_some_and(digit)
}
