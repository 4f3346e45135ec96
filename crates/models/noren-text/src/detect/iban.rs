//! International bank account numbers (ISO 13616): a country's format, and a checksum (ISO 7064 MOD 97-10).

use crate::fold::Folded;
use iban::Iban;
use std::ops::Range;

/// The lengths of account numbers in characters, from 15, the shortest national format (Norway), to 34, the maximum of
/// the standard.
const LENGTHS: std::ops::RangeInclusive<usize> = 15..=34;

/// Returns the byte ranges of account numbers. An account number is also found directly after letters (`IBANDE89...`):
/// its checksum and national format suffice to recognise it.
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

/// Returns the byte index after the account number that begins at `start`; `None` if no valid number begins there.
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
