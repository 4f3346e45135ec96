//! Parsing of query strings, and of the variable parts of paths.

use crate::request::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The parameters of a query string as (name, value).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string. Returns an error if a name is not in `known` or occurs twice.
    pub(crate) fn read(text: &str, known: &[&str]) -> Result<Query> {
        let wrong = |message: String| Err(Problem::new(message).hint("/js/base/api.js describes the requests"));
        let mut values: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| decode(&text.replace('+', " "));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return wrong(format!("{pair} in the query string is not UTF-8"));
            };
            if !known.contains(&name.as_str()) {
                return wrong(match known {
                    [] => format!("unknown parameter {name:?} in the query string: this path has no parameters"),
                    _ => format!("unknown parameter {name:?} in the query string: expected {}", known.join(", ")),
                });
            }
            if values.iter().any(|(earlier, _)| *earlier == name) {
                return wrong(format!("the query string has the parameter {name} twice: give it once"));
            }
            values.push((name, value));
        }
        Ok(Query(values))
    }

    /// Returns the value of the parameter `name`; `None` if the query string does not have this parameter.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Returns true if the parameter `name` is 1, and false if it is 0 or missing. Returns an error for other values.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.text(name).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(Problem::new(format!("{name}={other}: expected 0 or 1"))),
        }
    }

    /// Returns the value of the parameter `name` as a number; `None` if the query string does not have this parameter.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        self.text(name).map(|text| number(name, &text)).transpose()
    }
}

/// Parses the number `text`. `name` is the name of the parameter in the error message.
pub(crate) fn number<T: FromStr>(name: &str, text: &str) -> Result<T> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| {
        let wrong = if digits { "the number is too large" } else { "expected a whole number of at least 0" };
        Problem::new(format!("{name}={text}: {wrong}")).hint("/js/base/api.js describes the requests")
    })
}

/// Decodes percent signs: a percent sign and the two hexadecimal digits after it become one byte, so `a%20b` becomes `a
/// b`. Percent signs without such digits stay. Returns `None` if the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    percent_encoding::percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_replaced() {
        assert_eq!(decode("a%20%C3%a9%").as_deref(), Some("a é%"));
        assert_eq!(decode("%f"), Some("%f".into()));
        assert_eq!(decode("%ff"), None);
    }

    #[test]
    fn queries_have_each_known_name_once() {
        let read = |text| Query::read(text, &["q", "as"]);
        let query = read("q=3&as=a+b%2B&").expect("a query");
        assert_eq!((query.number("q"), query.text("as").as_deref()), (Ok(Some(3)), Some("a b+")));
        assert_eq!(query.text("other"), None);
        for text in ["q=1&q=2", "p=1", "q=%ff", "=1"] {
            assert!(read(text).is_err(), "{text}");
        }
        let wrong = |text, as_flag: bool| {
            let query = read(text).expect("a query");
            let error = if as_flag { query.flag("q").err() } else { query.number::<u8>("q").err() };
            error.expect("an error").message.clone()
        };
        assert_eq!(wrong("q=-1", false), "q=-1: expected a whole number of at least 0");
        assert_eq!(wrong("q=256", false), "q=256: the number is too large");
        assert_eq!(wrong("q=2", true), "q=2: expected 0 or 1");
        let flags = ["", "q=0", "q=1"].map(|text| read(text).expect("a query").flag("q"));
        assert_eq!(flags, [Ok(false), Ok(false), Ok(true)]);
        let none = Query::read("q=1", &[]).expect_err("a path without parameters");
        assert_eq!(none.message, "unknown parameter \"q\" in the query string: this path has no parameters");
    }
}
