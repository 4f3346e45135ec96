//! Arrays of batches whose meaning is easily mistaken, such as document numbers from 0: every reader of arrays must find the same readings.

use noren_mask::Facts;
use serde_json::Value;

/// A batch of `batches.json`.
pub struct Batch {
    /// The name, the shape and the numbers of each array.
    pub arrays: Vec<(String, Vec<usize>, Vec<i64>)>,
    /// The facts of each reading, in any order.
    pub readings: Vec<Facts>,
}

/// Returns the stored batches. Panics if the file is malformed.
pub fn batches() -> Vec<Batch> {
    let all: Vec<Value> = serde_json::from_str(include_str!("batches.json")).expect("JSON");
    let of = |batch: &Value| Batch {
        arrays: batch["arrays"].as_object().expect("arrays").iter().map(|(name, rows)| array(name, rows)).collect(),
        readings: batch["readings"].as_array().expect("readings").iter().map(facts).collect(),
    };
    all.iter().map(of).collect()
}

fn array(name: &str, rows: &Value) -> (String, Vec<usize>, Vec<i64>) {
    let items = rows.as_array().expect("a list");
    let row = |row: &Value| row.as_array().map(|row| row.iter().filter_map(Value::as_i64).collect::<Vec<_>>());
    match items.iter().map(row).collect::<Option<Vec<_>>>() {
        Some(table) => (name.into(), vec![table.len(), table[0].len()], table.concat()),
        None => (name.into(), vec![items.len()], items.iter().filter_map(Value::as_i64).collect()),
    }
}

fn facts(json: &Value) -> Facts {
    Facts::from_json(&json.to_string()).expect("facts")
}
