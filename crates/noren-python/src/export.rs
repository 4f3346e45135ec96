//! Plans as arrays for the formats of other systems: bytes of numbers in native byte order, which Python reads without a copy.

use crate::bound::PyPlan;
use crate::error::Error;
use noren::noren_mask::{DevicePlan, Runs};
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

/// The maximum number of words of the mixed blocks of all patterns.
const MOST_WORDS: usize = 1 << 28;

/// Returns the arrays that a GPU kernel reads, for all patterns: the index of the first row tile and of the first key tile
/// of each pattern, then (tiles, indptr, runs) by row, the same by key, and the words of mixed blocks. All are `int32`.
/// Indices count through all patterns.
#[pyfunction]
pub(crate) fn device_plan<'py>(py: Python<'py>, plan: &PyPlan, block: [u32; 2]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    if block.iter().any(|size| !matches!(size, 32 | 64 | 128 | 256)) {
        return Err(Error::new_err(format!("block is {block:?}: each size must be 32, 64, 128 or 256")));
    }
    let plans: Result<Vec<DevicePlan>, _> =
        py.detach(|| (0..plan.plan.patterns().len()).map(|pattern| plan.plan.device(pattern, block)).collect());
    let plans = plans.map_err(crate::error::raise)?;
    let all: usize = plans.iter().map(|plan| plan.words.len()).sum();
    if all > MOST_WORDS {
        return Err(Error::new_err(format!(
            "the mixed blocks of the {} patterns take {} MiB, more than 1024 MiB: use fewer batch rows or heads with patterns of their own",
            plans.len(),
            all >> 18
        )));
    }
    let mut sides = [(); 2].map(|()| (vec![0i32], Vec::new(), vec![0i32], Vec::new()));
    let mut words: Vec<i32> = Vec::new();
    let size = (block[0] * block[1] / 32) as usize;
    for plan in plans {
        let before = (words.len() / size) as i32;
        words.extend(plan.words.iter().map(|word| *word as i32));
        for (side, (first, tiles, indptr, runs)) in [&plan.rows, &plan.keys].into_iter().zip(&mut sides) {
            let runs_before = (runs.len() / 3) as i32;
            tiles.extend(side.tiles.iter().flatten().map(|n| *n as i32));
            indptr.extend(side.indptr[1..].iter().map(|n| *n as i32 + runs_before));
            let block = |block: i32| if block == DevicePlan::FULL { block } else { block + before };
            runs.extend(side.runs.iter().flat_map(|run| [run[0], run[1], block(run[2])]));
            first.push((tiles.len() / 2) as i32);
        }
    }
    let [rows, keys] = sides;
    let lists = [rows.0, keys.0, rows.1, rows.2, rows.3, keys.1, keys.2, keys.3, words];
    Ok(lists.iter().map(|list| bytes(py, list.iter().map(|n| n.to_ne_bytes()))).collect())
}
