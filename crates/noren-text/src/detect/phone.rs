//! Telephone numbers: international (`+44 20 7946 0958`), with a national 0 (`030 1234567`) and of the North American plan
//! (`(555) 123-4567`); with an extension, where there is one.

use super::adjoins;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static RUN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[0-9]+(?:[ ./()\-]{1,3}[0-9]+)*").expect("a pattern that compiles"));
static GROUP: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[0-9]+").expect("a pattern that compiles"));
/// What is dialled after the number has answered.
static EXTENSION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?:x|[ ,;]{1,2}(?i:x|ext\.?|extension|#)[ .:]{0,2})[0-9]{1,6}(?-u:\b)")
        .expect("a pattern that compiles")
});
/// Digits of a number with its country code (ITU-T E.164); the shortest that people write have eight.
const INTERNATIONAL: std::ops::RangeInclusive<usize> = 8..=15;

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for run in RUN.find_iter(&folded.text) {
        let groups = GROUP.find_iter(run.as_str()).map(|g| run.start() + g.start()..run.start() + g.end()).collect();
        let run = Run { text: &folded.text, groups };
        // A number begins where a run does or the last number has ended: within a run a 0 is a digit like any other.
        let (mut at, mut fresh) = (0, true);
        while at < run.groups.len() {
            match run.number(at, fresh) {
                Some(end) => {
                    let number = run.groups[end - 1].end;
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

/// Groups of digits with separators between.
struct Run<'a> {
    text: &'a str,
    groups: Vec<Range<usize>>,
}

impl Run<'_> {
    /// The group after the last one of the number that begins with group `at`.
    fn number(&self, at: usize, fresh: bool) -> Option<usize> {
        let signed = self.text[..self.groups[at].start].trim_end_matches('(').ends_with('+');
        let first = self.digits(at);
        let end = match signed {
            true => self.international(at, 0)?,
            _ if fresh && first.starts_with("00") => self.international(at, 2)?,
            _ if fresh && first.starts_with('0') => self.national(at)?,
            _ => self.north_american(at)?,
        };
        self.alone(at, end).then_some(end)
    }

    fn digits(&self, group: usize) -> &str {
        &self.text[self.groups[group].clone()]
    }

    /// What stands between a group and the next.
    fn separator(&self, group: usize) -> &str {
        &self.text[self.groups[group].end..self.groups[group + 1].start]
    }

    /// As many groups from `at` as hold at most `most` digits, and these digits.
    fn take(&self, at: usize, most: usize) -> (usize, usize) {
        let mut digits = 0;
        let mut end = at;
        while end < self.groups.len() && digits + self.groups[end].len() <= most {
            digits += self.groups[end].len();
            end += 1;
        }
        (end, digits)
    }

    /// With the country's code, after `prefix` digits that dial abroad.
    fn international(&self, at: usize, prefix: usize) -> Option<usize> {
        if self.digits(at)[prefix..].starts_with('1') {
            let (end, digits) = self.take(at, prefix + 11);
            if digits == prefix + 11 {
                return Some(end);
            }
        }
        let (end, digits) = self.take(at, prefix + INTERNATIONAL.end());
        (digits >= prefix + INTERNATIONAL.start()).then_some(end)
    }

    /// With the 0 that dials out of town. Days, decimals and years are none.
    fn national(&self, at: usize) -> Option<usize> {
        let (end, digits) = self.take(at, 12);
        let lens: Vec<usize> = self.groups[at..end].iter().map(|g| g.len()).collect();
        let date = matches!(lens[..], [2, 2, 4, ..] | [2, 2, 2]) && self.separator(at) != " ";
        let parted = end - at > 1 && lens[0] >= 2 && digits >= 9;
        let plain = end - at == 1 && (10..=11).contains(&digits);
        (!date && (parted || plain)).then_some(end)
    }

    /// Three, three and four digits, with a 1 before or without. Without separators the ranges of the plan tell it from other
    /// numbers.
    fn north_american(&self, at: usize) -> Option<usize> {
        let first = at + usize::from(self.digits(at) == "1");
        let lens: Vec<usize> = self.groups.iter().skip(first).take(3).map(|g| g.len()).collect();
        if let [3, 3, 4] = lens[..] {
            let (left, right) = (self.separator(first), self.separator(first + 1));
            // As a piece of a longer number with the same separators it is something else.
            let part = |other: Option<&str>| right != " " && other == Some(right);
            let before = at.checked_sub(1).map(|group| self.separator(group));
            let after = (first + 3 < self.groups.len()).then(|| self.separator(first + 2));
            let fits = !left.contains('/') && !right.contains('/') && !part(before) && !part(after);
            return (fits && matches!(self.digits(first).as_bytes()[0], b'2'..=b'9')).then_some(first + 3);
        }
        let digits = match self.digits(at) {
            eleven if eleven.len() == 11 => eleven.strip_prefix('1')?,
            other => other,
        };
        let leads = |at: usize| matches!(digits.as_bytes()[at], b'2'..=b'9');
        (digits.len() == 10 && leads(0) && leads(3)).then_some(at + 1)
    }

    /// No letters go on before or after; an extension may follow. Without separators it is no piece of an identifier either.
    fn alone(&self, at: usize, end: usize) -> bool {
        let (head, tail) = (&self.text[..self.with_sign(at)], &self.text[self.groups[end - 1].end..]);
        let plain = end - at == 1 && self.with_sign(at) == self.groups[at].start;
        let extension = !plain && (tail.starts_with('x') || tail.starts_with("ext"));
        let before = head.chars().next_back().is_some_and(adjoins);
        let after = tail.chars().next().is_some_and(adjoins) && !extension;
        let piece = |rest: Option<&str>, last: fn(&str) -> Option<char>| rest.and_then(last).is_some_and(adjoins);
        let pieces = piece(head.strip_suffix(['-', '.', '/']), |rest| rest.chars().next_back())
            || piece(tail.strip_prefix(['-', '.', '/']), |rest| rest.chars().next().filter(char::is_ascii_digit));
        !(before || after || plain && pieces)
    }

    /// Where the number begins with its `+` or parenthesis.
    fn with_sign(&self, at: usize) -> usize {
        self.text[..self.groups[at].start].trim_end_matches(['(', '+']).len()
    }
}
