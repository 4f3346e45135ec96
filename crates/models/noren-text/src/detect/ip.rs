//! Internet addresses, versions 4 and 6.

use super::around::{adjoins, goes_on, is_embedded, word_after, word_before};
use crate::fold::Folded;
use regex::Regex;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::LazyLock;

/// The pattern of numbers with dots between them. A sequence of more than four numbers is matched as a whole, so that
/// `1.2.3.4` in `1.2.3.4.5` is not found as an address.
static V4: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[0-9]+(?:\.[0-9]+)+").expect("the fixed pattern is a valid regular expression"));
static V6: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[0-9A-Fa-f:][0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*").expect("the fixed pattern is a valid regular expression")
});

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let v4 = V4.find_iter(&folded.text).filter(|m| m.as_str().parse::<Ipv4Addr>().is_ok()).map(|m| m.range());
    let mut found: Vec<_> = v4.filter(|range| !is_piece(folded, range)).collect();
    found.extend(V6.find_iter(&folded.text).filter_map(|run| {
        let address = |from: usize| version_6(&folded.text[from..run.end()], from).filter(|at| !goes_on(folded, at));
        // A word may announce the address: the run has the colon of `IPv6:2001:db8::1`, and the 6 of `ip6`.
        let colon = run.as_str().find(':').map(|colon| run.start() + colon)?;
        let named = folded.text[..run.start()].ends_with(adjoins);
        address(run.start()).or_else(|| if named { address(colon + 1) } else { None })
    }));
    found.sort_by_key(|range| (range.start, range.end));
    found
}

/// Returns the byte range of the version 6 address `text` in the folded text (the form that detectors read), without
/// punctuation at the end of the address. `at` is the byte index at which `text` begins in the folded text. Returns
/// `None` if `text` is no address, such as `a::b`, which is a path in a program.
fn version_6(text: &str, at: usize) -> Option<Range<usize>> {
    let text = text.trim_end_matches('.');
    let fits = |text: &str| text.len() <= 45 && text.parse::<Ipv6Addr>().is_ok();
    let text = [Some(text), text.strip_suffix(':')].into_iter().flatten().find(|text| fits(text))?;
    let groups = text.split([':', '.']).filter(|group| !group.is_empty()).count();
    let is_address = text.bytes().any(|b| b.is_ascii_digit()) || groups > 2;
    is_address.then_some(at..at + text.len())
}

/// Returns whether the text at `range`, which has the form of an IP address, is a version number (`v1.2.3.4`) or a part
/// of an identifier (`1.2.3.4rc`), because letters touch it.
fn is_piece(folded: &Folded, range: &Range<usize>) -> bool {
    let (before, after) = (&folded.text[..range.start], &folded.text[range.end..]);
    let (before, after) = (word_before(before).to_lowercase(), word_after(after).to_lowercase());
    let version = matches!(before.as_str(), "v" | "ver" | "version" | "release" | "rel" | "r");
    let release = matches!(after.as_str(), "rc" | "beta" | "alpha" | "dev" | "post" | "pre" | "final" | "snapshot");
    is_embedded(folded, range) || before.chars().count() == 1 || after.chars().count() == 1 || version || release
}
