//! Secrets in unusual spellings, generated from `secrets.txt`. The detectors must find all
//! of them, as docs/text.md promises.

use std::ops::Range;

/// A text that contains one secret.
pub struct Case {
    /// The name of the detector that finds the secret.
    pub kind: &'static str,
    /// The whole text, which contains the secret.
    pub text: String,
    /// The byte range of the secret in `text`.
    pub secret: Range<usize>,
}

/// The words that tests give to a detector of the user's words.
pub const WORDS: [&str; 3] = ["Straße am Bach", "Οδυσσέας Ελύτης", "Ann Lee"];

/// Characters of width 0.
const INVISIBLE: [char; 16] = [
    '\u{2066}',
    '\u{2067}',
    '\u{2068}',
    '\u{2069}',
    '\u{61c}',
    '\u{180e}',
    '\u{34f}',
    '\u{fe0f}',
    '\u{fe00}',
    '\u{e0100}',
    '\u{200b}',
    '\u{200d}',
    '\u{200f}',
    '\u{ad}',
    '\u{2060}',
    '\u{feff}',
];
/// The digit zero in several scripts.
const ZEROS: [char; 16] = ['٠', '۰', '߀', '०', '০', '੦', '௦', '๐', '༠', '០', '᠐', '᱀', '꘠', '０', '𝟘', '𞥐'];
/// White space and dashes.
const SPACES: [&str; 12] =
    ["\t", "\n", "\r\n", "  ", " \t ", "\u{a0}", "\u{2003}", "\u{2028}", "\u{3000}", "\u{202f}", "\n  ", "\u{85}"];
const DASHES: [char; 8] =
    ['\u{2010}', '\u{2011}', '\u{2013}', '\u{2014}', '\u{2212}', '\u{fe63}', '\u{ff0d}', '\u{2e3a}'];
/// Pairs of texts, `(before a secret, after it)`.
const AROUND: [[&str; 2]; 10] = [
    ["", ""],
    ["(", ")"],
    ["\u{201c}", "\u{201d}"],
    ["卡号", "。"],
    ["、", "です"],
    ["👩\u{200d}👧 ", " 👋🏽"],
    ["\u{202b}", "\u{202c}"],
    ["a\u{200b} ", " \u{2060}b"],
    ["12\u{2029}", "\u{2029}34"],
    ["— ", "…"],
];
/// Pairs of texts that touch a number, `(before the number, after it)`.
const TOUCHING: [[&str; 2]; 6] =
    [["USD", ""], ["", "USD"], ["Nummer", "gilt"], ["карта", ""], ["号", "号"], ["", "のです"]];

/// A generator of pseudo-random numbers; equal seeds give equal numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Returns `count` cases: the secrets one after another, each with one to three of the changes that its line in
/// `secrets.txt` allows.
pub fn cases(count: usize, seed: u64) -> Vec<Case> {
    let lines: Vec<&'static str> = include_str!("secrets.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let mut draw = Draw(seed);
    (0..count).map(|at| case(lines[at % lines.len()], at / lines.len(), &mut draw)).collect()
}

fn case(line: &'static str, round: usize, draw: &mut Draw) -> Case {
    let [kind, changes, secret] = line.splitn(3, '|').map(str::trim).collect::<Vec<_>>()[..] else {
        panic!("{line} has three columns")
    };
    let secret = secret.replace("\\n", "\n").replace("\\u{e9}", "\u{e9}").replace("\\u{ed}", "\u{ed}");
    let (before, secret) = secret.split_once('⟦').unwrap_or(("", &secret));
    let (mut before, mut secret) = (before.to_owned(), secret.trim_end_matches('⟧').to_owned());
    let mut allowed: Vec<&str> = changes.split_whitespace().filter(|change| *change != "touch").collect();
    allowed.push("invisible");
    // The first cases have one change each, later cases have several changes.
    let first = allowed[round % allowed.len()];
    let chosen: Vec<&str> = match round < allowed.len() {
        true => vec![first],
        false => allowed.iter().copied().filter(|change| *change == first || draw.below(2) == 0).collect(),
    };
    for change in chosen {
        secret = changed(&secret, change, draw);
        if change == "invisible" && draw.below(2) == 0 {
            before = changed(&before, change, draw);
        }
    }
    let [mut left, mut right] = draw.of(&AROUND);
    if changes.contains("touch") && draw.below(2) == 0 {
        [left, right] = draw.of(&TOUCHING);
    }
    if matches!(kind, "word" | "address") && left == "a\u{200b} " {
        [left, right] = ["", ""];
    }
    let start = format!("So {left}{before}").len();
    Case { kind, text: format!("So {left}{before}{secret}{right} end"), secret: start..start + secret.len() }
}

fn changed(secret: &str, change: &str, draw: &mut Draw) -> String {
    let (zero, space, dash) = (draw.of(&ZEROS), draw.of(&SPACES), draw.of(&DASHES));
    let one = |c: char| -> String {
        match change {
            "digits" if c.is_ascii_digit() => char::from_u32(zero as u32 + c as u32 - '0' as u32).unwrap().into(),
            "separators" if c == ' ' => space.into(),
            "separators" if c == '-' => dash.into(),
            "wide" if c.is_ascii_graphic() => char::from_u32(c as u32 + 0xfee0).unwrap().into(),
            "upper" => c.to_uppercase().collect(),
            "lower" => c.to_lowercase().collect(),
            _ => c.into(),
        }
    };
    if change != "invisible" {
        return secret.chars().map(one).collect();
    }
    let last = secret.chars().count().saturating_sub(1);
    let invisible = draw.of(&INVISIBLE);
    secret.chars().enumerate().fold(String::new(), |mut text, (at, c)| {
        text.push(c);
        // A change at the end would be outside the secret.
        if at < last && draw.below(3) == 0 {
            text.push(invisible);
        }
        text
    })
}
