//! Private keys in the formats of PEM (RFC 7468, OpenSSH, PGP) and PuTTY. The whole key with its first and last line is
//! private.

use super::around::pattern;
use crate::fold::Folded;
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static LINES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"-{4,5}\s?(?P<edge>BEGIN|END)\s(?:[A-Z0-9]{1,12}\s){0,4}PRIVATE\sKEY(?:\sBLOCK)?\s?-{4,5}|PuTTY-User-Key-File-[0-9]:|Private-MAC:\s?[0-9A-Fa-f]+",
    )
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let text = folded.text.as_str();
    let mut found = Vec::new();
    let mut open: Option<Range<usize>> = None;
    for caught in LINES.captures_iter(text) {
        let line = caught.get(0).expect("the whole match").range();
        let begins = match caught.name("edge") {
            Some(edge) => edge.as_str() == "BEGIN",
            None => text[line.clone()].starts_with("PuTTY"),
        };
        match (begins, open.take()) {
            (false, Some(begin)) => found.push(begin.start..line.end),
            (false, None) => {}
            (true, unclosed) => {
                found.extend(unclosed.map(|begin| begin.start..body_end(text, begin.end, line.start)));
                open = Some(line);
            }
        }
    }
    found.extend(open.map(|begin| begin.start..body_end(text, begin.end, text.len())));
    found
}

/// Returns the byte index after the encoded lines of a private key without an end line, but at most `limit`. `start` is
/// the index after the first line of the key. In quoted text, the two characters `\n` may end a line.
fn body_end(text: &str, start: usize, limit: usize) -> usize {
    let inner = |c: char| c.is_ascii_alphanumeric() || c.is_whitespace() || "+/=:,-\\".contains(c);
    start + text[start..limit].trim_start_matches(inner).as_ptr() as usize - text[start..limit].as_ptr() as usize
}
