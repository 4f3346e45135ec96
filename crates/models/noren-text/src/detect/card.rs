//! Payment cards: 12 to 19 digits in the ranges of the networks, with the check digit of Luhn (ISO/IEC 7812-1).

use super::around::{Run, is_embedded, pattern};
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The pattern of groups of digits with a separator between two groups, such as `4111 1111-1111/1111`. A space may be
/// on each side of the separator.
static RUN: LazyLock<Regex> = LazyLock::new(|| pattern(r"[0-9]+(?:(?:[ \n]?[-._/·•|]{1,2}[ \n]?|[ \n])[0-9]+)*"));
const LONGEST: usize = 19;
/// The minimum number of digits in each group of a card number that has other groups of digits directly before or after
/// it.
const SHORT_GROUP: usize = 3;

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for run in RUN.find_iter(&folded.text) {
        let run = Run::new(&folded.text, run.range());
        let mut at = 0;
        while at < run.groups.len() {
            match longest(folded, &run, at) {
                Some(end) => {
                    found.push(run.groups[at].start..run.groups[end - 1].end);
                    at = end;
                }
                None => at += 1,
            }
        }
    }
    found
}

/// Returns the index after the last group of digits of the longest card number that begins with group `at` of `run`;
/// `None` if no card number begins there. Other groups, such as a date or an amount, may follow.
fn longest(folded: &Folded, run: &Run<'_>, at: usize) -> Option<usize> {
    let mut digits = Vec::with_capacity(LONGEST);
    let mut best = None;
    for (last, group) in run.groups.iter().enumerate().skip(at) {
        if digits.len() + group.len() > LONGEST {
            break;
        }
        digits.extend(run.digits(last).bytes().map(|b| b - b'0'));
        let range = run.groups[at].start..group.end;
        let is_card = in_network(&digits)
            && luhn(&digits)
            && is_written_so(run, at..last + 1)
            && !is_embedded(folded, &range)
            && !is_fraction(folded, run, at..last + 1);
        if is_card {
            best = Some(last + 1);
        }
    }
    best
}

/// Returns whether the groups of digits `groups` of `run` have lengths that are usual for a card number. Each group
/// must have 3 digits or more; the last group may be shorter if all others have 4 digits. If `groups` is a single
/// group, or all groups of `run`, any lengths are accepted. At most one line break may be between the groups, unless
/// `groups` are all groups of `run`.
fn is_written_so(run: &Run<'_>, groups: Range<usize>) -> bool {
    let lens: Vec<usize> = run.groups[groups.clone()].iter().map(Range::len).collect();
    let (last, first) = lens.split_last().expect("the pattern of a card number matches at least one group of digits");
    let long =
        first.iter().all(|len| *len >= SHORT_GROUP) && (*last >= SHORT_GROUP || first.iter().all(|len| *len == 4));
    let whole = groups == (0..run.groups.len());
    (first.is_empty() || long || whole) && run.is_one_number(groups)
}

/// Returns whether the groups of digits `groups` are not a card number but a decimal number, or the digits after a
/// decimal point or after `0,`.
fn is_fraction(folded: &Folded, run: &Run<'_>, groups: Range<usize>) -> bool {
    if groups.len() == 2 && run.separator(groups.start) == "." {
        return true;
    }
    let range = run.groups[groups.start].clone();
    let (head, tail) = (&folded.text[..range.start], &folded.text[range.end..]);
    let is_digit = |c: char| c.is_ascii_digit();
    let after_point = head.strip_suffix('.').is_some_and(|before| before.ends_with(is_digit));
    // Cells of a table have commas between them too, so a decimal must begin with `0,` and must not be a cell.
    let after_comma =
        head.strip_suffix("0,").is_some_and(|before| !before.ends_with(|c| is_digit(c) || ",.;".contains(c)));
    let is_cell = tail.strip_prefix(',').is_some_and(|rest| !rest.starts_with(char::is_whitespace));
    groups.len() == 1 && (after_point || after_comma && !is_cell)
}

/// Returns whether a card network issues numbers with the first digits and the length of `digits`.
fn in_network(digits: &[u8]) -> bool {
    if digits.len() < 12 {
        return false;
    }
    let first = |n: usize| digits[..n].iter().fold(0u32, |all, d| all * 10 + u32::from(*d));
    let len = digits.len();
    match (first(1), first(2), first(3), first(4)) {
        (4, ..) => matches!(len, 13 | 16 | 19),                                   // Visa
        (_, 51..=55, ..) | (_, _, _, 2221..=2720) => len == 16,                   // Mastercard
        (_, 34 | 37, ..) => len == 15,                                            // American Express
        (_, 36 | 38 | 39, ..) | (_, _, 300..=305, _) => (14..=19).contains(&len), // Diners Club
        (_, 35 | 60 | 62 | 64 | 65 | 81 | 82, ..) => (16..=19).contains(&len),    // JCB, Discover, UnionPay, RuPay
        (_, _, _, 2200..=2204) => (16..=19).contains(&len),                       // Mir
        (_, 50 | 56..=59 | 61 | 63 | 66..=69, ..) => true,                        // Maestro
        _ => false,
    }
}

/// Returns whether the check digit is correct (Luhn): every second digit from the right is doubled (minus 9 if above
/// 9), and the sum of all digits must be a multiple of 10.
fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, d)| match (at % 2, u32::from(*d)) {
            (0, d) => d,
            (_, d) => 2 * d - 9 * u32::from(d > 4),
        })
        .sum();
    sum.is_multiple_of(10)
}
