//! [`ParseError`]: the error for a text that cannot be parsed. It has the position of the error in the text and, if
//! known, a fix.

use std::fmt;
use std::ops::Range;

/// The maximum number of characters of the line with the error that a message shows. Of a longer line, the message
/// shows only the characters around the error.
const SHOWN: usize = 120;

/// The error for a text that is not a mask or spec, with the position of the error in the text.
///
/// ```
/// use noren_mask::Mask;
/// let error = "padding & cuasal".parse::<Mask>().unwrap_err();
/// assert_eq!(error.to_string(), "\
/// unknown name `cuasal`: did you mean `causal`?
///   |
/// 1 | padding & cuasal
///   |           ^^^^^^");
/// assert_eq!(&error.text[error.span.clone()], "cuasal");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseError {
    /// The text that was parsed. If the text was refused because it is too long, this field has only its beginning.
    pub text: String,
    /// The range of the wrong bytes in `text`. The range is empty if the error is at the end of the text.
    pub span: Range<usize>,
    /// The problem in words, such as the text that was found and the reason why this text is wrong.
    pub message: String,
    /// The texts that are valid at the position of the error. The list is empty if `message` alone describes them.
    pub expected: Vec<String>,
    /// A hint on how to fix the error, or `None` if no fix is known.
    pub suggestion: Option<String>,
}

/// The result type of the parser's functions. The error is in a `Box`, because the functions call each other
/// recursively, and large results would take much stack.
pub(crate) type Parsed<T> = Result<T, Box<ParseError>>;

impl ParseError {
    /// Returns an error about the bytes `span` of the text. The field `text` stays empty until the parser sets it.
    pub(crate) fn at(span: Range<usize>, message: impl Into<String>) -> Box<Self> {
        Box::new(ParseError {
            text: String::new(),
            span,
            message: message.into(),
            expected: Vec::new(),
            suggestion: None,
        })
    }

    pub(crate) fn expecting<S: Into<String>>(mut self: Box<Self>, expected: impl IntoIterator<Item = S>) -> Box<Self> {
        self.expected = expected.into_iter().map(Into::into).collect();
        self
    }

    pub(crate) fn suggest(mut self: Box<Self>, suggestion: impl Into<String>) -> Box<Self> {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Returns (line, column) of the first wrong character in the text, both counted from 1. The column counts
    /// characters, not bytes.
    ///
    /// ```
    /// let error = "causal &\n  paddin".parse::<noren_mask::Mask>().unwrap_err();
    /// assert_eq!(error.line_column(), (2, 3));
    /// ```
    pub fn line_column(&self) -> (usize, usize) {
        let before = &self.text[..self.span.start.min(self.text.len())];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// Returns (the line of the error, number of blanks before the carets, number of carets), for a message that marks
    /// the wrong characters with carets `^` below the line. A line of more than [`SHOWN`] characters is shortened to
    /// the characters around the error.
    fn excerpt(&self) -> (String, usize, usize) {
        let start = self.span.start.min(self.text.len());
        let line_start = self.text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |i| start + i);
        let line = self.text[line_start..line_end].trim_end_matches('\r');
        let column = self.text[line_start..start].chars().count();
        let marked = self.text[start..self.span.end.clamp(start, line_end)].chars().count().max(1);
        let first = if column + marked.min(SHOWN / 2) <= SHOWN { 0 } else { column - SHOWN / 2 };
        let visible = |c: char| if c.is_control() { if c == '\t' { ' ' } else { '\u{fffd}' } } else { c };
        let mut shown: String = line.chars().skip(first).take(SHOWN).map(visible).collect();
        let rest = line.chars().nth(first + SHOWN).is_some();
        let mut blanks = column - first;
        let carets = marked.min(SHOWN - blanks);
        if first > 0 {
            shown.insert_str(0, "...");
            blanks += 3;
        }
        if rest {
            shown.push_str("...");
        }
        (shown.trim_end().to_string(), blanks, carets)
    }
}

/// Returns the texts `words` as one text with "or" before the last: `a`, `a or b`, `a, b or c`.
pub(crate) fn or_list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        // A long list is a vocabulary: it is shown only if there is no suggestion.
        if !self.expected.is_empty() && (self.expected.len() <= 4 || self.suggestion.is_none()) {
            write!(f, ", expected {}", or_list(&self.expected))?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, ": {suggestion}")?;
        }
        let (line, blanks, carets) = self.excerpt();
        let number = self.line_column().0.to_string();
        let gutter = " ".repeat(number.len());
        let bar = if line.is_empty() { format!("{number} |") } else { format!("{number} | {line}") };
        write!(f, "\n{gutter} |\n{bar}\n{gutter} | {}{}", " ".repeat(blanks), "^".repeat(carets))
    }
}

impl std::error::Error for ParseError {}
