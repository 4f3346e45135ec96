//! The errors of the parser. Each error names the found text, the expected text and a fix.

use super::{Parser, vocabulary};
use crate::atoms;
use crate::mask::definition::Definition;
use crate::syntax::{Entry, Kind, MAX_DEPTH, ParseError, Parsed, Token, clip, nearest, synonym};

/// Functions that make the errors of the parser.
impl Parser<'_> {
    /// Returns a description of the next token, for a message.
    fn found(&self) -> String {
        let text = clip(self.slice(self.token)).escape_debug().to_string();
        match self.token.kind {
            Kind::End => "the text ends here".into(),
            Kind::Quoted => format!("found the text {}", clip(self.slice(self.token))),
            Kind::Int | Kind::Float => format!("found the number {text}"),
            _ => format!("found `{text}`"),
        }
    }

    pub(super) fn unexpected(&self, expected: &[&str]) -> Box<ParseError> {
        ParseError::at(self.token.span(), self.found()).expecting(expected.iter().copied())
    }

    pub(super) fn too_deep(&self) -> Box<ParseError> {
        ParseError::at(self.token.span(), format!("the mask has more than {MAX_DEPTH} levels of nesting"))
            .suggest("write `a - (b | c | d)` instead of `a - b - c - d`, and `a | b | c` without parentheses")
    }

    pub(super) fn close(&mut self, kind: Kind, open: Token, what: &str) -> Parsed<()> {
        if self.token.kind == kind {
            self.advance()?;
            return Ok(());
        }
        let closing = if kind == Kind::RightParen { "`)`" } else { "`]`" };
        if self.token.kind == Kind::End {
            return Err(
                ParseError::at(open.span(), format!("this `{what}` is never closed")).suggest(format!("add {closing}"))
            );
        }
        Err(if kind == Kind::RightParen { self.after_mask(&["`)`"]) } else { self.unexpected(&["`,`", closing]) })
    }

    /// Returns the error for a next token that cannot follow a complete mask. `closing` lists the tokens that could
    /// follow here besides the operators.
    pub(super) fn after_mask(&self, closing: &[&str]) -> Box<ParseError> {
        if let Some(error) = self.foreign_operator() {
            return error;
        }
        let expected = ["`&`", "`|`", "`-`"].iter().chain(closing).copied().collect::<Vec<_>>();
        let error = self.unexpected(&expected);
        match self.token.kind {
            Kind::Plus if !self.scores => {
                error.suggest("a mask cannot contain scores: parse this text as a spec, which is a mask with scores")
            }
            Kind::Plus => error.suggest("scores are added at the end of the text, outside parentheses"),
            Kind::RightParen => error.suggest("remove this `)`, because no `(` is open"),
            Kind::Name | Kind::LeftParen | Kind::Not => {
                error.suggest("put `&` (both) or `|` (either) between two masks")
            }
            Kind::Comma => error.suggest("join two masks with `&` (both) or `|` (either)"),
            Kind::Colon => error.suggest(
                "write a colon only inside `heads(..)`, `batch(..)` or `layers(..)`, between indices and a mask",
            ),
            _ => error.suggest("remove this text, or join another mask with `&` or `|`"),
        }
    }

    pub(super) fn after_score(&self) -> Box<ParseError> {
        let error = self.unexpected(&["`+` and a score", "the end of the text"]);
        match self.token.kind {
            Kind::And | Kind::Or | Kind::Minus => {
                error.suggest("write the whole mask first and add the scores at its end")
            }
            _ => error.suggest("put `+` between two scores"),
        }
    }

    pub(super) fn after_argument(&self, entry: &Entry, open: Token) -> Box<ParseError> {
        if self.slice(self.token) == "..="
            && let Some(error) = self.foreign_operator()
        {
            return error;
        }
        let error = self.unexpected(&["`,`", "`)`"]);
        match self.token.kind {
            Kind::End => ParseError::at(open.span(), "this `(` is never closed").suggest("add `)`"),
            Kind::LeftParen | Kind::And | Kind::Or | Kind::Minus | Kind::Not => {
                error.suggest(format!("`{}` takes no mask; write for example `{}`", entry.name, entry.example))
            }
            Kind::Colon => {
                error.suggest(format!("`{}` takes no colon; write for example `{}`", entry.name, entry.example))
            }
            _ => error.suggest("put `,` between two arguments"),
        }
    }

    /// Returns the error if the next token is an operator of another language, such as `&&`. The error suggests the
    /// operator of the mask language.
    fn foreign_operator(&self) -> Option<Box<ParseError>> {
        let text = self.slice(self.token);
        let word = self.token.kind == Kind::Name;
        let suggestion = match text {
            "&&" | "and" | "AND" | "*" | "intersect" => "write `&` for both",
            "||" | "or" | "OR" | "union" => "write `|` for either",
            "not" | "NOT" => "write `!` for the complement, as in `a & !b`",
            "minus" | "except" | "without" | "/" => "write `-`, as in `a - b`",
            "^" | "xor" | "XOR" => "write `(a | b) - (a & b)` for the cells that exactly one of two masks allows",
            "==" | "!=" | "<=" | ">=" | "=" | "<" | ">" => {
                "a text defines one mask; to compare two masks, give two texts (`noren diff`)"
            }
            "..=" => "ranges are half open: write `0..5` for 0 to 4",
            _ => return None,
        };
        if !word && !matches!(self.token.kind, Kind::Foreign | Kind::Assign) {
            return None;
        }
        Some(
            ParseError::at(self.token.span(), format!("`{text}` is not an operator of the mask language"))
                .suggest(suggestion),
        )
    }

    /// Returns the error for a token with which no mask can begin.
    pub(super) fn no_mask(&self) -> Box<ParseError> {
        if let Some(error) = self.foreign_operator() {
            return error;
        }
        let error = self.unexpected(&["a mask"]);
        match self.token.kind {
            Kind::End if self.text.trim().is_empty() => {
                ParseError::at(self.token.span(), "the text is empty, expected a mask")
                    .suggest("write `full` to allow everything")
            }
            Kind::Int | Kind::DotDot | Kind::LeftBracket => {
                error.suggest("write positions only as arguments, as in `keys(0..4)`")
            }
            Kind::Quoted => error
                .suggest("write a quoted name only as an argument, as in `dense(\"name\")` or `keys(label=\"name\")`"),
            Kind::Minus => error.suggest("write `-` between two masks, or `!a` for the complement of `a`"),
            Kind::RightParen | Kind::End => error.suggest("write for example `causal`"),
            _ => error.suggest("write a mask such as `causal` or `(causal | prefix(4))`"),
        }
    }

    pub(super) fn unknown_atom(&self) -> Box<ParseError> {
        let (name, span) = (self.slice(self.token), self.token.span());
        if let Some(error) = self.foreign_operator() {
            return error;
        }
        if vocabulary::score(name).is_some() {
            return ParseError::at(span, format!("`{name}` is a score, expected a mask"))
                .suggest(format!("add the score at the end of the text, as in `causal + {name}`"));
        }
        if matches!(name, "every" | "else") {
            return ParseError::at(span, format!("`{name}` is not a mask")).suggest(
                "write `every` and `else` only before a colon, as in \
                 `layers(every 2: causal, else: full)`",
            );
        }
        let error = ParseError::at(span, format!("unknown name `{}`", clip(name)))
            .expecting(atoms::DEFINITIONS.iter().map(|known| format!("`{}`", known.word.entry.name)));
        match nearest(name, atoms::DEFINITIONS.iter().flat_map(Definition::names)) {
            Some(near) => error.suggest(format!("did you mean `{near}`?")),
            None => match synonym(name) {
                Some(own) => error.suggest(format!("the mask language calls this `{own}`")),
                None => error,
            },
        }
    }

    pub(super) fn no_score(&self) -> Box<ParseError> {
        let (name, span) = (self.slice(self.token), self.token.span());
        let names = || vocabulary::SCORES.iter().map(|entry| entry.name);
        if self.token.kind != Kind::Name {
            return self.unexpected(&["a score"]).suggest("write for example `softcap(5)`");
        }
        if atoms::definition(name).is_some() {
            return ParseError::at(span, format!("`{name}` is a mask, expected a score"))
                .suggest("join masks with `&` (both) or `|` (either); `+` adds scores");
        }
        let error = ParseError::at(span, format!("unknown score `{}`", clip(name)))
            .expecting(names().map(|name| format!("`{name}`")));
        match nearest(name, names()) {
            Some(near) => error.suggest(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    pub(super) fn no_selector(&self, entry: &Entry) -> Box<ParseError> {
        self.unexpected(&["indices", "`every n`", "`else`"])
            .suggest(format!("write indices, a colon and a mask, as in `{}`", entry.example))
    }

    pub(super) fn no_value(&self) -> Box<ParseError> {
        let error = self.unexpected(&["a value"]);
        match self.token.kind {
            Kind::End => error.suggest("close the parentheses"),
            Kind::LeftParen | Kind::Not => {
                error.suggest("an argument is a number, a range, a list, a name or a quoted text")
            }
            _ => error.suggest("an argument is a number, a range, a list `[..]`, a name or a quoted text"),
        }
    }
}
