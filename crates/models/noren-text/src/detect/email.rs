//! E-mail addresses (RFC 5321, with letters of all scripts as in RFC 6531).

use crate::fold::{Folded, PARAGRAPH};
use std::net::Ipv4Addr;
use std::ops::Range;
use unicode_normalization::char::is_combining_mark;

/// Extensions of image files. A name such as `icon@2x.png` looks like an e-mail address but is none.
const PICTURES: [&str; 12] = ["png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "bmp", "ico", "icns", "tif", "tiff"];

pub(super) fn find(folded: &Folded) -> Vec<Range<usize>> {
    let text = folded.text.as_str();
    text.match_indices('@').filter_map(|(at, _)| Some(local(text, at)?..domain(text, at + 1)?)).collect()
}

/// Returns the byte index at which the local part of an e-mail address begins: the part before the `@`, which is at
/// byte index `at`. Returns `None` if there is no valid local part.
fn local(text: &str, at: usize) -> Option<usize> {
    if let Some(quoted) = text[..at].strip_suffix('"') {
        let open = quoted.rfind('"')?;
        let inner = &quoted[open + 1..];
        return (!inner.is_empty() && inner.len() <= 64 && !inner.contains(['\n', PARAGRAPH])).then_some(open);
    }
    let start = text[..at].trim_end_matches(|c| letter(c) || ".!#$%&'*+/=?^_`{|}~-".contains(c)).len();
    // Quotes, slashes and dots in front belong to the sentence.
    let start = at - text[start..at].trim_start_matches(|c| !letter(c) && c != '_').len();
    (start < at).then_some(start)
}

/// Returns the byte index after the domain that begins at byte index `from`; `None` if there is no valid domain. A
/// domain consists of labels with dots between them, or is an IP address, with or without brackets.
fn domain(text: &str, from: usize) -> Option<usize> {
    let rest = &text[from..];
    if let Some(inner) = rest.strip_prefix('[') {
        let close = inner.find(|c: char| !c.is_ascii_hexdigit() && !":.IPv".contains(c))?;
        return (inner[close..].starts_with(']') && close >= 3).then_some(from + close + 2);
    }
    let run = &rest[..rest.find(|c| !letter(c) && c != '-' && c != '.').unwrap_or(rest.len())];
    let mut end = 0;
    let mut labels = Vec::new();
    for label in run.split('.') {
        let plain = label.trim_end_matches('-');
        if plain.is_empty() || plain.starts_with('-') {
            break;
        }
        end += plain.len() + usize::from(!labels.is_empty());
        labels.push(plain);
        if plain.len() < label.len() {
            break;
        }
    }
    let last = labels.last()?;
    // `icon@2x.png` is an image with two pixels per point.
    let picture = labels.len() == 2 && is_pixel_ratio(labels[0]) && PICTURES.contains(&last.to_lowercase().as_str());
    if run[..end].parse::<Ipv4Addr>().is_ok() {
        return Some(from + end);
    }
    let top = last.chars().filter(|c| !is_combining_mark(*c)).count() >= 2 && !last.chars().all(|c| c.is_ascii_digit());
    (labels.len() >= 2 && top && !picture).then_some(from + end)
}

fn letter(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

/// Returns whether a label of a domain is a pixel ratio: one digit and `x`, such as `2x` in `icon@2x.png`, the name of an
/// image file.
fn is_pixel_ratio(label: &str) -> bool {
    matches!(label.as_bytes(), [b'0'..=b'9', b'x'])
}
