//! Social security numbers of the United States: three, two and four digits, in the ranges that are given out.

use super::goes_on;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// With separators, or after words that say what the digits are.
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    let said = r"(?i:(?-u:\b)ssn|(?-u:\b)social security(?: number| no\.?| #)?)[^0-9\n]{0,12}(?P<plain>[0-9]{9})";
    Regex::new(&format!(r"(?P<parted>[0-9]{{3}}[ \-][0-9]{{2}}[ \-][0-9]{{4}})|{said}"))
        .expect("a pattern that compiles")
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(caught) = FORMS.captures_at(&folded.text, at) {
        let form = caught.name("parted").or(caught.name("plain")).expect("one of the two has matched");
        let range = form.range();
        // A number that is none may hide one that begins inside of it: `1 123-45-6789` after `001`.
        at = range.start + 1;
        if given_out(form.as_str()) && alone(folded, &range) {
            at = range.end;
            found.push(range);
        }
    }
    found
}

/// Areas 000, 666 and 900 to 999, group 00 and serial 0000 are never given out; both separators are the same.
fn given_out(text: &str) -> bool {
    let separators: Vec<char> = text.chars().filter(|c| !c.is_ascii_digit()).collect();
    if separators.len() == 2 && separators[0] != separators[1] {
        return false;
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let (area, group, serial) = (&digits[..3], &digits[3..5], &digits[5..]);
    area != "000" && area != "666" && !area.starts_with('9') && group != "00" && serial != "0000"
}

/// Not a piece of a longer number, with separators or without.
fn alone(folded: &Folded, range: &Range<usize>) -> bool {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let before = folded.text[..range.start].strip_suffix(['-', '.', '/']).map(|rest| rest.chars().next_back());
    let after = folded.text[range.end..].strip_prefix(['-', '.', '/']).map(|rest| rest.chars().next());
    !goes_on(folded, range) && !before.is_some_and(digit) && !after.is_some_and(digit)
}
