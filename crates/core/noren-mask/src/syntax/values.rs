//! Arguments of atoms and score modifiers in the text form of masks, and their conversion to the types of parameters.

use super::entry::{Entry, Param};
use super::error::{ParseError, Parsed, or_list};
use crate::sets::scalar::Rows;
use crate::sets::set::Span;
use std::ops::Range;

/// A value as written in the text, before conversion to the type of its parameter.
#[derive(Debug)]
pub(crate) enum Value {
    Int(i128),
    Float(f64),
    Range(Option<usize>, Option<usize>),
    List(Vec<Written>),
    Quoted(String),
    Name(String),
}

/// The value of an argument, with its range of bytes in the text.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) value: Value,
    pub(crate) span: Range<usize>,
}

/// An argument: a value and, if the text contains it, the name of the parameter.
pub(crate) struct Argument {
    pub(crate) key: Option<(String, Range<usize>)>,
    pub(crate) written: Written,
}

/// The arguments of an atom or a score modifier, one optional value for each parameter.
pub(crate) struct Arguments {
    pub(crate) entry: &'static Entry,
    /// The range of bytes, in the text, of the whole atom or score modifier: its name and its arguments.
    pub(crate) span: Range<usize>,
    values: Vec<Option<Written>>,
}

/// An argument together with its parameter. Error messages contain the description of the parameter.
pub(crate) struct Given<'a> {
    entry: &'static Entry,
    param: &'static Param,
    written: &'a Written,
}

impl Arguments {
    /// Returns the arguments, each assigned to its parameter. Returns an error if a parameter is unknown, is given
    /// twice, or is required and missing. `span` is the range of bytes of the whole atom in the text.
    pub(crate) fn assign(entry: &'static Entry, span: Range<usize>, arguments: Vec<Argument>) -> Parsed<Self> {
        let mut values: Vec<Option<Written>> = entry.params.iter().map(|_| None).collect();
        for (position, argument) in arguments.into_iter().enumerate() {
            let index = match &argument.key {
                Some((key, place)) => keyword(entry, key, place)?,
                None if position < entry.positional => position,
                None => return Err(too_many(entry, argument.written.span)),
            };
            if values[index].is_some() {
                let place = argument.key.map_or(argument.written.span, |(_, place)| place);
                let message = format!("`{}`: `{}` is given twice", entry.name, entry.params[index].name);
                return Err(ParseError::at(place, message).suggest("leave one out"));
            }
            values[index] = Some(argument.written);
        }
        for (param, value) in entry.params.iter().zip(&values) {
            if param.required && value.is_none() {
                let message = format!("`{}` needs `{}`, the {}", entry.name, param.name, param.what);
                return Err(ParseError::at(span, message).suggest(format!("write for example `{}`", entry.example)));
            }
        }
        Ok(Arguments { entry, span, values })
    }

    /// Returns the argument of the parameter with index `index`, counted from 0, or `None` if the argument was not
    /// given.
    pub(crate) fn get(&self, index: usize) -> Option<Given<'_>> {
        let written = self.values[index].as_ref()?;
        Some(Given { entry: self.entry, param: &self.entry.params[index], written })
    }

    /// Returns the argument of the required parameter with index `index`, counted from 0. [`Arguments::assign`] has
    /// checked that the argument was given.
    pub(crate) fn need(&self, index: usize) -> Parsed<Given<'_>> {
        self.get(index).ok_or_else(|| ParseError::at(self.span.clone(), format!("`{}` is incomplete", self.entry.name)))
    }
}

fn keyword(entry: &'static Entry, key: &str, place: &Range<usize>) -> Parsed<usize> {
    if let Some(index) = entry.params.iter().position(|p| p.name == key) {
        return Ok(index);
    }
    let names = || entry.params.iter().map(|p| p.name);
    let error = ParseError::at(place.clone(), format!("`{}` has no argument `{}`", entry.name, super::lex::clip(key)))
        .expecting(names().map(|name| format!("`{name}`")));
    Err(match super::suggest::nearest(key, names()) {
        Some(name) => error.suggest(format!("did you mean `{name}`?")),
        None if entry.params.is_empty() => error.suggest(format!("write `{}`", entry.name)),
        None => error.suggest(format!("write for example `{}`", entry.example)),
    })
}

fn too_many(entry: &'static Entry, span: Range<usize>) -> Box<ParseError> {
    let names: Vec<String> = entry.params.iter().take(entry.positional).map(|p| format!("`{}`", p.name)).collect();
    match names.len() {
        0 => ParseError::at(span, format!("`{}` takes no arguments", entry.name))
            .suggest(format!("write `{}`", entry.name)),
        _ if entry.lists => ParseError::at(span, format!("`{}` takes only one value without a name", entry.name))
            .suggest(format!("put several values into a list, `{}([.., ..])`", entry.name)),
        n if n < entry.params.len() => {
            ParseError::at(span, format!("`{}` takes further arguments only with their names", entry.name))
                .suggest(format!("write for example `{}`", entry.example))
        }
        n => {
            let plural = if n == 1 { "argument" } else { "arguments" };
            let message = format!("`{}` takes {n} {plural} ({}), but more are given", entry.name, names.join(", "));
            ParseError::at(span, message).suggest(format!("write for example `{}`", entry.example))
        }
    }
}

impl Value {
    /// Returns a description of the given value, for a message.
    fn describe(&self) -> String {
        match self {
            Value::Int(n) => format!("the number {n}"),
            Value::Float(x) => format!("the number {x}"),
            Value::Range(..) => "a range".into(),
            Value::List(_) => "a list".into(),
            Value::Quoted(text) => format!("the text \"{}\"", super::lex::clip(text).escape_debug()),
            Value::Name(name) => format!("the name `{}`", super::lex::clip(name)),
        }
    }
}

impl Given<'_> {
    /// Returns the error for the value `item`, which the parameter does not accept. `wanted` describes the values that
    /// it accepts.
    fn wrong(&self, item: &Written, wanted: &str) -> Box<ParseError> {
        let message =
            format!("`{}`: `{}` must be {wanted}, found {}", self.entry.name, self.param.name, item.value.describe());
        ParseError::at(item.span.clone(), message).suggest(format!("write for example `{}`", self.entry.example))
    }

    fn too_large(&self, item: &Written, limit: &str) -> Box<ParseError> {
        let message = format!("`{}`: `{}` is too large", self.entry.name, self.param.name);
        ParseError::at(item.span.clone(), message).suggest(format!("at most {limit} is possible"))
    }

    fn whole_of(&self, item: &Written) -> Parsed<usize> {
        match item.value {
            Value::Int(n) if n < 0 => Err(self.wrong(item, "0 or more")),
            Value::Int(n) => usize::try_from(n).map_err(|_| self.too_large(item, "18446744073709551615")),
            Value::Float(x) if x >= 0.0 && x.fract() == 0.0 && x < 1e15 => {
                let message = format!("`{}`: `{}` must be a whole number", self.entry.name, self.param.name);
                Err(ParseError::at(item.span.clone(), message).suggest(format!("write `{x}`")))
            }
            _ => Err(self.wrong(item, "a whole number")),
        }
    }

    fn integer_of(&self, item: &Written) -> Parsed<i64> {
        match item.value {
            Value::Int(n) => i64::try_from(n).map_err(|_| self.too_large(item, "9223372036854775807")),
            _ => Err(self.wrong(item, "a whole number")),
        }
    }

    fn real_of(&self, item: &Written) -> Parsed<f64> {
        match item.value {
            Value::Int(n) => Ok(n as f64),
            Value::Float(x) => Ok(x),
            _ => Err(self.wrong(item, "a number")),
        }
    }

    fn span_of(&self, item: &Written) -> Parsed<Span> {
        match item.value {
            Value::Int(_) => {
                let at = self.whole_of(item)?;
                let end = at.checked_add(1).ok_or_else(|| self.too_large(item, "18446744073709551614"))?;
                Ok(Span { start: at, end: Some(end) })
            }
            Value::Range(start, end) => {
                let start = start.unwrap_or(0);
                if let Some(end) = end.filter(|end| *end < start) {
                    let message = format!("range {start}..{end} is reversed");
                    return Err(ParseError::at(item.span.clone(), message).suggest(format!("write {end}..{start}")));
                }
                Ok(Span { start, end })
            }
            _ => Err(self.wrong(item, "a position or a range")),
        }
    }

    fn list<T>(&self, wanted: &str, read: impl Fn(&Self, &Written) -> Parsed<T>) -> Parsed<Vec<T>> {
        match &self.written.value {
            Value::List(items) => items.iter().map(|item| read(self, item)).collect(),
            _ => Err(self.wrong(self.written, wanted)),
        }
    }

    /// Returns the value as an integer of at least 0.
    pub(crate) fn whole(&self) -> Parsed<usize> {
        self.whole_of(self.written)
    }

    /// Returns the value as an integer, which may be negative.
    pub(crate) fn integer(&self) -> Parsed<i64> {
        self.integer_of(self.written)
    }

    /// Returns the value as a real number.
    pub(crate) fn real(&self) -> Parsed<f64> {
        self.real_of(self.written)
    }

    /// Returns the value as a list of integers of at least 0.
    pub(crate) fn wholes(&self) -> Parsed<Vec<usize>> {
        self.list("a list of whole numbers", Self::whole_of)
    }

    /// Returns the value as a list of integers of at least 0, one for each dimension. A single number applies to all of
    /// the `dimensions` dimensions.
    pub(crate) fn wholes_or_one(&self, dimensions: usize) -> Parsed<Vec<usize>> {
        match self.written.value {
            Value::Int(_) => Ok(vec![self.whole()?; dimensions]),
            _ => self.wholes(),
        }
    }

    /// Returns the value as a list of integers, which may be negative.
    pub(crate) fn integers(&self) -> Parsed<Vec<i64>> {
        self.list("a list of whole numbers", Self::integer_of)
    }

    /// Returns the value as a list of real numbers.
    pub(crate) fn reals(&self) -> Parsed<Vec<f64>> {
        self.list("a list of numbers", Self::real_of)
    }

    /// Returns the value as one integer for all batch rows, or as a list with one integer for each batch row.
    pub(crate) fn per_row(&self) -> Parsed<Rows<usize>> {
        match self.written.value {
            Value::List(_) => Ok(Rows::Each(self.wholes()?)),
            _ => Ok(Rows::All(self.whole()?)),
        }
    }

    /// Returns the value as ranges of positions. In the text, the value is a position, a range, or a list of positions
    /// and ranges.
    pub(crate) fn spans(&self) -> Parsed<Vec<Span>> {
        match self.written.value {
            Value::List(_) => self.list("a list of ranges", Self::span_of),
            Value::Int(_) | Value::Range(..) => Ok(vec![self.span_of(self.written)?]),
            _ => Err(self.wrong(self.written, "a position, a range or a list of these")),
        }
    }

    /// Returns the value as a name. In the text, the name may have quotes.
    pub(crate) fn name(&self) -> Parsed<String> {
        match &self.written.value {
            Value::Name(name) | Value::Quoted(name) => Ok(name.clone()),
            Value::List(_) => Err(self.wrong(self.written, "one name")),
            _ => Err(self.wrong(self.written, "a name")),
        }
    }

    /// Returns the index in `words` of the name that the text gives. For example, the index of `left` in `left` and
    /// `right` is 0. Returns an error if `words` does not contain the name.
    pub(crate) fn word(&self, words: &[&str]) -> Parsed<usize> {
        let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        match &self.written.value {
            Value::Name(name) | Value::Quoted(name) => match words.iter().position(|word| word == name) {
                Some(index) => Ok(index),
                None => Err(self.wrong(self.written, &or_list(&quoted))),
            },
            _ => Err(self.wrong(self.written, &or_list(&quoted))),
        }
    }
}
