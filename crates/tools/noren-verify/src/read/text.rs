//! The parser of masks. It converts the text of a mask to [`Expr`].

use crate::read::expr::{Arg, By, Expr, Selector};
use crate::read::lex::{Token, tokens};
use crate::read::vocabulary::{atom, spans};

/// The maximum number of nesting levels in the text of a mask: each `!`, each pair of parentheses and each argument is
/// one level. A text with deeper nesting is refused.
const MOST_DEPTH: usize = 200;

/// Parses the text of a mask. The error describes the part of the text that is wrong.
pub(crate) fn parse(text: &str) -> Result<Expr, String> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let expr = parser.union()?;
    match parser.peek() {
        Token::End => Ok(expr),
        Token::Sign('+') => Err("a score modifier after the mask: a certificate contains only masks".into()),
        other => Err(format!("{other} after the end of the mask")),
    }
}

pub(crate) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn take(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn sign(&mut self, sign: char) -> bool {
        let found = *self.peek() == Token::Sign(sign);
        if found {
            self.take();
        }
        found
    }

    fn need(&mut self, sign: char) -> Result<(), String> {
        if self.sign(sign) { Ok(()) } else { Err(format!("a syntax error (expected `{sign}`, found {})", self.peek())) }
    }

    /// Calls `read` for a nested part of the text. Returns an error if the nesting is too deep.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("a mask with more than {MOST_DEPTH} levels of nesting"));
        }
        let out = read(self);
        self.depth -= 1;
        out
    }

    /// Parses one or more operands with the operator `sign` between them, such as `a | b | c` with the operator `|`.
    /// `part` parses one operand; `join` combines two or more operands into one expression.
    fn chain(
        &mut self,
        sign: char,
        part: fn(&mut Self) -> Result<Expr, String>,
        join: fn(Vec<Expr>) -> Expr,
    ) -> Result<Expr, String> {
        let mut parts = vec![part(self)?];
        while self.sign(sign) {
            parts.push(part(self)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { join(parts) })
    }

    fn union(&mut self) -> Result<Expr, String> {
        self.chain('|', Self::term, Expr::Or)
    }

    fn term(&mut self) -> Result<Expr, String> {
        self.chain('&', Self::difference, Expr::And)
    }

    fn difference(&mut self) -> Result<Expr, String> {
        self.chain('-', Self::unary, Expr::Minus)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        if self.sign('!') || self.sign('~') {
            return Ok(Expr::Not(Box::new(self.deeper(Self::unary)?)));
        }
        if self.sign('(') {
            let inner = self.deeper(Self::union)?;
            self.need(')')?;
            return Ok(inner);
        }
        match self.take() {
            Token::Name(name) => self.atom(&name),
            other => Err(format!("a syntax error (expected a mask, found {other})")),
        }
    }

    fn atom(&mut self, name: &str) -> Result<Expr, String> {
        let by = match name {
            "heads" => Some(By::Head),
            "batch" => Some(By::Batch),
            "layers" => Some(By::Layer),
            _ => None,
        };
        if let Some(by) = by {
            self.need('(')?;
            let mut arms = Vec::new();
            while !self.sign(')') {
                let selector = self.selector()?;
                self.need(':')?;
                arms.push((selector, self.deeper(Self::union)?));
                if !self.sign(',') && *self.peek() != Token::Sign(')') {
                    return Err(format!("a syntax error (expected `,` or `)`, found {})", self.peek()));
                }
            }
            return Ok(Expr::Arms(by, arms));
        }
        let mut args = Vec::new();
        if self.sign('(') {
            while !self.sign(')') {
                let named =
                    matches!(self.peek(), Token::Name(_)) && self.tokens.get(self.at + 1) == Some(&Token::Sign('='));
                let key = match named.then(|| self.take()) {
                    Some(Token::Name(key)) => {
                        self.need('=')?;
                        Some(key)
                    }
                    _ => None,
                };
                args.push((key, self.deeper(Self::arg)?));
                if !self.sign(',') && *self.peek() != Token::Sign(')') {
                    return Err(format!("a syntax error (expected `,` or `)`, found {})", self.peek()));
                }
            }
        }
        atom(name, args)
    }

    fn selector(&mut self) -> Result<Selector, String> {
        match self.peek().clone() {
            Token::Name(name) if name == "else" => {
                self.take();
                Ok(Selector::Else)
            }
            Token::Name(name) if name == "every" => {
                self.take();
                let step = self.int()?;
                let from = if *self.peek() == Token::Name("from".into()) {
                    self.take();
                    self.int()?
                } else {
                    0
                };
                if step < 1 || from < 0 {
                    return Err(format!(
                        "`every {step} from {from}`, which needs a step of at least 1 and a start of at least 0"
                    ));
                }
                Ok(Selector::Every { step, from })
            }
            _ => {
                let value = self.deeper(Self::arg)?;
                Ok(Selector::Spans(spans(&value)?))
            }
        }
    }

    fn int(&mut self) -> Result<i128, String> {
        let minus = self.sign('-');
        match self.take() {
            Token::Int(value) => Ok(if minus { -value } else { value }),
            other => Err(format!("a syntax error (expected a whole number, found {other})")),
        }
    }

    fn arg(&mut self) -> Result<Arg, String> {
        if self.sign('[') {
            let mut list = Vec::new();
            while !self.sign(']') {
                list.push(self.deeper(Self::arg)?);
                if !self.sign(',') && *self.peek() != Token::Sign(']') {
                    return Err(format!("a syntax error (expected `,` or `]`, found {})", self.peek()));
                }
            }
            return Ok(Arg::List(list));
        }
        if *self.peek() == Token::Range {
            return self.span(0);
        }
        let minus = self.sign('-');
        match (self.take(), minus) {
            (Token::Int(value), _) => {
                let value = if minus { -value } else { value };
                if *self.peek() == Token::Range { self.span(value) } else { Ok(Arg::Int(value)) }
            }
            (Token::Float(value), _) => Ok(Arg::Float(if minus { -value } else { value })),
            (Token::Text(text), false) => Ok(Arg::Text(text)),
            (Token::Name(name), false) => Ok(Arg::Name(name)),
            (other, _) => Err(format!("a syntax error (expected a value, found {other})")),
        }
    }

    /// Parses the rest of a range such as `3..9` or `3..`: the sign `..` and the end, which may be missing. `start` is
    /// the start of the range, which was parsed before.
    fn span(&mut self, start: i128) -> Result<Arg, String> {
        self.take();
        let end = match self.peek() {
            Token::Int(_) | Token::Sign('-') => Some(self.int()?),
            _ => None,
        };
        if start < 0 || end.is_some_and(|end| end < start) {
            return Err(format!(
                "the range {start}..{}, which needs a start of at least 0 and an end not below the start",
                end.unwrap_or_default()
            ));
        }
        Ok(Arg::Span((start, end)))
    }
}
