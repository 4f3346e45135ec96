//! Functions that several exports of a mask use: the picture for a request, the facts as JSON, and quoted texts.

use crate::request::call::{Call, Pair};
use crate::request::problem::{Problem, Result};
use crate::request::scene::Known;
use noren_mask::{Facts, PlanOptions};
use noren_picture::{Draw, Picture};

/// Returns the picture for a request: of the mask `known`, or of the difference between `known` and `other` if `other`
/// is given.
pub(super) fn picture<'a>(known: &'a Known, other: Option<&'a Known>, call: &Call) -> Result<Picture<'a>> {
    let bound = &known.bound;
    let picture = match other {
        Some(other) => bound.picture_of_difference(&other.bound),
        None => bound.picture(),
    };
    let picture = match one(call)? {
        Some(Pair { batch, head }) => picture.batch(batch).head(head),
        None => picture,
    };
    let picture = part(picture, known, call)?;
    Ok(if call.query.flag("plan")? && other.is_none() { picture.tiles(PlanOptions::default()) } else { picture })
}

/// Returns the batch row and the head to draw; `None` for all of them.
pub(super) fn one(call: &Call) -> Result<Option<Pair>> {
    let given = call.query.text("batch").or(call.query.text("head"));
    given.map(|_| call.pair()).transpose()
}

/// Restricts a picture to the queries and keys of the parameters `rows` and `keys`.
pub(super) fn part<'a>(mut picture: Picture<'a>, known: &Known, call: &Call) -> Result<Picture<'a>> {
    let shape = known.bound.shape();
    if let Some(rows) = call.query.text("rows") {
        picture = picture.queries(range(&rows, "rows", shape.q_len())?);
    }
    if let Some(keys) = call.query.text("keys") {
        picture = picture.keys(range(&keys, "keys", shape.kv_len())?);
    }
    Ok(picture)
}

/// Returns the facts of a mask (the data with which it was bound, such as lengths and documents) as JSON; `None` if
/// the mask has no facts.
pub(super) fn facts(known: &Known) -> Result<Option<String>> {
    let facts = known.bound.facts();
    Ok(if *facts == Facts::new() { None } else { Some(facts.to_json()?) })
}

/// Returns a text as a quoted string, which is valid in Python and in JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Parses `text`, a range such as `a..b`. Without `a`, the range begins at 0; without `b`, the range ends at `len`.
/// `what` is the name of the parameter in error messages.
fn range(text: &str, what: &str, len: usize) -> Result<std::ops::Range<usize>> {
    let ends = text.split_once("..").map(|(a, b)| {
        let number = |text: &str, default| if text.is_empty() { Ok(default) } else { text.parse::<usize>() };
        Ok::<_, std::num::ParseIntError>((number(a, 0)?, number(b, len)?))
    });
    match ends {
        Some(Ok((start, end))) if start <= end => Ok(start..end),
        _ => Err(Problem::new(format!(
            "{what}={text}: expected a range such as 0..32, 100.. or ..8; its start must not be after its end"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_a_start_that_is_not_after_the_end() {
        assert_eq!(
            [range("2..5", "rows", 9), range("7..", "rows", 9), range("..", "rows", 9)],
            [Ok(2..5), Ok(7..9), Ok(0..9)]
        );
        for text in ["8..3", "12..", "3", "a..b", ""] {
            assert!(range(text, "rows", 9).is_err(), "{text}");
        }
    }
}
