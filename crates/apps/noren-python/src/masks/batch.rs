//! Facts of the arrays of a batch (`nr.facts_from`).

use crate::dlpack::{Kind, Tensor};
use crate::error::raise;
use crate::masks::facts::{PyFacts, facts_of};
use noren::noren_mask::batch::{Entry, Meaning, Options, meaning, read};
use pyo3::prelude::*;

/// Returns whether `read_batch` reads the entry `name` of a batch. It reads token ids only with the id of padding.
#[pyfunction]
pub(crate) fn batch_reads(name: &str, pad_id: Option<i64>) -> bool {
    meaning(name).is_some_and(|meaning| meaning != Meaning::Tokens || pad_id.is_some())
}

/// The facts of a batch, its numbers of rows and of tokens in a row, and for each entry that was read its name and an
/// explanation.
type Found = (PyFacts, (usize, usize), Vec<(String, String)>);

/// Returns the facts of a batch, its numbers of rows and of tokens in a row, and for each entry that was read its name
/// and an explanation.
///
/// `entries` has the name (None for an array without a name) and the array of each entry. `segment_padding` is empty if
/// the document number of padding is unknown; otherwise its only item is this number, or None for no padding. `known`
/// is facts that the caller knows. Raises `Error` for a batch with several readings and for entries that contradict
/// each other.
#[pyfunction]
#[pyo3(signature = (entries, *, segment_padding, pad_id, known))]
pub(crate) fn read_batch(
    entries: Vec<(Option<String>, Tensor)>,
    segment_padding: Vec<Option<i64>>,
    pad_id: Option<i64>,
    known: Option<Bound<'_, PyAny>>,
) -> PyResult<Found> {
    let entry = |(name, tensor): (Option<String>, Tensor)| {
        let values = tensor.values(|value| value)?;
        let float = matches!(tensor.kind, Kind::Float(_) | Kind::Double);
        Ok(Entry { name, shape: tensor.shape.to_vec(), values, float })
    };
    let entries = entries.into_iter().map(entry).collect::<PyResult<Vec<_>>>()?;
    let known = facts_of(known.as_ref())?;
    let options = Options { segment_padding: segment_padding.first().copied(), pad_id, known };
    let reading = read(&entries, &options).and_then(|readings| readings.one()).map_err(raise)?;
    Ok((PyFacts(reading.facts), reading.size, reading.says))
}
