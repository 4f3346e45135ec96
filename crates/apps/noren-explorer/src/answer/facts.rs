//! The answer for pasted arrays: the facts in the arrays. An ambiguous array has several readings, which are possible
//! meanings with their facts.

use crate::request::pasted::{Pasted, arrays};
use crate::request::problem::{Problem, Result};
use crate::request::state::{Answer, json};
use noren_mask::batch::{self, Entry, Meaning, Options, meaning};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as object};

/// The maximum number of cells of an array that becomes a mask.
const MOST_CELLS: usize = 1 << 20;
/// The name that an array gets in the facts if the array is itself a mask.
const ARRAY: &str = "pasted";

/// The request: a text with one or more arrays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    text: String,
}

/// One possible meaning of the pasted arrays.
#[derive(Clone, Serialize)]
struct Reading {
    /// The kind of the array, such as `cu_seqlens`.
    name: &'static str,
    /// A sentence that explains to the user how the array was interpreted.
    says: String,
    facts: Value,
    /// The number of batch rows. The next field, `len`, is the number of tokens of each batch row.
    rows: usize,
    len: usize,
    /// The text of a mask that uses the facts.
    mask: &'static str,
}

/// Returns the possible meanings (readings) of the arrays in a text. If there are several readings, the page lets the
/// user choose.
pub(crate) fn facts(body: &[u8]) -> Answer {
    let Request { text } = serde_json::from_slice(body)?;
    let (readings, refused) = readings(&arrays(&text)?)?;
    json(&object!({ "readings": readings, "refused": refused }))
}

/// Returns the name of the array if the name has a meaning.
fn known(array: &Pasted) -> Option<&str> {
    array.name.as_deref().map(str::trim).filter(|name| meaning(name).is_some())
}

/// Returns the possible meanings (readings) of the arrays, and for each excluded meaning the reason.
fn readings(found: &[Pasted]) -> Result<(Vec<Reading>, Vec<String>)> {
    let entry = |array: &Pasted| Entry {
        name: known(array).map(str::to_string).or_else(|| array.name.clone().filter(|_| found.len() > 1)),
        shape: array.shape.clone(),
        values: array.values.clone(),
        float: array.float,
    };
    let entries: Vec<Entry> = found.iter().map(entry).collect();
    let (mut list, mut refused) = match batch::read(&entries, &Options::default()) {
        Ok(readings) => (readings.found.iter().map(reading).collect::<Result<Vec<_>>>()?, readings.refused),
        Err(error) if entries.iter().all(|entry| entry.name.is_some()) => return Err(error.into()),
        Err(error) => (Vec::new(), vec![error.to_string()]),
    };
    if let [array] = found
        && known(array).is_none()
    {
        match cells(array) {
            Ok(reading) => list.push(reading),
            Err(problem) => refused.push(format!("as cells: {}", problem.message)),
        }
    }
    match list.is_empty() {
        true => Err(Problem::new(format!("the array gives no facts: {}", refused.join("; ")))),
        false => Ok((list, refused)),
    }
}

fn reading(found: &batch::Reading) -> Result<Reading> {
    let facts = serde_json::to_value(&found.facts)?;
    let padded = facts.get("lengths").or(facts.get("real_keys")).is_some();
    let mask = match (found.facts.has_documents(), padded) {
        (true, true) => "causal & documents & padding",
        (true, false) => "causal & documents",
        (false, true) => "padding",
        (false, false) => "causal",
    };
    let (name, says) = match &found.says[..] {
        [(name, says)] => (kind(name), says.clone()),
        _ => ("batch", found.explanation().trim_end_matches('.').to_string()),
    };
    Ok(Reading { name, says, facts, rows: found.size.0, len: found.size.1, mask })
}

/// Returns the kind of an array by its name, for the page.
fn kind(name: &str) -> &'static str {
    match meaning(name) {
        Some(Meaning::SegmentsFromZero) => Meaning::Segments.names()[0],
        Some(meaning) => meaning.names()[0],
        None => "batch",
    }
}

/// Reads an array of queries and keys as the cells of a mask.
fn cells(array: &Pasted) -> Result<Reading> {
    let (rows, len) = match array.shape[..] {
        [q, k] if q == k && q > 1 => (1, k),
        [batch, _, q, k] if q == k && q > 1 => (batch, k),
        _ => return Err(Problem::new("a mask of queries and keys has as many rows as columns")),
    };
    if array.values.len() > MOST_CELLS {
        return Err(Problem::new(format!("the array has {} cells: give at most {MOST_CELLS}", array.values.len())));
    }
    let added = array.values.iter().any(|cell| *cell < 0.0);
    let known = |cell: &f64| if added { *cell == 0.0 || *cell <= -1e4 } else { *cell == 0.0 || *cell == 1.0 };
    if !array.values.iter().all(known) {
        return Err(Problem::new("a mask of queries and keys has only 0 and 1, or only 0 and large negative numbers"));
    }
    let mut level: Vec<Value> = array.values.iter().map(|cell| object!(u8::from((*cell == 0.0) == added))).collect();
    for size in array.shape[1..].iter().rev() {
        level = level.chunks(*size).map(|part| Value::Array(part.to_vec())).collect();
    }
    let facts = object!({ "arrays": { ARRAY: { "keep": level } } });
    let says = format!("the cells of a mask of {len} queries and {len} keys; {} is allowed", u8::from(!added));
    Ok(Reading { name: "cells", says, facts, rows, len, mask: "dense(pasted)" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use noren_mask::Facts;

    fn read_text(text: &str) -> Vec<(String, Value)> {
        let found = arrays(text).expect("arrays");
        readings(&found)
            .expect("readings")
            .0
            .into_iter()
            .map(|reading| (reading.name.to_string(), reading.facts))
            .collect()
    }

    #[test]
    fn arrays_are_recognised() {
        for (text, name, facts) in [
            ("[0, 5, 32]", "cu_seqlens", object!({ "documents": [[5, 27]] })),
            ("[[1, 1, 0, 0], [1, 1, 1, 0]]", "attention_mask", object!({ "lengths": [2, 3] })),
            ("[0, 1, 2, 0, 1]", "position_ids", object!({ "documents": [[3, 2]] })),
            ("[[0.0, 0.0, -inf]]", "attention_mask", object!({ "lengths": [2] })),
            ("[[[[1, 1, 0]]]]", "attention_mask", object!({ "lengths": [2] })),
            ("lengths = [3, 5]", "lengths", object!({ "lengths": [3, 5] })),
        ] {
            let found = read_text(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].0, name, "{text}");
            let given = Facts::from_json(&found[0].1.to_string()).expect("facts");
            assert_eq!(given, Facts::from_json(&facts.to_string()).expect("facts"), "{text}: {}", found[0].1);
        }
    }

    #[test]
    fn batches_have_the_stored_readings() {
        for batch in noren_testing::batches::batches() {
            let array = |(name, shape, values): &(String, Vec<usize>, Vec<i64>)| Pasted {
                name: Some(name.clone()),
                shape: shape.clone(),
                values: values.iter().map(|n| *n as f64).collect(),
                float: false,
            };
            let arrays: Vec<Pasted> = batch.arrays.iter().map(array).collect();
            let found = readings(&arrays).expect("readings").0;
            let facts: Vec<Facts> =
                found.iter().map(|r| Facts::from_json(&r.facts.to_string()).expect("facts")).collect();
            assert!(
                facts.len() == batch.readings.len() && facts.iter().all(|f| batch.readings.contains(f)),
                "{facts:?}"
            );
        }
    }

    #[test]
    fn ambiguous_arrays_have_all_their_readings() {
        let names = |text: &str| read_text(text).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("[0, 1, 2, 3]"), ["position_ids", "cu_seqlens"]);
        assert_eq!(names("[0, 0, 1, 1]"), ["attention_mask", "segment_ids"]);
        assert_eq!(names("[[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1]]"), ["attention_mask", "segment_ids"]);
        assert_eq!(names("[[1, 0], [1, 1]]"), ["attention_mask", "cells"]);
        assert_eq!(names("[[0, -inf, -inf], [0, 0, -inf], [0, 0, 0]]"), ["attention_mask", "cells"]);
        assert_eq!(names("[[0, -1e9], [0, 0]]"), ["cells"]);
        assert_eq!(names("[5, 3, 4]"), ["segment_ids", "documents", "lengths"]);
        assert_eq!(names("position_ids = [0, 1, 2, 0]"), ["position_ids", "position_ids"]);
        assert_eq!(names("attention_mask = [[0.0, 0.0]]"), ["attention_mask", "attention_mask"]);
    }
}
