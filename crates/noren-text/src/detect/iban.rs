//! International bank account numbers (ISO 13616): the form of the country, and the remainder of ISO 7064 MOD 97-10.

use crate::fold::Folded;
use iban::Iban;
use std::ops::Range;

/// Lengths from the shortest number (Norway's) to the longest that the standard allows, in characters.
const LENGTHS: std::ops::RangeInclusive<usize> = 15..=34;

/// Finds numbers after any text (`IBANDE89...`). The checksum and the form of the country distinguish them from other
/// text.
pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let bytes = folded.text.as_bytes();
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    while let Some(start) = (from..bytes.len()).find(|at| bytes[*at].is_ascii_alphabetic()) {
        from = start + 1;
        if let Some(end) = end(bytes, start) {
            found.push(start..end);
            from = end;
        }
    }
    found
}

/// Returns the index at which the number that begins at `start` ends, if there is one.
fn end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut number = String::with_capacity(*LENGTHS.end());
    let mut separators = 0;
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            c if c.is_ascii_alphanumeric() => {
                number.push(c.to_ascii_uppercase().into());
                separators = 0;
            }
            b' ' | b'\n' | b'-' | b'.' | b'/' | b'_' if separators < 3 => separators += 1,
            _ => return None,
        }
        let (country, check) = number.as_bytes().split_at(number.len().min(2));
        if !country.iter().all(u8::is_ascii_alphabetic) || !check.iter().take(2).all(u8::is_ascii_digit) {
            return None;
        }
        let whole = !bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if separators == 0 && LENGTHS.contains(&number.len()) && whole && number.parse::<Iban>().is_ok() {
            return Some(at + 1);
        }
        if number.len() == *LENGTHS.end() {
            return None;
        }
    }
    None
}
