//! Converts plans to arrays in the formats of other systems. An array is a byte string of numbers in native byte order,
//! which Python reads without a copy.

use crate::error::Error;
use crate::masks::bound::PyPlan;
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

/// Returns (number of patterns, pattern indices). A pattern is a distinct set of allowed cells. The indices are those
/// of the patterns of each pair of batch row and head, all heads of batch row 0 first.
#[pyfunction]
pub(crate) fn patterns(plan: &PyPlan) -> (usize, Vec<usize>) {
    let shape = plan.plan.shape();
    let pairs = (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h)));
    (plan.plan.patterns().len(), pairs.map(|(b, h)| plan.plan.pattern_of(b, h)).collect())
}

/// Returns the keys that each query row of a pattern (distinct set of cells) may read, as two `uint32` arrays:
/// `indptr`, and runs of consecutive keys, each as (first key, key after the last). Query row `q` has the runs
/// `indptr[q]..indptr[q + 1]`.
#[pyfunction]
pub(crate) fn row_runs<'py>(py: Python<'py>, plan: &PyPlan, pattern: usize) -> PyResult<TwoBytes<'py>> {
    check(plan, pattern)?;
    let runs = py.detach(|| plan.plan.row_runs(pattern));
    Ok(runs_of(py, &runs))
}

/// Returns, for each key of a pattern (distinct set of cells), the query rows that may not read this key, as two
/// `uint32` arrays: `indptr`, and runs of rows (first row, row after the last). Key `k` has the runs
/// `indptr[k]..indptr[k + 1]`. Returns `None` if a key has more than `most` runs.
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

/// Divides the cells of a pattern (distinct set of cells) into rectangles of `block` = (rows, keys). Returns (numbers
/// of rectangles along rows and along keys, one `int32` for each rectangle, cells of the mixed rectangles as bits in
/// `uint32`). The `int32` is -1 for an empty rectangle, -2 for a full one, else the index of a mixed one.
///
/// If `cut_may_be_full` is true, a rectangle that extends beyond the last row or key counts as full if all of its
/// existing cells are allowed; otherwise it is never full.
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

/// Returns the allowed cells of a pattern as slices. A slice is five `uint32`: first row, row after the last, first
/// key, key after the last, kind. Kinds: 0, every row reads all keys of the slice; 1 (causal), the last key of each row
/// is one after that of the previous row; 2 (inverse causal), the first key of each row is one after that of the
/// previous row; 3, both 1 and 2.
#[pyfunction]
pub(crate) fn slices<'py>(py: Python<'py>, plan: &PyPlan, pattern: usize) -> PyResult<Bound<'py, PyBytes>> {
    check(plan, pattern)?;
    let slices = py.detach(|| plan.plan.slices(pattern));
    let rows = slices.iter().flat_map(|s| [s.rows[0], s.rows[1], s.keys[0], s.keys[1], s.kind as u32]);
    Ok(bytes(py, rows.map(|n| n.to_ne_bytes())))
}

/// Returns the number of query rows in a block of mask bits, and five `int32` arrays that a GPU kernel for decoding
/// reads. A pattern is a distinct set of allowed cells, a chunk is `chunk` consecutive keys:
///
/// 1. the index of the pattern of each pair of batch row and key-value head
/// 2. the index of the first chunk of each pattern
/// 3. the index of the first run of each chunk
/// 4. the runs of keys, each as (first key, key after the last, block): -1 if all cells of the run are allowed, else the
///    index of a block of mask bits
/// 5. the mask bits of all blocks
#[pyfunction]
pub(crate) fn decode_plan<'py>(
    py: Python<'py>,
    plan: &PyPlan,
    block_kv: u32,
    chunk: u32,
) -> PyResult<(u32, Vec<Bound<'py, PyBytes>>)> {
    if !matches!(block_kv, 32 | 64 | 128 | 256) || chunk == 0 || !chunk.is_multiple_of(block_kv) {
        return Err(Error::new_err(format!(
            "block_kv is {block_kv} and chunk is {chunk}: block_kv must be 32, 64, 128 or 256, and chunk a multiple of block_kv"
        )));
    }
    let decode = py.detach(|| plan.plan.device_decode(block_kv, chunk)).map_err(crate::error::raise)?;
    let lists =
        [&decode.pattern_of, &decode.first, &decode.indptr].map(|list| bytes(py, list.iter().map(|n| n.to_ne_bytes())));
    let runs = bytes(py, decode.runs.iter().flatten().map(|n| n.to_ne_bytes()));
    let words = bytes(py, decode.words.iter().map(|n| n.to_ne_bytes()));
    Ok((decode.block[0], lists.into_iter().chain([runs, words]).collect()))
}

/// Returns the positions of the queries, `[batch, q_len]`, and of the keys, `[batch, kv_len]`, as `int64`.
#[pyfunction]
pub(crate) fn positions<'py>(py: Python<'py>, plan: &PyPlan) -> TwoBytes<'py> {
    let (plan, shape) = (&plan.plan, plan.plan.shape());
    let rows = || 0..shape.batch_len();
    let queries = rows().flat_map(|b| (0..shape.q_len()).map(move |i| plan.query_position(b, i).to_ne_bytes()));
    let keys = rows().flat_map(|b| (0..shape.kv_len()).map(move |j| plan.key_position(b, j).to_ne_bytes()));
    (bytes(py, queries), bytes(py, keys))
}

/// The maximum number of `int32` values in the ninth array of `device_plan` (mask bits), which are 1 GiB.
const MOST_WORDS: usize = 1 << 28;

/// Returns nine `int32` arrays that a GPU kernel reads. Each array has the data of all patterns (distinct sets of
/// cells), one after another; indices are not restarted for each pattern:
///
/// 1. the index of the first row tile of each pattern; then the number of row tiles
/// 2. the index of the first key tile of each pattern; then the number of key tiles
/// 3. the row tiles, each as (first row, row after the last)
/// 4. the index of the first run of keys of each row tile; then the number of these runs
/// 5. the runs of keys, each as (first key, key after the last, block): -1 if all cells of the run are allowed, else the
///    index of a block of mask bits
/// 6. the key tiles, each as (first key, key after the last)
/// 7. the index of the first run of rows of each key tile; then the number of these runs
/// 8. the runs of query rows, each as (first row, row after the last, block)
/// 9. the mask bits of all blocks of `block` = (rows, keys) cells
#[pyfunction]
pub(crate) fn device_plan<'py>(py: Python<'py>, plan: &PyPlan, block: [u32; 2]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    if !matches!(block, [16 | 32 | 64 | 128 | 256, 32 | 64 | 128 | 256]) {
        return Err(Error::new_err(format!(
            "block is {block:?}: the number of rows must be 16, 32, 64, 128 or 256, and that of keys 32, 64, 128 or 256"
        )));
    }
    let plans: Result<Vec<DevicePlan>, _> =
        py.detach(|| (0..plan.plan.patterns().len()).map(|pattern| plan.plan.device(pattern, block)).collect());
    let plans = plans.map_err(crate::error::raise)?;
    let all: usize = plans.iter().map(|plan| plan.words.len()).sum();
    if all > MOST_WORDS {
        return Err(Error::new_err(format!(
            "the mixed blocks of the {} patterns take {} MiB, more than 1024 MiB: use fewer batch rows or heads with patterns of their own",
            plans.len(),
            all.div_ceil(1 << 18)
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
