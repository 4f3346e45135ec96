//! Texts of a picture: ticks, index lists, and text cut to a width.

use std::ops::Range;

/// Returns the indices in `range` at which an axis is marked, with their labels. Index `i` has position `i + offset`.
/// The marks are at round positions, and there are at most `most` of them. If `most` is 0 or 1, the only mark is at
/// the first index.
pub(super) fn ticks(range: &Range<u32>, offset: i64, most: usize) -> Vec<(u32, String)> {
    let (first, last) = (i64::from(range.start) + offset, i64::from(range.end) + offset);
    if most <= 1 {
        return vec![(range.start, first.to_string())];
    }
    let step = tick_step((last - first) as u64, most as u64) as i64;
    let mut at = first.div_euclid(step) * step;
    if at < first {
        at += step;
    }
    (at..last).step_by(step as usize).map(|p| ((p - offset) as u32, p.to_string())).collect()
}

/// Returns the smallest round distance between marks at which an axis of length `len` has at most `most` marks. If
/// `len` is below 32 or a multiple of 32, round distances are powers of two; otherwise they are 1, 2 or 5 times a power
/// of ten.
fn tick_step(len: u64, most: u64) -> u64 {
    let enough = |step: &u64| len.div_ceil(*step) <= most;
    if len < 32 || len.is_multiple_of(32) {
        return (0..32).map(|i| 1 << i).find(enough).unwrap_or(1 << 32);
    }
    let decimal = (0..10).flat_map(|e| [1, 2, 5].map(|m| m * 10u64.pow(e)));
    decimal.into_iter().find(enough).unwrap_or(1 << 32)
}

/// Returns a list of indices as text: `0-3, 5` for 0, 1, 2, 3, 5.
pub(super) fn index_list(indices: &[usize]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = indices;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|(a, b)| **a == *b).count();
        parts.push(match run {
            1 => first.to_string(),
            _ => format!("{first}-{}", first + run - 1),
        });
        rest = &rest[run..];
    }
    parts.join(", ")
}

/// Returns a number as text with thousands separators: `1,048,576`.
pub(super) fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the text without characters that would move the terminal's cursor or damage the picture, such as control
/// characters.
pub(super) fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' => '⏎',
        '\t' => '⇥',
        // direction marks reverse the text of a line
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Returns the number of columns of a character in a terminal.
fn char_width(c: char) -> usize {
    match c as u32 {
        0x300..=0x36f | 0x200b..=0x200d | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Returns the number of columns of a text in a terminal.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Returns `text` if it fits into `most` columns of a terminal. Otherwise returns the beginning of `text` with `…` at
/// the end, in at most `most` columns.
pub(super) fn fit(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_string();
    }
    let mut used = 1;
    let mut out: String = text
        .chars()
        .take_while(|c| {
            used += char_width(*c);
            used <= most
        })
        .collect();
    out.push('…');
    out
}

/// Returns the text in lines of at most `most` columns, split at spaces where possible.
pub(super) fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("the list of lines always has at least one line");
        if line.is_empty() {
            line.push_str(word);
        } else if width(line) + 1 + width(word) <= most {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    lines.iter().map(|line| fit(line, most.max(8))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let at = |range, offset, most| ticks(&range, offset, most).into_iter().map(|t| t.1).collect::<Vec<_>>();
        assert_eq!(at(0..8, 0, 4), ["0", "2", "4", "6"]);
        assert_eq!(at(0..64, 0, 8), ["0", "8", "16", "24", "32", "40", "48", "56"]);
        assert_eq!(at(0..1000, 0, 5), ["0", "200", "400", "600", "800"]);
        assert_eq!(at(3..9, 100, 3), ["104", "106", "108"]);
        assert_eq!(ticks(&(3..9), 100, 3)[0].0, 4);
        assert_eq!(at(5..6, -9, 1), ["-4"]);
        assert_eq!(at(0..2_000_000_011, 0, 3), ["0", "1000000000", "2000000000"]);
    }

    #[test]
    fn lists_and_numbers_read_well() {
        assert_eq!(index_list(&[0, 1, 2, 3, 5, 7, 8]), "0-3, 5, 7-8");
        assert_eq!(index_list(&[]), "");
        assert_eq!(grouped(1_048_576), "1,048,576");
        assert_eq!(grouped(999), "999");
    }

    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!(fit("attention", 5), "atte…");
        assert_eq!(fit("暖簾暖簾", 5), "暖簾…");
        assert_eq!(width("暖簾"), 4);
        assert_eq!(clean("a\nb\u{1b}[0m"), "a⏎b\u{fffd}[0m");
        assert_eq!(wrap("causal & documents | keys(0..4)", 12), ["causal &", "documents |", "keys(0..4)"]);
    }
}
