//! Writes parameters as text. The lexer and [`Arguments`](super::Arguments) read this text back to the same values.

use super::lex::is_name;
use crate::sets::scalar::Real;
use crate::sets::set::{Positions, Span};
use std::fmt::{self, Display, Formatter, Write};

/// Writes an atom as `name(key=value, ...)`, or as `name` if no parameter is written.
pub(crate) struct Call<'a, 'b> {
    f: &'a mut Formatter<'b>,
    empty: bool,
}

impl<'a, 'b> Call<'a, 'b> {
    pub(crate) fn new(f: &'a mut Formatter<'b>, name: &str) -> Result<Self, fmt::Error> {
        f.write_str(name)?;
        Ok(Call { f, empty: true })
    }

    pub(crate) fn option(&mut self, key: &str, value: &Option<impl Display>) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        let before = if self.empty { "(" } else { ", " };
        self.empty = false;
        write!(self.f, "{before}{key}={value}")
    }

    pub(crate) fn end(self) -> fmt::Result {
        if self.empty { Ok(()) } else { self.f.write_char(')') }
    }
}

/// Writes a list of values as `[a, b, c]`.
pub(crate) struct List<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (i, item) in self.0.iter().enumerate() {
            let before = if i > 0 { ", " } else { "" };
            write!(f, "{before}{item}")?;
        }
        f.write_char(']')
    }
}

/// Writes a name that the user chose, such as the name of an array. The name is written in quotes if the lexer would
/// not read it as one name without quotes.
pub(crate) struct Name<'a>(pub(crate) &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_name(self.0) { f.write_str(self.0) } else { Quoted(self.0).fmt(f) }
    }
}

/// Writes a text in quotes, with escapes.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Writes the shortest text from which the same number is read.
impl Display for Real {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let x = self.get();
        if x == 0.0 || (1e-5..1e16).contains(&x.abs()) { write!(f, "{x}") } else { write!(f, "{x:e}") }
    }
}

/// Writes a span: `3`, `0..4`, `4..`.
impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.end {
            Some(end) if self.start.checked_add(1) == Some(end) => write!(f, "{}", self.start),
            Some(end) => write!(f, "{}..{end}", self.start),
            None => write!(f, "{}..", self.start),
        }
    }
}

/// Writes a single span without brackets, and several spans as a list.
pub(crate) fn write_spans(f: &mut Formatter<'_>, spans: &[Span]) -> fmt::Result {
    match spans {
        [one] => one.fmt(f),
        _ => List(spans).fmt(f),
    }
}

/// Writes the arguments of an atom that selects tokens: `3`, `0..4`, `[3, 9, 10..14]`, `label="pii"`.
impl Display for Positions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Positions::Spans(spans) => write_spans(f, spans),
            Positions::Label(label) => write!(f, "label={}", Quoted(label)),
        }
    }
}
