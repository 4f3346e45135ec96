//! The JSON reader: `Json` is a value without duplicate keys. `At` is a value together with its path, which error
//! messages contain.

use crate::Error;
use crate::syntax::nearest;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value of JSON, or of another self-describing format.
#[derive(PartialEq, Debug)]
pub(crate) enum Json {
    Null,
    Flag(bool),
    Whole(i64),
    /// A whole number larger than the maximum of `i64`.
    Huge(u64),
    Real(f64),
    Text(String),
    List(Vec<Json>),
    /// An object: keys with their values, in the order of the text, without duplicate keys.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses `text`. `what` names the text in errors.
    pub(crate) fn parse(text: &str, what: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|e| Error::fact(what, format!("not valid JSON: {}", advise(text, &e))))
    }

    /// Returns the value as text for error messages. Long values are shortened.
    fn describe(&self) -> String {
        match self {
            Json::Null => "null".into(),
            Json::Flag(b) => b.to_string(),
            Json::Whole(n) => n.to_string(),
            Json::Huge(n) => n.to_string(),
            Json::Real(x) if x.abs() < 1e21 => x.to_string(),
            Json::Real(x) => format!("{x:e}"),
            Json::Text(t) if t.chars().nth(40).is_some() => format!("{:?}...", t.chars().take(40).collect::<String>()),
            Json::Text(t) => format!("{t:?}"),
            Json::List(list) if list.len() == 1 => "a list of 1 value".into(),
            Json::List(list) => format!("a list of {} values", list.len()),
            Json::Object(_) => "an object".into(),
        }
    }
}

/// Returns the message of the JSON parser. Adds advice if `text` has a number that JSON does not support.
fn advise(text: &str, error: &serde_json::Error) -> String {
    const NO_NUMBERS: [&str; 5] = ["NaN", "nan", "Infinity", "inf", "Inf"];
    let message = error.to_string();
    if message.starts_with("number out of range") {
        return format!("{message}: numbers go up to 1.8e308");
    }
    if message.starts_with("recursion limit") {
        return format!("{message}: the JSON has more levels of nesting than facts can have");
    }
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or("").as_bytes();
    let mut start = error.column().min(line.len());
    while start > 0 && (line[start - 1].is_ascii_alphabetic() || line[start - 1] == b'-') {
        start -= 1;
    }
    let word: String = line[start..]
        .iter()
        .map(|b| char::from(*b))
        .skip_while(|c| *c == '-')
        .take_while(char::is_ascii_alphabetic)
        .collect();
    match NO_NUMBERS.contains(&word.as_str()) {
        true => {
            format!("{message}: JSON has no {word}: write minus infinity in an additive array as the text \"-inf\"")
        }
        false => message,
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
                Ok(Json::Flag(flag))
            }

            fn visit_i64<E>(self, n: i64) -> Result<Json, E> {
                Ok(Json::Whole(n))
            }

            fn visit_u64<E>(self, n: u64) -> Result<Json, E> {
                Ok(i64::try_from(n).map_or(Json::Huge(n), Json::Whole))
            }

            fn visit_f64<E>(self, x: f64) -> Result<Json, E> {
                Ok(Json::Real(x))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::Text(text.into()))
            }

            fn visit_string<E>(self, text: String) -> Result<Json, E> {
                Ok(Json::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    list.push(item);
                }
                Ok(Json::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut fields: Vec<(String, Json)> = Vec::new();
                let mut known = std::collections::HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if !known.insert(key.clone()) {
                        return Err(de::Error::custom(format!("the key {key:?} appears twice")));
                    }
                    fields.push((key, map.next_value()?));
                }
                Ok(Json::Object(fields))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A value together with its path in the whole text. Error messages begin with the path, such as `documents[1][0]: got
/// "x", expected a length: ...`.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) value: &'a Json,
    step: Step<'a>,
    up: Option<&'a At<'a>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            up.fmt(f)?;
        }
        match self.step {
            Step::Key(key) => {
                let dot = if self.up.is_some_and(|up| up.up.is_some()) { "." } else { "" };
                write!(f, "{dot}{}", key.chars().take(40).collect::<String>())
            }
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl<'a> At<'a> {
    /// Returns `value` as the whole text: with an empty path.
    pub(crate) fn root(value: &'a Json) -> Self {
        At { value, step: Step::Key(""), up: None }
    }

    /// Returns an error with the path of this value and the description `problem`.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        let place = if self.up.is_none() { "JSON".into() } else { self.to_string() };
        Error::fact(place, problem)
    }

    /// Returns `error` with the path of this value in place of the name of the fact.
    pub(crate) fn rename(&self, error: Error) -> Error {
        match error {
            Error::Fact { problem, .. } => self.error(problem),
            other => other,
        }
    }

    /// Returns the error "got ..., expected ..." for this value; `expected` describes the expected value.
    pub(crate) fn wrong(&self, expected: &str) -> Error {
        self.error(format!("got {}, expected {expected}", self.value.describe()))
    }

    /// Returns the entries of a list. Returns an error that names `expected` if the value is not a list.
    pub(crate) fn items(&'a self, expected: &str) -> Result<impl ExactSizeIterator<Item = At<'a>>, Error> {
        match self.value {
            Json::List(list) => {
                Ok(list.iter().enumerate().map(|(i, value)| At { value, step: Step::Index(i), up: Some(self) }))
            }
            _ => Err(self.wrong(expected)),
        }
    }

    /// Calls `read` for each entry of a list, and returns the results. Returns an error that names `expected` if the
    /// value is not a list.
    pub(crate) fn list<T>(
        &self,
        expected: &str,
        read: impl FnMut(At<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.items(expected)?.map(read).collect()
    }

    /// Returns an error if the value is not an object or has a key that is not in `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Error> {
        let Json::Object(list) = self.value else { return Err(self.wrong("an object")) };
        let Some((key, _)) = list.iter().find(|(key, _)| !known.contains(&key.as_str())) else { return Ok(()) };
        let shown: String = key.chars().take(40).collect();
        let meant = match nearest(key, known.iter().copied()) {
            Some(name) => format!("did you mean {name:?}?"),
            None => format!("known are {}", known.join(", ")),
        };
        Err(self.error(format!("the key {shown:?} is not known: {meant}")))
    }

    /// Returns the fields of an object as (key, value). Returns an error that names `expected` if the value is not an
    /// object.
    pub(crate) fn entries(&'a self, expected: &str) -> Result<impl Iterator<Item = (&'a str, At<'a>)>, Error> {
        match self.value {
            Json::Object(fields) => Ok(fields.iter().map(|(key, value)| {
                let key = key.as_str();
                (key, At { value, step: Step::Key(key), up: Some(self) })
            })),
            _ => Err(self.wrong(expected)),
        }
    }

    /// Returns the field `key` of an object, or `None` if the object has no such field.
    pub(crate) fn field(&'a self, key: &'a str) -> Option<At<'a>> {
        let Json::Object(fields) = self.value else { return None };
        let (_, value) = fields.iter().find(|(name, _)| name == key)?;
        Some(At { value, step: Step::Key(key), up: Some(self) })
    }

    /// Checks that the value is equal to `made`.
    ///
    /// # Errors
    /// Returns the place of the first difference, at most `depth` keys and indices below this place.
    pub(crate) fn same_as(&self, made: &Json, depth: usize) -> Result<(), String> {
        let differs = || Err(self.to_string());
        match (self.value, made) {
            (given, made) if given == made => Ok(()),
            (Json::List(given), Json::List(made)) if depth > 0 && given.len() == made.len() => {
                let mut items = self.items("a list").into_iter().flatten().zip(made);
                items.try_for_each(|(item, made)| item.same_as(made, depth - 1))
            }
            (Json::Object(given), Json::Object(made)) if depth > 0 && given.len() == made.len() => {
                let same = |(key, made): &(String, Json)| match self.field(key) {
                    Some(field) => field.same_as(made, depth - 1),
                    None => differs(),
                };
                made.iter().try_for_each(same)
            }
            _ => differs(),
        }
    }

    /// Returns the field `key` of an object, or an error if the object has no such field.
    pub(crate) fn needed(&'a self, key: &'a str) -> Result<At<'a>, Error> {
        self.field(key).ok_or_else(|| self.error(format!("the key {key:?} is missing")))
    }

    /// Returns the value as a whole number, or an error if it is not a whole number from `min` to `max`. `what` names
    /// the number in the error, with an article: "a length".
    pub(crate) fn whole(&self, what: &str, min: i64, max: i64) -> Result<i64, Error> {
        let expected = || match (min, max) {
            (i64::MIN, i64::MAX) => format!("{what}: a whole number"),
            (i64::MIN, _) => format!("{what}: a whole number up to {max}"),
            (_, i64::MAX) => format!("{what}: a whole number of at least {min}"),
            _ => format!("{what}: a whole number from {min} to {max}"),
        };
        let refuse = |why: &str| Err(self.error(format!("{} {why}, expected {}", self.value.describe(), expected())));
        match *self.value {
            Json::Whole(n) if (min..=max).contains(&n) => Ok(n),
            Json::Whole(n) if n < min => refuse("is too small"),
            Json::Whole(_) | Json::Huge(_) => refuse("is too large"),
            Json::Real(x) if x.is_finite() && x.fract() != 0.0 => refuse("is not whole"),
            Json::Real(x) if x.is_finite() && x > max as f64 => refuse("is too large"),
            Json::Real(x) if x.is_finite() && x < min as f64 => refuse("is too small"),
            Json::Real(x) if x.is_finite() => Err(self.error(format!(
                "{} is written with a decimal point or exponent, expected {}",
                self.value.describe(),
                expected()
            ))),
            _ => Err(self.wrong(&expected())),
        }
    }

    /// Returns the value as a text. Returns an error that names `expected` if the value is not a text.
    pub(crate) fn text(&self, expected: &str) -> Result<&'a str, Error> {
        match self.value {
            Json::Text(text) => Ok(text),
            _ => Err(self.wrong(expected)),
        }
    }

    /// Returns the value as a Boolean: 1 and true are true, 0 and false are false. All other values give an error.
    pub(crate) fn flag(&self) -> Result<bool, Error> {
        match *self.value {
            Json::Flag(flag) => Ok(flag),
            Json::Whole(0) => Ok(false),
            Json::Whole(1) => Ok(true),
            Json::Real(x) if x == 0.0 || x == 1.0 => Ok(x == 1.0),
            _ => Err(self.wrong("0, 1, true or false")),
        }
    }
}
