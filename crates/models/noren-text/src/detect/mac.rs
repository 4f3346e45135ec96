//! Hardware addresses of network devices (IEEE 802, MAC-48): six bytes with `:` or `-` between them, or three groups of four
//! digits with dots.

use super::around::{goes_on, pattern};
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The pattern of a sequence of hexadecimal bytes of any length. A sequence that is longer than an address is matched
/// as a whole, so that six of the bytes in a fingerprint or memory dump are not found as an address.
static ROWS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9A-Fa-f]{2}(?:[:\-][0-9A-Fa-f]{2})+|[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4})+"));

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let rows = ROWS.find_iter(&folded.text).filter(|row| is_address(row.as_str())).map(|row| row.range());
    rows.filter(|range| !goes_on(folded, range) && !continues(&folded.text[range.end..])).collect()
}

/// Returns whether a sequence of bytes is as long as an address: six bytes, or three groups of four digits, with equal
/// separators.
fn is_address(row: &str) -> bool {
    let separators: Vec<char> = row.chars().filter(|c| !c.is_ascii_hexdigit()).collect();
    let count = if row.contains('.') { 2 } else { 5 };
    separators.len() == count && separators.iter().all(|c| *c == separators[0])
}

/// Returns whether `after`, the text after a sequence of bytes, begins with a separator and a hexadecimal digit. Then
/// the bytes are a part of a longer sequence and not an address.
fn continues(after: &str) -> bool {
    after.strip_prefix([':', '-', '.']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()))
}
