//! Counts as JSON.

use serde_json::Value;

/// A count as JSON: a number where JavaScript has it exactly, else text.
pub(crate) fn number(n: u128) -> Value {
    match u64::try_from(n) {
        Ok(n) if n < 1 << 53 => n.into(),
        _ => n.to_string().into(),
    }
}
