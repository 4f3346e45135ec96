//! [`ParseError`]: what is wrong with a text, where, and how to mend it.

use std::fmt;
use std::ops::Range;

/// Characters of a line that an error shows; longer lines are cut around the place.
const SHOWN: usize = 120;

/// Why a text is no mask, with the place.
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
    /// The text that was parsed (only its beginning when it was refused for its length).
    pub text: String,
    /// The bytes of `text` that are wrong; empty at the end of the text.
    pub span: Range<usize>,
    /// What was found and why it is wrong.
    pub message: String,
    /// What could stand there instead, when that is a short list or a list of names.
    pub expected: Vec<String>,
    /// How to mend it.
    pub suggestion: Option<String>,
}

/// The parser's own result: the error is boxed to keep the frames of its recursion small.
pub(crate) type Parsed<T> = Result<T, Box<ParseError>>;

impl ParseError {
    /// An error at `span`; the text is filled in when the parser gives up.
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

    /// Line and column of the place, both counted from 1, the column in characters.
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

    /// The line of the place, cut to what fits, and where the carets go: (line, blanks before, number of carets).
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

/// `a`, `a or b`, `a, b or c`.
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
        // A long list is a vocabulary: it helps only where no better advice is at hand.
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
