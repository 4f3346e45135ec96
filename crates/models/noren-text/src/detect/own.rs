//! Private text that the user defines: words, patterns, or ranges of characters.

use super::around::is_spaceless;
use crate::Error;
use crate::fold::{Folded, Invisible};
use aho_corasick::AhoCorasick;
use regex::{Regex, RegexBuilder};
use std::ops::Range;
use std::sync::Arc;

/// The maximum size in bytes of a compiled pattern of the user. A larger pattern is likely a mistake or an attack.
const LARGEST_PATTERN: usize = 1 << 20;

pub(super) fn words<S: AsRef<str>>(name: &str, words: impl IntoIterator<Item = S>) -> Result<Arc<AhoCorasick>, Error> {
    let mut folded = Vec::new();
    for word in words {
        let word = word.as_ref();
        let plain = Folded::words(word, Invisible::Joins).text.trim().to_string();
        if plain.is_empty() {
            return Err(Error::detector(name, format!("{word:?} is not a word: remove empty lines from the list")));
        }
        folded.push(plain);
    }
    if folded.is_empty() {
        return Err(Error::detector(name, "the list has no words: give at least one"));
    }
    let words = AhoCorasick::new(&folded).map_err(|e| Error::detector(name, e.to_string()))?;
    Ok(Arc::new(words))
}

/// Returns the ranges in which one of `words` occurs as a whole word. If several words begin at the same index, only
/// the range of the longest word is returned.
pub(super) fn find_words(words: &AhoCorasick, folded: &Folded) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = words
        .find_overlapping_iter(&folded.text)
        .map(|m| m.range())
        .filter(|range| stands_alone(folded, range))
        .collect();
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    found.dedup_by_key(|range| range.start);
    found
}

fn stands_alone(folded: &Folded, range: &Range<usize>) -> bool {
    let word = &folded.text[range.clone()];
    let (before, after) = folded.around(range);
    let joined = |inner: Option<char>, outer: Option<char>| inner.is_some_and(joins) && outer.is_some_and(joins);
    // A mark after the word changes its last letter.
    !joined(word.chars().next(), before) && !joined(word.chars().next_back(), after)
}

/// Returns whether `c` is a letter, a digit, `_` or a combining mark. If two such characters are adjacent, they belong
/// to the same word. Returns false for letters of scripts without spaces between words.
fn joins(c: char) -> bool {
    (c.is_alphanumeric() || c == '_' || unicode_normalization::char::is_combining_mark(c)) && !is_spaceless(c)
}

pub(super) fn pattern(name: &str, pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN).build().map_err(|error| {
        let problem = match error {
            regex::Error::CompiledTooBig(limit) => format!(
                "the pattern needs more than the maximum of {limit} bytes: use fewer repetitions, or a list of words"
            ),
            other => format!("the pattern is malformed: {other}"),
        };
        Error::detector(name, problem)
    })
}

pub(super) fn spans(name: &str, spans: impl IntoIterator<Item = Range<usize>>) -> Result<Vec<Range<usize>>, Error> {
    let mut list: Vec<Range<usize>> = spans.into_iter().collect();
    match list.iter().find(|span| span.is_empty()) {
        Some(span) => Err(span_error(name, span, "the span is empty: give an end after the start")),
        None => {
            list.sort_by_key(|span| (span.start, span.end));
            Ok(list)
        }
    }
}

/// Converts ranges of characters of `text` to ranges of bytes. `name` is the name of the detector, for errors.
pub(super) fn find_spans(name: &str, spans: &[Range<usize>], text: &str) -> Result<Vec<Range<usize>>, Error> {
    let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let length = borders.len() - 1;
    spans
        .iter()
        .map(|span| match span.end <= length {
            true => Ok(borders[span.start]..borders[span.end]),
            false => {
                let problem =
                    format!("the text has {length} characters: give a span as (start, end), counted in characters from 0, with an end of at most {length}");
                Err(span_error(name, span, &problem))
            }
        })
        .collect()
}

fn span_error(name: &str, span: &Range<usize>, problem: &str) -> Error {
    Error::Span { name: name.to_string(), start: span.start, end: span.end, problem: problem.to_string() }
}
