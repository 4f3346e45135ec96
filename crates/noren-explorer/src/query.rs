//! Reading of query strings and parts of paths.

use crate::problem::{Problem, Result};
use std::str::FromStr;

/// The names and values of a query string.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string. Returns an error if a name is not in `known` or occurs twice.
    pub(crate) fn read(text: &str, known: &[&str]) -> Result<Query> {
        let wrong = |message: String| Err(Problem::new(message).hint("/openapi.json lists the parameters"));
        let mut values: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| decode(&text.replace('+', " "));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return wrong(format!("{pair} in the query is not UTF-8"));
            };
            if !known.contains(&name.as_str()) {
                return wrong(format!("unknown name {name:?} in the query: expected {}", known.join(", ")));
            }
            if values.iter().any(|(earlier, _)| *earlier == name) {
                return wrong(format!("the query has {name} twice"));
            }
            values.push((name, value));
        }
        Ok(Query(values))
    }

    /// Returns the value of this name.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Returns the value of this name as a number.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        self.text(name).map(|text| number(name, &text)).transpose()
    }
}

/// Reads the number `text`; `name` is for the message of the error.
pub(crate) fn number<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| {
        Problem::new(format!("{name}={text}: expected a whole number of at least 0"))
            .hint("/openapi.json lists the parameters")
    })
}

/// Replaces each percent sign and two hexadecimal digits with the byte of this value. Other percent signs stay. Returns
/// `None` if the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
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
        assert!(read("q=-1").expect("a query").number::<u64>("q").is_err());
    }
}
