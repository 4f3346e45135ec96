//! Plans as arrays for the formats of other systems: bytes of numbers in native byte order, which Python reads without a copy.

use crate::bound::PyPlan;
use crate::error::Error;
use noren::noren_mask::Runs;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn bytes<'py, const N: usize>(py: Python<'py>, values: impl Iterator<Item = [u8; N]>) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &values.flatten().collect::<Vec<u8>>())
}

type TwoBytes<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

fn runs_of<'py>(py: Python<'py>, runs: &Runs) -> TwoBytes<'py> {
    let indptr = bytes(py, runs.indptr.iter().map(|n| n.to_ne_bytes()));
    (indptr, bytes(py, runs.runs.iter().flatten().map(|n| n.to_ne_bytes())))
}

fn check(plan: &PyPlan, pattern: usize) -> PyResult<()> {
    let count = plan.plan.patterns().len();
    if pattern < count {
        Ok(())
    } else {
        Err(Error::new_err(format!("pattern {pattern} does not exist: the plan has {count} patterns, counted from 0")))
    }
}

/// Returns (number of distinct patterns, index of the pattern of each pair of batch row and head, all heads of row 0 first).
#[pyfunction]
pub(crate) fn patterns(plan: &PyPlan) -> (usize, Vec<usize>) {
    let shape = plan.plan.shape();
    let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
    (plan.plan.patterns().len(), pairs.map(|(b, h)| plan.plan.pattern_of(b, h)).collect())
}

/// Returns the runs of keys of each row, as `indptr` and pairs (first key, key after the last), both `uint32`.
#[pyfunction]
pub(crate) fn row_runs<'py>(py: Python<'py>, plan: &PyPlan, pattern: usize) -> PyResult<TwoBytes<'py>> {
    check(plan, pattern)?;
    let runs = py.detach(|| plan.plan.row_runs(pattern));
    Ok(runs_of(py, &runs))
}

/// Returns the runs of masked rows of each key, as `indptr` and pairs (first row, row after the last); `None` if the
/// masked rows of a key form more than `most` runs.
#[pyfunction]
pub(crate) fn masked_rows<'py>(
    py: Python<'py>,
    plan: &PyPlan,
    pattern: usize,
    most: usize,
) -> PyResult<Option<TwoBytes<'py>>> {
    check(plan, pattern)?;
    let runs = py.detach(|| plan.plan.masked_rows(pattern, most));
    Ok(runs.map(|runs| runs_of(py, &runs)))
}

/// Returns (numbers of tiles along rows and along keys, slot of each tile, bits of the mixed tiles as `uint32`). A slot
/// is an `int32`: -1 for an empty tile, -2 for a full tile, else the index of a mixed tile.
///
/// `cut_may_be_full` is true if a tile that the end of the keys cuts can be a full tile.
#[pyfunction]
pub(crate) fn blocks<'py>(
    py: Python<'py>,
    plan: &PyPlan,
    pattern: usize,
    block: [usize; 2],
    cut_may_be_full: bool,
) -> PyResult<([usize; 2], Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    check(plan, pattern)?;
    let blocks = py.detach(|| plan.plan.blocks(pattern, block, cut_may_be_full));
    let slot = bytes(py, blocks.slot.iter().map(|n| n.to_ne_bytes()));
    Ok((blocks.shape, slot, bytes(py, blocks.bits.iter().map(|n| n.to_ne_bytes()))))
}

/// Returns slices as rows of five `uint32`: first row, row after the last, first key, key after the last, kind (0 full,
/// 1 causal, 2 inverse causal, 3 both).
#[pyfunction]
pub(crate) fn slices<'py>(py: Python<'py>, plan: &PyPlan, pattern: usize) -> PyResult<Bound<'py, PyBytes>> {
    check(plan, pattern)?;
    let slices = py.detach(|| plan.plan.slices(pattern));
    let rows = slices.iter().flat_map(|s| [s.rows[0], s.rows[1], s.keys[0], s.keys[1], s.kind as u32]);
    Ok(bytes(py, rows.map(|n| n.to_ne_bytes())))
}
