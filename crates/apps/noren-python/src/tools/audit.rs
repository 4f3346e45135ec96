//! The audit's catalogue of checks (`noren_flow::audit`), for the Python package `noren.battery`.

use crate::error::Error;
use noren_flow::audit::{CHECKS, LENGTHS, MOST, PADS, ROWS, Reads, Scope, rounding};
use pyo3::prelude::*;

/// Returns all checks of the audit and the sizes of their inputs as JSON.
#[pyfunction]
pub(crate) fn audit_catalogue() -> String {
    serde_json::json!({ "checks": CHECKS, "lengths": LENGTHS, "most": MOST, "pads": PADS, "rows": ROWS }).to_string()
}

/// A change of input tokens: the six values that [`audit_changes`] lists.
type Change = (String, String, Vec<usize>, bool, Vec<(usize, usize)>, bool);

/// Returns the changes of input tokens that a check makes. Each change is a tuple of six values:
///
/// 1. the description of the change
/// 2. the conclusion if the check fails
/// 3. the changed tokens
/// 4. true if each of the changed tokens is changed in a separate batch row, false if all are changed in one row
/// 5. the compared outputs, as pairs (batch row, position)
/// 6. true if the compared outputs must change, false if they must not change
///
/// `reach` and `direct` are matrices `[length, length]` with one byte for each (output, input). A byte of `reach` is 1 if
/// the output may depend on the input over all layers. A byte of `direct` is 1 if every layer's mask allows the output's
/// query to read the input. Raises `Error` if the check has no changes for these matrices.
#[pyfunction]
pub(crate) fn audit_changes(check: &str, length: usize, reach: &[u8], direct: &[u8]) -> PyResult<Vec<Change>> {
    if length == 0 || [reach, direct].iter().any(|cells| cells.len() != length * length) {
        return Err(Error::new_err(format!(
            "`reach` and `direct` must each have {length} x {length} bytes, one for each cell"
        )));
    }
    let [reach, direct] = [reach, direct].map(|cells| move |q: usize, k: usize| cells[q * length + k] != 0);
    let changes = Reads { length, reach: &reach, direct: &direct }.changes(check).map_err(Error::new_err)?;
    Ok(changes.into_iter().map(|c| (c.what, c.broken, c.tokens, c.one_by_one, c.compared, c.moves)).collect())
}

/// Returns sentences, each of which names a part or a use of the model that an audit with these settings does not test.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // called by this package alone
pub(crate) fn audit_not_tested(
    longest: usize,
    rows: usize,
    training: Option<bool>,
    heads: usize,
    layers: bool,
    compiled: bool,
    padding: bool,
    checks: Vec<String>,
) -> Vec<String> {
    let checks: Vec<&str> = checks.iter().map(String::as_str).collect();
    Scope { longest, rows, training, heads, layers, compiled, padding, checks: &checks }.not_tested()
}

/// Returns the largest difference of outputs that counts as rounding, divided by the largest absolute output.
///
/// `unit` is the unit roundoff of the dtype, `depth` the number of layers, `width` the number of terms of the model's
/// longest sum.
#[pyfunction]
pub(crate) fn audit_rounding(unit: f64, depth: usize, width: usize) -> f64 {
    rounding(unit, depth, width)
}
