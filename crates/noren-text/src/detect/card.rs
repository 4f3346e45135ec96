//! Payment cards: 12 to 19 digits in the ranges of the networks, with the check digit of Luhn (ISO/IEC 7812-1).

use super::goes_on;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// Groups of digits with one separator between.
static RUN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[0-9]+(?:[ .\-][0-9]+)*").expect("a pattern that compiles"));
static GROUP: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[0-9]+").expect("a pattern that compiles"));
const LONGEST: usize = 19;

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for run in RUN.find_iter(&folded.text) {
        let groups: Vec<_> =
            GROUP.find_iter(run.as_str()).map(|g| run.start() + g.start()..run.start() + g.end()).collect();
        let mut at = 0;
        while at < groups.len() {
            match longest(folded, &groups[at..]) {
                Some((range, used)) => {
                    found.push(range);
                    at += used;
                }
                None => at += 1,
            }
        }
    }
    found
}

/// The longest card number that begins with the first group and ends with a group, and the number of its groups. A date or an
/// amount may stand after it.
fn longest(folded: &Folded, groups: &[Range<usize>]) -> Option<(Range<usize>, usize)> {
    let mut digits = Vec::with_capacity(LONGEST);
    let mut best = None;
    for (used, group) in groups.iter().enumerate() {
        if digits.len() + group.len() > LONGEST {
            break;
        }
        digits.extend(folded.text[group.clone()].bytes().map(|b| b - b'0'));
        let range = groups[0].start..group.end;
        if in_network(&digits) && luhn(&digits) && !goes_on(folded, &range) {
            best = Some((range, used + 1));
        }
    }
    best
}

/// Whether a network issues numbers that begin so and are as long.
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

/// The sum of the digits from the right, every second one doubled, is a multiple of 10.
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
