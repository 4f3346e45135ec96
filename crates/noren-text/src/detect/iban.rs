//! International bank account numbers (ISO 13616): the length of the country, and the remainder of ISO 7064 MOD 97-10.

use crate::fold::Folded;
use std::ops::Range;

/// Countries and the lengths of their numbers (SWIFT IBAN registry).
const COUNTRIES: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 \
    EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 \
    LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 \
    RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30";

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let bytes = folded.text.as_bytes();
    let mut found: Vec<Range<usize>> = Vec::new();
    for start in 0..bytes.len().saturating_sub(3) {
        let head = &bytes[start..start + 4];
        let looks = head[..2].iter().all(u8::is_ascii_alphabetic) && head[2..].iter().all(u8::is_ascii_digit);
        if !looks || found.last().is_some_and(|last| start < last.end) {
            continue;
        }
        if let Some(end) = end(bytes, start)
            && !super::goes_on(folded, &(start..end))
        {
            found.push(start..end);
        }
    }
    found
}

/// Where the number that begins at `start` ends, when it is one.
fn end(bytes: &[u8], start: usize) -> Option<usize> {
    let length = length(&bytes[start..start + 2])?;
    let mut number = Vec::with_capacity(length);
    let mut at = start;
    while number.len() < length {
        match bytes.get(at)? {
            c if c.is_ascii_alphanumeric() => number.push(c.to_ascii_uppercase()),
            b' ' | b'-' if bytes[at - 1].is_ascii_alphanumeric() => {}
            _ => return None,
        }
        at += 1;
    }
    (remainder(&number) == 1).then_some(at)
}

fn length(country: &[u8]) -> Option<usize> {
    let entry = COUNTRIES.split(' ').find(|entry| entry.as_bytes()[..2].eq_ignore_ascii_case(country))?;
    entry[2..].parse().ok()
}

/// The number modulo 97, its first four characters last and letters as 10 to 35.
fn remainder(number: &[u8]) -> u32 {
    let (head, tail) = number.split_at(4);
    tail.iter().chain(head).fold(0, |rest, c| match c {
        b'0'..=b'9' => (rest * 10 + u32::from(c - b'0')) % 97,
        _ => (rest * 100 + u32::from(c - b'A') + 10) % 97,
    })
}
