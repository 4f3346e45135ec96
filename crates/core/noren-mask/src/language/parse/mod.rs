//! The text language: from text to [`Mask`] and [`Spec`].
//!
//! ```text
//! spec  := mask ('+' score)*
//! mask  := term ('|' term)*
//! term  := diff ('&' diff)*
//! diff  := unary ('-' unary)*
//! unary := '!' unary | '~' unary | atom | '(' mask ')'
//! atom  := name | name '(' arg (',' arg)* ')'
//! ```
//!
//! White space and line breaks are free, `#` begins a comment. Each rule has one function in this file. Arguments
//! are read in `syntax/values.rs`, scores in `parse/vocabulary.rs`, and each atom in a file of `atoms`.

mod advice;
pub(crate) mod vocabulary;

use crate::atoms;
use crate::language::check::{check_arms, check_node, check_score};
use crate::mask::definition::{Arms, Read};
use crate::mask::score::{Score, Spec};
use crate::mask::{Arm, Mask};
use crate::sets::set::{Selector, Span};
use crate::syntax::{
    Argument, Arguments, Entry, Kind, Lexer, MAX_DEPTH, MAX_TEXT, ParseError, Parsed, Token, Value, Written, unquote,
};
use std::str::FromStr;

/// A mask and its depth of nesting (an atom has depth 1).
struct Part {
    mask: Mask,
    depth: usize,
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// The next token of the text.
    token: Token,
    /// The end of the previous token, in bytes from the beginning of the text.
    last_end: usize,
    /// The nesting depth of the next token: the number of parentheses, `heads(...)`, `batch(...)`, `layers(...)` and
    /// complements `!` around it.
    depth: usize,
    /// True if the text may have scores after the mask.
    scores: bool,
}

impl FromStr for Mask {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text, false).map(|spec| spec.mask)
    }
}

impl FromStr for Spec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text, true)
    }
}

fn parse(text: &str, scores: bool) -> Result<Spec, ParseError> {
    if text.len() > MAX_TEXT {
        let beginning: String = text.chars().take(80).collect();
        let message = format!("the text has {} bytes, more than the {MAX_TEXT} allowed", text.len());
        let mut error = ParseError::at(0..beginning.len(), message)
            .suggest("give long data (documents, lengths, labels, arrays) as facts, outside of the text");
        error.text = beginning;
        return Err(*error);
    }
    Parser::new(text, scores).and_then(|mut parser| parser.spec()).map_err(|mut error| {
        error.text = text.to_string();
        *error
    })
}

/// The rules of the grammar of masks and specs, as functions.
impl<'a> Parser<'a> {
    fn new(text: &'a str, scores: bool) -> Parsed<Self> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Parser { text, lexer, token, last_end: 0, depth: 0, scores })
    }

    fn advance(&mut self) -> Parsed<Token> {
        let next = self.lexer.next()?;
        self.last_end = self.token.end;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn spec(&mut self) -> Parsed<Spec> {
        let mask = self.union()?.mask;
        let mut scores = Vec::new();
        while self.scores && self.token.kind == Kind::Plus {
            self.advance()?;
            scores.push(self.score()?);
        }
        match self.token.kind {
            Kind::End => Ok(Spec { mask, scores }),
            _ if !scores.is_empty() => Err(self.after_score()),
            _ => Err(self.after_mask(&[])),
        }
    }

    fn union(&mut self) -> Parsed<Part> {
        self.chain(Kind::Or, Self::intersection, Mask::any)
    }

    fn intersection(&mut self) -> Parsed<Part> {
        self.chain(Kind::And, Self::difference, Mask::all)
    }

    /// Reads one or more operands with the operator `operator` between them, such as `a | b | c`. `operand` reads one
    /// operand, and `join` makes one mask of all operands.
    fn chain(
        &mut self,
        operator: Kind,
        operand: fn(&mut Self) -> Parsed<Part>,
        join: fn(Vec<Mask>) -> Mask,
    ) -> Parsed<Part> {
        let first = operand(self)?;
        if self.token.kind != operator {
            return Ok(first);
        }
        let (mut depth, mut masks) = (first.depth, vec![first.mask]);
        while self.token.kind == operator {
            self.advance()?;
            let next = operand(self)?;
            depth = depth.max(next.depth);
            masks.push(next.mask);
        }
        self.part(join(masks), depth + 1)
    }

    fn difference(&mut self) -> Parsed<Part> {
        let mut left = self.unary()?;
        while self.token.kind == Kind::Minus {
            self.advance()?;
            let right = self.unary()?;
            left = self.part(left.mask - right.mask, left.depth.max(right.depth) + 1)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Part> {
        let mut complements = 0;
        while self.token.kind == Kind::Not {
            self.advance()?;
            complements += 1;
            self.deeper(complements)?;
        }
        self.depth += complements;
        let mut part = self.primary()?;
        self.depth -= complements;
        for _ in 0..complements {
            part = self.part(!part.mask, part.depth + 1)?;
        }
        Ok(part)
    }

    fn primary(&mut self) -> Parsed<Part> {
        match self.token.kind {
            Kind::LeftParen => {
                let open = self.advance()?;
                self.deeper(1)?;
                self.depth += 1;
                let part = self.union()?;
                self.depth -= 1;
                self.close(Kind::RightParen, open, "(")?;
                Ok(part)
            }
            Kind::Name => self.atom(),
            _ => Err(self.no_mask()),
        }
    }

    fn atom(&mut self) -> Parsed<Part> {
        let name = self.token;
        let Some(definition) = atoms::definition(self.slice(name)) else { return Err(self.unknown_atom()) };
        self.advance()?;
        let entry = &definition.word.entry;
        let read = match definition.read {
            Read::Arms(wrap) => return self.arms(entry, name, wrap),
            Read::Arguments(read) => read,
        };
        let arguments = self.arguments(entry, name)?;
        let mask = read(&arguments)?;
        check_node(mask.node())
            .map_err(|problem| ParseError::at(arguments.span.clone(), format!("`{}`: {problem}", entry.name)))?;
        Ok(Part { mask, depth: 1 })
    }

    fn score(&mut self) -> Parsed<Score> {
        let name = self.token;
        if name.kind != Kind::Name {
            return Err(self.no_score());
        }
        let Some(entry) = vocabulary::score(self.slice(name)) else { return Err(self.no_score()) };
        self.advance()?;
        let arguments = self.arguments(entry, name)?;
        let score = vocabulary::read(&arguments)?;
        check_score(&score)
            .map_err(|problem| ParseError::at(arguments.span.clone(), format!("`{}`: {problem}", entry.name)))?;
        Ok(score)
    }

    /// Reads `(selector: mask, ...)` after `heads`, `batch` or `layers`.
    fn arms(&mut self, entry: &'static Entry, name: Token, wrap: Arms) -> Parsed<Part> {
        if self.token.kind != Kind::LeftParen {
            let message = format!("`{}` needs indices and masks in parentheses", entry.name);
            return Err(ParseError::at(name.span(), message).suggest(format!("write for example `{}`", entry.example)));
        }
        let open = self.advance()?;
        self.deeper(1)?;
        self.depth += 1;
        let (mut arms, mut places, mut depth) = (Vec::new(), Vec::new(), 0);
        while self.token.kind != Kind::RightParen {
            let start = self.token.start;
            let selector = self.selector(entry)?;
            places.push(start..self.last_end);
            if self.token.kind != Kind::Colon {
                return Err(self
                    .unexpected(&["`:`"])
                    .suggest("write indices, a colon and a mask, as in `0..4: causal`"));
            }
            self.advance()?;
            let part = self.union()?;
            depth = depth.max(part.depth);
            arms.push(Arm { selector, mask: part.mask });
            if self.token.kind != Kind::Comma {
                break;
            }
            self.advance()?;
        }
        self.depth -= 1;
        self.close(Kind::RightParen, open, "(")?;
        check_arms(&arms).map_err(|(problem, arm)| {
            let place = arm.map_or(name.start..self.last_end, |arm| places[arm].clone());
            ParseError::at(place, format!("`{}`: {problem}", entry.name))
        })?;
        self.part(Mask::new(wrap(arms)), depth + 1)
    }

    /// Reads a selector: `0`, `0..4`, `[0, 2..4]`, `every 2`, `every 6 from 5`, `else`.
    fn selector(&mut self, entry: &'static Entry) -> Parsed<Selector> {
        if self.token.kind == Kind::Name {
            let selector = match self.slice(self.token) {
                "else" => {
                    self.advance()?;
                    return Ok(Selector::Else);
                }
                "every" => {
                    self.advance()?;
                    let step = self.whole_number()?;
                    let mut from = 0;
                    if self.token.kind == Kind::Name && self.slice(self.token) == "from" {
                        self.advance()?;
                        from = self.whole_number()?;
                    }
                    Selector::Every { step, from }
                }
                _ => return Err(self.no_selector(entry)),
            };
            return Ok(selector);
        }
        let start = self.token;
        if !matches!(start.kind, Kind::Int | Kind::DotDot | Kind::LeftBracket) {
            return Err(self.no_selector(entry));
        }
        let written = self.value()?;
        let items = match written.value {
            Value::List(items) => items,
            value => vec![Written { value, span: written.span }],
        };
        items.iter().map(arm_span).collect::<Parsed<_>>().map(Selector::Spans)
    }

    /// Reads the arguments after the name of an atom or a score.
    fn arguments(&mut self, entry: &'static Entry, name: Token) -> Parsed<Arguments> {
        let mut arguments = Vec::new();
        if self.token.kind == Kind::LeftParen {
            let open = self.advance()?;
            while self.token.kind != Kind::RightParen {
                arguments.push(self.argument()?);
                if self.token.kind != Kind::Comma {
                    break;
                }
                self.advance()?;
            }
            if self.token.kind != Kind::RightParen {
                return Err(self.after_argument(entry, open));
            }
            self.advance()?;
        }
        Arguments::assign(entry, name.start..self.last_end, arguments)
    }

    fn argument(&mut self) -> Parsed<Argument> {
        let written = self.value()?;
        if self.token.kind != Kind::Assign {
            return Ok(Argument { key: None, written });
        }
        let Value::Name(key) = written.value else {
            return Err(self.unexpected(&["`,`", "`)`"]).suggest("only a parameter's name can be before `=`"));
        };
        self.advance()?;
        Ok(Argument { key: Some((key, written.span)), written: self.value()? })
    }

    fn value(&mut self) -> Parsed<Written> {
        if self.token.kind != Kind::LeftBracket {
            return self.item();
        }
        let open = self.advance()?;
        let mut items = Vec::new();
        while self.token.kind != Kind::RightBracket {
            if self.token.kind == Kind::LeftBracket {
                return Err(self
                    .unexpected(&["a number", "a range"])
                    .suggest("a list cannot contain a list: write one list"));
            }
            items.push(self.item()?);
            if self.token.kind != Kind::Comma {
                break;
            }
            self.advance()?;
        }
        self.close(Kind::RightBracket, open, "[")?;
        Ok(Written { value: Value::List(items), span: open.start..self.last_end })
    }

    /// Reads one value of an argument, such as `3`, `0..4`, `name` or `"text"`. The value must not be a list.
    fn item(&mut self) -> Parsed<Written> {
        let start = self.token.start;
        let value = match self.token.kind {
            Kind::Name => Value::Name(self.text_of_next()?),
            Kind::Quoted => {
                let token = self.advance()?;
                Value::Quoted(unquote(self.slice(token), token.start)?)
            }
            Kind::Float => Value::Float(self.float()?),
            Kind::Minus => {
                self.advance()?;
                match self.token.kind {
                    Kind::Int => Value::Int(-self.int()?),
                    Kind::Float => Value::Float(-self.float()?),
                    _ => return Err(self.unexpected(&["a number after `-`"])),
                }
            }
            Kind::Int => {
                let first = self.token;
                let n = self.int()?;
                if self.token.kind == Kind::DotDot { self.range(Some(bound(n, first)?))? } else { Value::Int(n) }
            }
            Kind::DotDot => self.range(None)?,
            _ => return Err(self.no_value()),
        };
        Ok(Written { value, span: start..self.last_end })
    }

    /// Reads `..`, and the number after it if there is one. `start` is the number before `..`, which was already read,
    /// or `None` if there is none.
    fn range(&mut self, start: Option<usize>) -> Parsed<Value> {
        self.advance()?;
        let end = match self.token.kind {
            Kind::Int => {
                let token = self.token;
                Some(bound(self.int()?, token)?)
            }
            Kind::Minus => {
                return Err(ParseError::at(self.token.span(), "the end of a range cannot be negative")
                    .suggest("positions count from 0; write `a..` for everything from `a` on"));
            }
            _ => None,
        };
        Ok(Value::Range(start, end))
    }

    fn whole_number(&mut self) -> Parsed<usize> {
        let token = self.token;
        if token.kind != Kind::Int {
            return Err(self
                .unexpected(&["a whole number"])
                .suggest("write for example `every 2` or `every 6 from 5`"));
        }
        bound(self.int()?, token)
    }

    fn int(&mut self) -> Parsed<i128> {
        let token = self.advance()?;
        let digits = self.slice(token).replace('_', "");
        digits.parse().map_err(|_| number_too_large(token))
    }

    fn float(&mut self) -> Parsed<f64> {
        let token = self.advance()?;
        let digits = self.slice(token).replace('_', "");
        digits.parse().ok().filter(|x: &f64| x.is_finite()).ok_or_else(|| {
            ParseError::at(token.span(), "the number is too large").suggest("at most 1.7e308 is possible")
        })
    }

    fn text_of_next(&mut self) -> Parsed<String> {
        let token = self.advance()?;
        Ok(self.slice(token).to_string())
    }

    fn slice(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    fn part(&self, mask: Mask, depth: usize) -> Parsed<Part> {
        if depth > MAX_DEPTH { Err(self.too_deep()) } else { Ok(Part { mask, depth }) }
    }

    fn deeper(&self, levels: usize) -> Parsed<()> {
        if self.depth + levels > MAX_DEPTH { Err(self.too_deep()) } else { Ok(()) }
    }
}

fn number_too_large(token: Token) -> Box<ParseError> {
    ParseError::at(token.span(), "the number is too large").suggest("at most 18446744073709551615 is possible")
}

fn bound(n: i128, token: Token) -> Parsed<usize> {
    usize::try_from(n).map_err(|_| number_too_large(token))
}

fn arm_span(item: &Written) -> Parsed<Span> {
    match item.value {
        Value::Int(n) if (0..usize::MAX as i128).contains(&n) => Ok(Span::from(n as usize)),
        Value::Range(start, end) if end.is_none_or(|end| start.unwrap_or(0) <= end) => {
            Ok(Span { start: start.unwrap_or(0), end })
        }
        Value::Range(start, end) => {
            let (start, end) = (start.unwrap_or(0), end.unwrap_or(0));
            let message = format!("range {start}..{end} is reversed");
            Err(ParseError::at(item.span.clone(), message).suggest(format!("write {end}..{start}")))
        }
        _ => Err(ParseError::at(item.span.clone(), "expected indices, which count from 0")
            .suggest("write a number, a range such as `0..4`, or a list of these")),
    }
}
