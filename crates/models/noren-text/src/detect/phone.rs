//! Telephone numbers: international numbers (`+44 20 7946 0958`), national numbers that begin with 0 (`030 1234567`),
//! North American numbers (`(555) 123-4567`), and seven digits after a word such as "phone". An extension may follow.

use super::around::{Run, adjoins, goes_on, leads_to_digits, pattern};
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static RUN: LazyLock<Regex> = LazyLock::new(|| pattern(r"[0-9]+(?:[ \n./()\-_·•]{1,3}[0-9]+)*"));
/// The pattern of an extension after a telephone number (`ext. 12`, `x12`).
static EXTENSION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:x|[ ,;]{1,2}(?i:x|ext\.?|extension|#)[ .:]{0,2})[0-9]{1,6}(?-u:\b)"));
/// The pattern of a number of seven digits, which is a telephone number only after a word that announces one: in two groups
/// (`call 555-2671`), or without separator after a noun (`phone 1234567`).
static ANNOUNCED: LazyLock<Regex> = LazyLock::new(|| {
    let noun = r"(?i:(?-u:\b)(?:tele)?(?:phone|fon)|(?-u:\b)(?:tel|mobile|handy|fax))(?i: ?(?:no|nr|number|nummer))?";
    let verb = r"(?i:(?-u:\b)(?:call|dial|text|ring)(?: me| us)?(?: at| on)?)";
    pattern(&format!(
        r"(?:{noun}[.:]{{0,2}} ?(?P<plain>[1-9][0-9]{{6}})|(?:{noun}[.:]{{0,2}}|{verb}) (?P<parted>[2-9][0-9]{{2}}[-. ][0-9]{{4}}))"
    ))
});
/// Numbers that are frequent in programs and are no telephone numbers: `0123456789`, and the limits of 32-bit integers.
const COUNTS: [&str; 5] = ["0123456789", "2147483647", "2147483648", "4294967295", "4294967296"];
/// The accepted numbers of digits of an international number, country code included: from 8, the shortest common
/// length, to the maximum of ITU-T E.164.
const INTERNATIONAL: std::ops::RangeInclusive<usize> = 8..=15;

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let announced =
        ANNOUNCED.captures_iter(&folded.text).filter_map(|caught| caught.name("plain").or(caught.name("parted")));
    let mut found: Vec<_> = announced.map(|number| number.range()).filter(|range| is_whole(folded, range)).collect();
    for run in RUN.find_iter(&folded.text) {
        let run = Number(Run::new(&folded.text, run.range()));
        // A number begins at the start of a run, after the end of the last number, or after another number. Elsewhere a
        // 0 is an ordinary digit.
        let (mut at, mut fresh) = (0, true);
        while at < run.0.groups.len() {
            let restarts = !fresh && run.restarts(at);
            let number = run.number(folded, at, fresh || restarts);
            match number.filter(|end| !(restarts && run.is_column(at, *end))) {
                Some(end) => {
                    let number = run.0.groups[end - 1].end;
                    let extension = EXTENSION.find(&folded.text[number..]).map_or(0, |found| found.len());
                    found.push(run.with_sign(at)..number + extension);
                    (at, fresh) = (end, true);
                }
                None => (at, fresh) = (at + 1, false),
            }
        }
    }
    found
}

/// Returns whether no letter, digit or other group of digits touches the number at `range`.
fn is_whole(folded: &Folded, range: &Range<usize>) -> bool {
    let more = folded.text[range.end..]
        .trim_start_matches(['-', '.', ' ', '/', ',', '('])
        .starts_with(|c: char| c.is_ascii_digit());
    !goes_on(folded, range) && !more
}

/// Groups of digits with separators between them, which may contain several telephone numbers.
struct Number<'a>(Run<'a>);

impl Number<'_> {
    /// Returns the index after the last group of digits of the telephone number that begins with group `at`; `None` if
    /// no number begins there. `fresh` is true if a national number, which begins with 0, may begin at this group.
    fn number(&self, folded: &Folded, at: usize, fresh: bool) -> Option<usize> {
        let signed = self.0.text[..self.0.groups[at].start].trim_end_matches('(').ends_with('+');
        let first = self.0.digits(at);
        let end = match signed {
            true => self.international(at, 0)?,
            _ if fresh && first.starts_with("00") => self.abroad(at)?,
            _ if fresh && first.starts_with('0') => self.national(at)?,
            _ => self.north_american(at)?,
        };
        (self.0.is_one_number(at..end) && self.alone(folded, at, end)).then_some(end)
    }

    /// Returns whether the groups of digits `at..end` are entries in a column of a table and not one telephone number:
    /// a line break precedes the first group, and another line break is between the groups.
    fn is_column(&self, at: usize, end: usize) -> bool {
        let broken = |group: usize| self.0.separator(group).contains('\n');
        broken(at - 1) && (at..end - 1).any(broken)
    }

    /// Returns whether a new telephone number may begin at the group of digits `at`: the group is the first one, or it
    /// starts with 0 and follows another number and white space. Returns false inside a date or a sequence of groups of
    /// equal length.
    fn restarts(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return true };
        let len = |group: usize| self.0.groups.get(group).map_or(0, Range::len);
        let follows = |group: usize| if len(group + 1) > 0 { self.0.separator(group) } else { "" };
        let spaced = follows(before).contains([' ', '\n']) && !follows(before).contains(['-', '/', '(', ')', '_']);
        let named = self.0.text[..self.0.groups[before].start].ends_with(char::is_alphabetic);
        let in_step = len(before) == len(at) || named && len(at) == 4;
        let row = follows(before) == follows(at) && in_step && len(at) == len(at + 1);
        let date =
            len(before) <= 2 && len(at) == 2 && len(at + 1) == 4 && self.0.digits(at + 1).starts_with(['1', '2']);
        self.0.digits(at).starts_with('0') && spaced && !row && !(date && follows(before) == follows(at))
    }

    /// Selects consecutive groups of digits, beginning with group `at`, that together may be one telephone number of at
    /// most `most` digits. Returns `(index after the last group, number of digits)`.
    fn take(&self, at: usize, most: usize) -> (usize, usize) {
        let count = |end: usize| self.0.groups[at..end].iter().map(Range::len).sum::<usize>();
        let mut end = at;
        while end < self.0.groups.len() && count(end + 1) <= most {
            if count(end) >= *INTERNATIONAL.start() && self.begins(end) {
                break;
            }
            end += 1;
        }
        while end > at + 1 && !self.0.is_one_number(at..end) {
            end -= 1;
        }
        (end, count(end))
    }

    /// Returns whether the group of digits with the index `group` follows white space and begins another telephone
    /// number: with a 0, or with an area code in parentheses.
    fn begins(&self, group: usize) -> bool {
        let separator = self.0.separator(group - 1);
        let lens: Vec<usize> = self.0.groups[group..].iter().take(3).map(Range::len).collect();
        let town = self.0.digits(group).starts_with('0') && lens.len() > 1 && lens[0] >= 2 && lens[0] + lens[1] >= 9;
        separator.starts_with([' ', '\n']) && (town || separator.ends_with('(') && lens == [3, 3, 4])
    }

    /// Returns the index after the last group of digits of an international number with the prefix 00; `None` if no
    /// such number begins with group `at`. A third 0 is not accepted, because no country code begins with 0.
    fn abroad(&self, at: usize) -> Option<usize> {
        let code = match &self.0.digits(at)[2..] {
            "" if at + 1 < self.0.groups.len() => self.0.digits(at + 1),
            code => code,
        };
        if code.is_empty() || code.starts_with('0') { None } else { self.international(at, 2) }
    }

    /// Returns the index after the last group of digits of an international number; `None` if no international number
    /// begins with group `at`. `prefix` is the number of digits of the group before the country code: 2 for the prefix
    /// `00`, 0 for a number with `+`.
    fn international(&self, at: usize, prefix: usize) -> Option<usize> {
        if self.0.digits(at)[prefix..].starts_with('1') {
            let (end, digits) = self.take(at, prefix + 11);
            if digits == prefix + 11 {
                return Some(end);
            }
        }
        let (end, digits) = self.take(at, prefix + INTERNATIONAL.end());
        (digits >= prefix + INTERNATIONAL.start()).then_some(end)
    }

    /// Returns the index after the last group of digits of a national number, which begins with 0; `None` if no such
    /// number begins with group `at`. Dates, decimals and years are not accepted.
    fn national(&self, at: usize) -> Option<usize> {
        let (end, digits) = self.take(at, 12);
        let lens: Vec<usize> = self.0.groups[at..end].iter().map(Range::len).collect();
        let date = matches!(lens[..], [2, 2, 4, ..] | [2, 2, 2]) && self.0.separator(at) != " ";
        let parted = end - at > 1 && lens[0] >= 2 && digits >= 9;
        let plain = end - at == 1 && (10..=11).contains(&digits);
        let town = !self.0.digits(at)[1..].starts_with('0') && !COUNTS.contains(&self.0.digits(at));
        let postal = lens == [5, 4] && self.0.separator(at) == "-" && self.is_after_state(at);
        (!date && !postal && town && (parted || plain)).then_some(end)
    }

    /// Returns whether two capital letters precede the group of digits `at`, as the abbreviation of a state precedes a
    /// postal code (`MA 02110-1301`).
    fn is_after_state(&self, at: usize) -> bool {
        let before = self.0.text[..self.0.groups[at].start].trim_end_matches([' ', '\n', ',']);
        let state = before.len().checked_sub(2).and_then(|start| before.get(start..));
        state.is_some_and(|state| state.bytes().all(|b| b.is_ascii_uppercase()))
            && !before[..before.len() - 2].ends_with(char::is_alphanumeric)
    }

    /// Returns the index after the last group of digits of a North American number; `None` if no such number begins
    /// with group `at`. The number has either groups of three, three and four digits, with or without a group `1`
    /// before them, or one group of ten digits, with or without a leading 1. The digits of one group must be valid in
    /// the numbering plan.
    fn north_american(&self, at: usize) -> Option<usize> {
        let first = at + usize::from(self.0.digits(at) == "1");
        let lens: Vec<usize> = self.0.groups.iter().skip(first).take(3).map(Range::len).collect();
        if let [3, 3, 4] = lens[..] {
            let (left, right) = (self.0.separator(first), self.0.separator(first + 1));
            // Within a longer number with the same separators it is something else.
            let part = |other: Option<&str>| right != " " && other == Some(right);
            let before = at.checked_sub(1).map(|group| self.0.separator(group));
            let after = (first + 3 < self.0.groups.len()).then(|| self.0.separator(first + 2));
            let fits = !left.contains('/') && !right.contains('/') && !part(before) && !part(after);
            return (fits && matches!(self.0.digits(first).as_bytes()[0], b'2'..=b'9')).then_some(first + 3);
        }
        let digits = match self.0.digits(at) {
            eleven if eleven.len() == 11 => eleven.strip_prefix('1')?,
            other => other,
        };
        let leads = |at: usize| matches!(digits.as_bytes()[at], b'2'..=b'9');
        (digits.len() == 10 && leads(0) && leads(3) && !COUNTS.contains(&digits)).then_some(at + 1)
    }

    /// Returns whether the groups of digits `at..end` are a complete telephone number and not a part of an identifier.
    /// No letter may touch a number without separators; an extension (`x12`) may follow a number with separators.
    fn alone(&self, folded: &Folded, at: usize, end: usize) -> bool {
        let range = self.with_sign(at)..self.0.groups[end - 1].end;
        let (head, tail) = (&self.0.text[..range.start], &self.0.text[range.end..]);
        let plain = end - at == 1 && range.start == self.0.groups[at].start;
        if !plain {
            let extended = tail.starts_with('x') || tail.starts_with("ext");
            let within = leads_to_digits(head.chars().rev()) || !extended && leads_to_digits(tail.chars());
            return !within;
        }
        let piece = |rest: Option<&str>, last: fn(&str) -> Option<char>| rest.and_then(last).is_some_and(adjoins);
        let pieces = piece(head.strip_suffix(['-', '.', '/']), |rest| rest.chars().next_back())
            || piece(tail.strip_prefix(['-', '.', '/']), |rest| rest.chars().next().filter(char::is_ascii_digit));
        !(goes_on(folded, &range) || pieces)
    }

    /// Returns the byte index at which the telephone number begins: that of its first group of digits, `at`, or of a
    /// `+` or parenthesis before this group.
    fn with_sign(&self, at: usize) -> usize {
        self.0.text[..self.0.groups[at].start].trim_end_matches(['(', '+']).len()
    }
}
