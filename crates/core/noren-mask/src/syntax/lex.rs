//! The lexer: splits a text into tokens.

use super::error::{ParseError, Parsed};
use std::ops::Range;

/// The kind of a token: a name, a number, an operator and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Name,
    Int,
    Float,
    /// A quoted text, such as `"pii"`. The token includes the quotes.
    Quoted,
    LeftParen,
    RightParen,
    LeftBracket,
    RightBracket,
    Comma,
    Colon,
    Assign,
    DotDot,
    And,
    Or,
    Not,
    Minus,
    Plus,
    /// An operator that only other languages have, such as `&&`, or a character that the mask language does not use.
    Foreign,
    End,
}

/// A token (name, number, operator, ...), with its range of bytes in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Token {
    pub(crate) fn span(self) -> Range<usize> {
        self.start..self.end
    }
}

/// Returns whether a name can begin with `c`.
fn begins_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

/// Returns whether `c` can follow the first character of a name.
fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns whether the lexer reads `text` as one name. Such a name needs no quotes.
pub(crate) fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(begins_name) && text.chars().all(continues_name)
}

/// Operators of other languages, longest first. The lexer reads each as one token, so that an error message can suggest
/// the operator of the mask language.
const FOREIGN: &[&str] = &["..=", "...", "&&", "||", "==", "!=", "<=", ">=", "=>", "->", "**", "//"];

/// A lexer: it reads the tokens of a text one by one.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Lexer { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_while(&mut self, test: impl Fn(char) -> bool) {
        self.at += self.rest().find(|c| !test(c)).unwrap_or(self.rest().len());
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            self.skip_while(char::is_whitespace);
            if self.peek() != Some('#') {
                return;
            }
            self.skip_while(|c| c != '\n');
        }
    }

    /// Returns the next token. At the end of the text, and in every later call, returns [`Kind::End`].
    pub(crate) fn next(&mut self) -> Parsed<Token> {
        self.skip_blanks_and_comments();
        let start = self.at;
        let kind = match self.peek() {
            None => Kind::End,
            Some(c) if begins_name(c) => {
                self.skip_while(continues_name);
                Kind::Name
            }
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some(quote @ ('"' | '\'')) => self.quoted(quote)?,
            Some(c) => self.symbol(c)?,
        };
        Ok(Token { kind, start, end: self.at })
    }

    fn symbol(&mut self, c: char) -> Parsed<Kind> {
        let start = self.at;
        if let Some(operator) = FOREIGN.iter().find(|o| self.rest().starts_with(**o)) {
            self.at += operator.len();
            return Ok(Kind::Foreign);
        }
        if self.rest().starts_with("..") {
            self.at += 2;
            return Ok(Kind::DotDot);
        }
        self.at += c.len_utf8();
        if c == '.' && self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.skip_while(|c| c.is_ascii_alphanumeric());
            let found = &self.text[start..self.at];
            return Err(ParseError::at(start..self.at, format!("`{found}` is not a number"))
                .suggest(format!("write `0{found}`")));
        }
        Ok(match c {
            '(' => Kind::LeftParen,
            ')' => Kind::RightParen,
            '[' => Kind::LeftBracket,
            ']' => Kind::RightBracket,
            ',' => Kind::Comma,
            ':' => Kind::Colon,
            '=' => Kind::Assign,
            '&' => Kind::And,
            '|' => Kind::Or,
            '!' | '~' => Kind::Not,
            '-' => Kind::Minus,
            '+' => Kind::Plus,
            _ => Kind::Foreign,
        })
    }

    /// Reads a number: digits that may have underscores, a fraction and an exponent. In the range `0..4`, the dots are
    /// not part of the number, so only `0` is read.
    fn number(&mut self) -> Parsed<Kind> {
        let start = self.at;
        let digits = |c: char| c.is_ascii_digit() || c == '_';
        let mut kind = Kind::Int;
        self.skip_while(digits);
        let mut ahead = self.rest().chars();
        if ahead.next() == Some('.') {
            match ahead.next() {
                Some(c) if c.is_ascii_digit() => {
                    self.at += 1;
                    self.skip_while(digits);
                    kind = Kind::Float;
                }
                Some('.') => return Ok(kind),
                _ => {
                    let found = &self.text[start..self.at];
                    let message = format!("`{found}.` is not a number");
                    return Err(
                        ParseError::at(start..self.at + 1, message).suggest(format!("write `{found}` or `{found}.0`"))
                    );
                }
            }
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            let sign = self.rest()[1..].starts_with(['+', '-']) as usize;
            if self.rest()[1 + sign..].starts_with(|c: char| c.is_ascii_digit()) {
                self.at += 1 + sign;
                self.skip_while(digits);
                kind = Kind::Float;
            }
        }
        if self.peek().is_some_and(continues_name) {
            self.skip_while(continues_name);
            let message = format!("`{}` is not a number", clip(&self.text[start..self.at]));
            return Err(ParseError::at(start..self.at, message)
                .expecting(["digits such as `4096`", "`4_096`", "`0.5`", "`1e-7`"])
                .suggest("a name begins with a letter; put other names in quotes"));
        }
        Ok(kind)
    }

    /// Reads a text in quotes (the character `quote`). The text must end on the same line.
    fn quoted(&mut self, quote: char) -> Parsed<Kind> {
        let start = self.at;
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            if c == quote {
                self.at = start + i + c.len_utf8();
                return Ok(Kind::Quoted);
            }
            if c == '\n' {
                break;
            }
            if c == '\\' {
                chars.next();
            }
        }
        let end = self.text[start..].find('\n').map_or(self.text.len(), |i| start + i);
        Err(ParseError::at(start..end, format!("the text that begins with `{quote}` has no end"))
            .suggest(format!("end the text with `{quote}` on the same line")))
    }
}

/// Returns `text` for a message. If `text` has more than 40 characters, returns the first 40 and `...`.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// Returns the text of the quoted token `token`, without its quotes and with its escapes replaced: `"a\n"` becomes `a`
/// and a line break. `start` is the index of the token's first byte in the parsed text; errors contain it.
pub(crate) fn unquote(token: &str, start: usize) -> Parsed<String> {
    let inner = &token[1..token.len() - 1];
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.char_indices();
    while let Some((i, c)) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let rest = &inner[i + 1..];
        let (c, used) = match rest.chars().next() {
            Some('n') => ('\n', 1),
            Some('t') => ('\t', 1),
            Some('r') => ('\r', 1),
            Some('0') => ('\0', 1),
            Some(c @ ('\\' | '"' | '\'')) => (c, 1),
            Some('u') => unicode_escape(rest).ok_or_else(|| bad_escape(start + 1 + i, "u"))?,
            other => return Err(bad_escape(start + 1 + i, &other.map(String::from).unwrap_or_default())),
        };
        out.push(c);
        chars.nth(used - 1);
    }
    Ok(out)
}

/// Reads an escape such as `u{1f600}`, the part after the backslash, at the beginning of `rest`. Returns (character,
/// number of bytes of the escape), or `None` if the escape is not valid.
fn unicode_escape(rest: &str) -> Option<(char, usize)> {
    let digits = rest.strip_prefix("u{")?;
    let end = digits.find('}').filter(|end| (1..=6).contains(end))?;
    let code = u32::from_str_radix(&digits[..end], 16).ok()?;
    Some((char::from_u32(code)?, end + 3))
}

fn bad_escape(start: usize, escape: &str) -> Box<ParseError> {
    ParseError::at(start..start + 1 + escape.len(), format!("`\\{escape}` is not an escape sequence"))
        .suggest("write `\\\\` for a backslash, or one of `\\\"`, `\\'`, `\\n`, `\\t`, `\\r`, `\\0`, `\\u{1f600}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        let mut lexer = Lexer::new(text);
        let mut kinds = Vec::new();
        loop {
            match lexer.next().unwrap().kind {
                Kind::End => return kinds,
                kind => kinds.push(kind),
            }
        }
    }

    #[test]
    fn numbers_ranges_and_names() {
        assert_eq!(kinds("0..4"), [Kind::Int, Kind::DotDot, Kind::Int]);
        assert_eq!(kinds("1_000.5e-3 .. 2"), [Kind::Float, Kind::DotDot, Kind::Int]);
        assert_eq!(
            kinds("~a && b # rest | x\n-c"),
            [Kind::Not, Kind::Name, Kind::Foreign, Kind::Name, Kind::Minus, Kind::Name]
        );
        assert_eq!(kinds("länge \u{0} 'a\\'b'"), [Kind::Name, Kind::Foreign, Kind::Quoted]);
    }

    #[test]
    fn escapes() {
        assert_eq!(unquote(r#""a\"\\\n\u{1f600}é""#, 0).unwrap(), "a\"\\\n😀é");
        assert_eq!(unquote(r#""a\q""#, 10).unwrap_err().span, 12..14);
        assert!(unquote(r#""\u{d800}""#, 0).is_err());
        assert!(unquote(r#""\u{}""#, 0).is_err());
    }
}
