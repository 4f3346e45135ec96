//! [`Unit`]: tokens that reports show together. In a short text, each token is a unit; in a long text, each word and
//! each private text is a unit.

use noren_mask::BoundMask;
use noren_text::{Encoding, PrivateTokens};
use std::ops::Range;

/// Maximum number of tokens of a text in which each token is a unit. In a longer text, words are units.
const MOST_TOKENS: usize = 24;

/// A group of neighbouring tokens that a report shows as one text.
pub(crate) struct Unit {
    /// The text that is shown for the unit: a token, a word, or the kind of private text.
    pub(crate) label: String,
    pub(crate) tokens: Range<usize>,
    /// True if the unit contains private text, whether the private text is hidden or not.
    pub(crate) private: bool,
}

/// The part of a text to which a token belongs: a private text, a word, or a sign (a token that represents no text).
/// Neighbouring tokens of the same private text or word form one unit, but each sign forms a separate unit.
#[derive(PartialEq)]
enum Part {
    Private(String),
    Word(usize),
    /// A token that represents no text, such as a special token.
    Sign,
}

/// Splits a text into units, which are tokens, words or private texts. `names` has the readable text of each token.
pub(crate) fn units(text: &str, encoding: &Encoding, names: &[String], private: &PrivateTokens) -> Vec<Unit> {
    if encoding.len() <= MOST_TOKENS {
        let one = |(at, name): (usize, &String)| Unit {
            label: name.clone(),
            tokens: at..at + 1,
            private: private.is_private(at),
        };
        return names.iter().enumerate().map(one).collect();
    }
    let words: Vec<Range<usize>> = words(text);
    let part = |at: usize, last: &Part| {
        let kinds: Vec<&str> = private.kinds_at(at).map(|kind| kind.as_str()).collect();
        if !kinds.is_empty() {
            return Part::Private(kinds.join("+"));
        }
        let range = encoding.ranges[at].clone();
        if range.is_empty() {
            return Part::Sign;
        }
        // A token of white space belongs to the word before it, or to the next word if private text is before it.
        let blank = text[range.clone()].chars().take_while(|c| c.is_whitespace()).map(char::len_utf8).sum::<usize>();
        let after = blank == range.len() && matches!(last, Part::Private(_));
        let first = if blank < range.len() { range.start + blank } else { range.start };
        Part::Word(words.partition_point(|word| word.start <= first) + usize::from(after))
    };
    let mut units: Vec<Unit> = Vec::new();
    let mut last = Part::Sign;
    for (at, name) in names.iter().enumerate() {
        let part = part(at, &last);
        match units.last_mut() {
            Some(unit) if part != Part::Sign && part == last => unit.tokens.end = at + 1,
            _ => {
                units.push(Unit { label: name.clone(), tokens: at..at + 1, private: matches!(part, Part::Private(_)) })
            }
        }
        if let (Part::Private(kinds), Some(unit)) = (&part, units.last_mut()) {
            unit.label = kinds.clone();
        }
        last = part;
    }
    for unit in units.iter_mut().filter(|unit| !unit.private) {
        let (first, end) = (&encoding.ranges[unit.tokens.start], &encoding.ranges[unit.tokens.end - 1]);
        let own = text.get(first.start..end.end).map(str::trim).filter(|own| !own.is_empty());
        unit.label = own.map_or_else(|| unit.label.clone(), printable);
    }
    units
}

/// Returns a text on one line, without terminal control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == '\n' {
                '⏎'
            } else if c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Returns the byte ranges of the words of a text. Words are separated by white space.
fn words(text: &str) -> Vec<Range<usize>> {
    let place = |word: &str| {
        let start = word.as_ptr() as usize - text.as_ptr() as usize;
        start..start + word.len()
    };
    text.split_whitespace().map(place).collect()
}

/// Returns the attention weights between units, `[queries][keys]`. `weights` are the attention weights between tokens,
/// `[queries][keys]`. The weights are averaged over the query tokens of a unit and summed over the key tokens of a
/// unit.
pub(crate) fn gather(units: &[Unit], weights: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let between = |reader: &Unit, read: &Unit| {
        let rows = &weights[reader.tokens.clone()];
        rows.iter().flat_map(|row| &row[read.tokens.clone()]).sum::<f32>() / rows.len() as f32
    };
    units.iter().map(|reader| units.iter().map(|read| between(reader, read)).collect()).collect()
}

/// Returns the fraction of cells that the mask allows for each pair of units, `[queries][keys]`. `head` is the head of
/// batch row 0 whose cells are counted.
pub(crate) fn allowed(units: &[Unit], bound: &BoundMask, head: usize) -> Vec<Vec<f32>> {
    let between = |reader: &Unit, read: &Unit| {
        let cells = reader.tokens.clone().flat_map(|q| read.tokens.clone().map(move |k| (q, k)));
        let allowed = cells.filter(|(q, k)| bound.allowed(0, head, *q, *k)).count();
        allowed as f32 / (reader.tokens.len() * read.tokens.len()) as f32
    };
    units.iter().map(|reader| units.iter().map(|read| between(reader, read)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use noren_text::{ByteTokenizer, Detectors, Tokenizer};

    #[test]
    fn long_texts_are_shown_by_word_and_secrets_by_kind() {
        let text = "Write to jane@longbourn.example, my dear\nJane.";
        let tokens = ByteTokenizer.encode(text).expect("bytes");
        let found = "email".parse::<Detectors>().expect("a detector").find(text).expect("an address");
        let private = PrivateTokens::locate(&found, text, &tokens);
        let names: Vec<String> = tokens.ids.iter().map(|id| ByteTokenizer.token(*id).expect("a byte")).collect();
        let units = units(text, &tokens, &names, &private);
        let labels: Vec<&str> = units.iter().map(|unit| unit.label.as_str()).collect();
        assert_eq!(labels, ["<s>", "Write", "to", "email", ",", "my", "dear", "Jane."]);
        assert_eq!(units.iter().map(|unit| unit.tokens.len()).sum::<usize>(), tokens.len());
    }
}
