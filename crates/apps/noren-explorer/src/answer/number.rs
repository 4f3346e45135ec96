//! Converts counts to JSON values: to numbers, or to texts if JavaScript cannot represent them exactly.

use serde_json::Value;

/// Returns a count as JSON: a number if JavaScript represents it exactly, otherwise text.
pub(crate) fn number(n: u128) -> Value {
    match u64::try_from(n) {
        Ok(n) if n < 1 << 53 => n.into(),
        _ => n.to_string().into(),
    }
}
