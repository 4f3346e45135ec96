//! Masks whose cells are computed in tiles by a Python function (`noren.formats.maskmod`).

use crate::error::{Error, raise, remember};
use crate::masks::classes::PyMask;
use noren::noren_mask::atoms::{TileCells, TileFunction};
use noren::{Cells, Mask};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The number of queries whose tiles one call of the Python function computes.
const STRIP: i64 = 16 * TileCells::SIDE as i64;
/// The maximum memory of the tiles of one batch row and head, in bytes.
const MOST_BYTES: usize = 1 << 30;
/// The states of tiles; tiles with another state are mixed.
const EMPTY: u8 = 0;
const FULL: u8 = 1;

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
        let count = queries.end - queries.start;
        let mut cells = TileCells::new(queries.clone(), keys.end);
        Python::attach(|py| {
            for first in queries.clone().step_by(STRIP as usize) {
                let arguments = (batch, head, first, queries.end.min(first + STRIP), keys.end, count);
                let made = self.evaluate.bind(py).call1(arguments).and_then(|made| read(&made, first, &mut cells));
                made.map_err(|error| {
                    let message = error.value(py).to_string();
                    remember(&message, error);
                    message
                })?;
                if cells.bytes() > MOST_BYTES {
                    return Err(format!(
                        "the mask function {} has more than {MOST_BYTES} bytes of mixed tiles for batch row {batch}, head {head}: add a \
                         condition inside the function that allows fewer cells, such as a window",
                        self.name
                    ));
                }
            }
            Ok(())
        })?;
        Ok(cells)
    }
}

/// Reads the tiles of a strip of queries, of which `first` is the first, from two byte strings. The first string has the state
/// of each tile, row by row. The second has the bits, 64 little-endian 64-bit numbers for each mixed tile.
fn read(made: &Bound<'_, PyAny>, first: i64, cells: &mut TileCells) -> PyResult<()> {
    let (states, bits): (Bound<'_, PyBytes>, Bound<'_, PyBytes>) = made.extract()?;
    let words: Vec<u64> = bits.as_bytes().as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut tiles = words.as_chunks::<{ TileCells::SIDE }>().0.iter();
    let columns = (cells.keys_end() as usize).div_ceil(TileCells::SIDE);
    let above = (first - cells.queries().start) as usize / TileCells::SIDE;
    for (row, states) in (above..).zip(states.as_bytes().chunks(columns)) {
        let mut start = 0;
        for run in states.chunk_by(|one, next| one == next) {
            let range = start..start + run.len() as u32;
            start = range.end;
            match run[0] {
                EMPTY => {}
                FULL => cells.full(row, range).map_err(raise)?,
                _ => {
                    for tile in range {
                        let missing =
                            || Error::new_err(format!("the mask function's result has no bits for tile {tile}"));
                        cells.mixed(row, tile, *tiles.next().ok_or_else(missing)?).map_err(raise)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns the mask of the cells that the function `evaluate` computes.
///
/// `evaluate` takes (batch row, head, first query position, position after the last query, position after the last key, number of
/// all queries) and returns two byte strings, as described in `noren.formats.maskmod._tiles`. The batch row is 0 unless `uses_batch` is
/// true, and the head is 0 unless `uses_head` is true.
#[pyfunction]
pub(crate) fn tile_function(name: String, uses_batch: bool, uses_head: bool, evaluate: Py<PyAny>) -> PyMask {
    PyMask(Mask::from_tiles(Function { name, uses_batch, uses_head, evaluate }))
}
