//! Masks whose cells are computed in tiles by a Python function (`noren.formats.maskmod`).

use crate::error::{Error, remember};
use crate::masks::classes::PyMask;
use noren::noren_mask::atoms::{TileCells, TileFunction};
use noren::{Cells, Mask};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ops::Range;

/// The value in place of the index of a tile's bits that marks full tiles, in which all cells are allowed.
const FULL: u32 = u32::MAX;

/// A Python function that computes the cells of a mask in tiles, and two flags: whether the cells depend on the batch
/// row, and whether they depend on the head.
struct Function {
    name: String,
    uses_batch: bool,
    uses_head: bool,
    evaluate: Py<PyAny>,
}

impl TileFunction for Function {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn uses_batch(&self) -> bool {
        self.uses_batch
    }

    fn uses_head(&self) -> bool {
        self.uses_head
    }

    fn cells(&self, Cells { batch, head, queries, keys }: Cells) -> Result<TileCells, String> {
        let keys_end = keys.end;
        Python::attach(|py| {
            let arguments = (batch, head, queries.start, queries.end, keys_end);
            let made = self.evaluate.bind(py).call1(arguments).and_then(|made| read(&made, queries, keys_end));
            made.map_err(|error| {
                let message = error.value(py).to_string();
                remember(&message, error);
                message
            })
        })
    }
}

/// Reads tiles from two byte strings. The first has groups of consecutive tiles in one row of tiles, each as four
/// 32-bit numbers (row of tiles, first tile, tile after the last, index of the first tile's bits or `FULL`). The second
/// has the bits, 64 little-endian 64-bit numbers for each mixed tile.
fn read(made: &Bound<'_, PyAny>, queries: Range<i64>, keys_end: i64) -> PyResult<TileCells> {
    let (runs, bits): (Bound<'_, PyBytes>, Bound<'_, PyBytes>) = made.extract()?;
    let words: Vec<u64> = bits.as_bytes().as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (tiles, _) = words.as_chunks::<{ TileCells::SIDE }>();
    let numbers: Vec<u32> = runs.as_bytes().as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let wrong = |problem: String| Error::new_err(problem);
    let mut cells = TileCells::new(queries, keys_end);
    for [row, start, end, slot] in numbers.as_chunks().0 {
        let row = *row as usize;
        if *slot == FULL {
            cells.full(row, *start..*end).map_err(|error| wrong(error.to_string()))?;
            continue;
        }
        for (tile, slot) in (*start..*end).zip(*slot as usize..) {
            let bits = tiles
                .get(slot)
                .ok_or_else(|| wrong(format!("the mask function's result has no bits for tile {slot}")))?;
            cells.mixed(row, tile, *bits).map_err(|error| wrong(error.to_string()))?;
        }
    }
    Ok(cells)
}

/// Returns the mask of the cells that the function `evaluate` computes.
///
/// `evaluate` takes (batch row, head, first query position, position after the last query, position after the last key)
/// and returns two byte strings, as described in `noren.formats.maskmod._tiles`. The batch row is 0 unless `uses_batch` is
/// true, and the head is 0 unless `uses_head` is true.
#[pyfunction]
pub(crate) fn tile_function(name: String, uses_batch: bool, uses_head: bool, evaluate: Py<PyAny>) -> PyMask {
    PyMask(Mask::from_tiles(Function { name, uses_batch, uses_head, evaluate }))
}
