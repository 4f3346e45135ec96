//! Reads mask tensors in one pass: the allowed cells as bits, and whether allowed cells hold numbers other than 0,
//! which are added to scores.

use crate::dlpack::{Kind, Plain, Tensor};
use crate::error::{Error, raise};
use crate::masks::convention::MOST_CELLS;
use crate::masks::facts::PyArray;
use noren::noren_mask::HIDES;
use noren::{Array, Dtype};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The limit [`HIDES`], as the bits of a float16.
const HIDES_F16: u16 = 0xf0e0;
const INFINITE_F16: u16 = 0xfc00;

/// Properties of the numbers that were read from a mask tensor.
#[derive(Clone, Copy, Default)]
struct Seen {
    zeros: bool,
    ones: bool,
    /// True if an allowed cell holds a number other than 0 and 1.
    others: bool,
    hidden: bool,
    /// True if the tensor holds a finite number that means "ignored".
    lowest: bool,
}

/// Reads a mask `[batch, heads, q_len or 1, kv_len or 1]`: booleans (true = may attend; if `drop` is true, true =
/// ignored), or floats that are added to scores.
///
/// A last dimension of 1 applies to all `kv_len` keys. Returns three values:
///
/// 1. the allowed cells, `[batch, heads, q_len or 1, kv_len]`
/// 2. true if an allowed cell holds a number other than 0
/// 3. true if a masked cell holds a finite number instead of -inf
#[pyfunction]
pub(crate) fn read_mask(py: Python<'_>, mask: Tensor, drop: bool, kv_len: usize) -> PyResult<(PyArray, bool, bool)> {
    let [batch, heads, q_len, width] = match mask.shape[..] {
        [b, h, q, k] if k == 1 || k == kv_len => [b, h, q, k],
        _ => {
            return Err(Error::new_err(format!(
                "the mask has the shape {:?}, which does not fit {kv_len} keys: its last dimension must be 1 or {kv_len}",
                mask.shape
            )));
        }
    };
    let cells: u128 = [batch, heads, q_len, kv_len].iter().map(|&n| n as u128).product();
    if cells > MOST_CELLS as u128 {
        return Err(Error::new_err(format!(
            "the mask has {cells} cells, but at most {MOST_CELLS} can be read: give an expression such as nr.causal()"
        )));
    }
    let (words, seen) = py.detach(|| {
        let mut words = Vec::with_capacity(batch * heads * q_len * kv_len.div_ceil(64));
        let seen = read_rows(&mask, drop, |row| match width == kv_len {
            true => pack(row, &mut words),
            false => words.resize(words.len() + kv_len.div_ceil(64), if row[0] == 1 { u64::MAX } else { 0 }),
        })?;
        Ok::<_, PyErr>((words, seen))
    })?;
    if seen.zeros && seen.ones && !seen.others && !seen.hidden {
        return Err(Error::new_err(
            "the mask holds the floats 0 and 1, which would be added to the scores and hide no key: give booleans, mask == 1 where 1 means \
             \"may attend\" (keep=), or 0 and -inf; a bias of 0 and 1 is given as bias=",
        ));
    }
    let array = Array::keep_words([batch, heads, q_len, kv_len], &words).map_err(raise)?;
    Ok((PyArray(array), seen.ones || seen.others, seen.lowest))
}

/// Calls `each` with the cells of every row as bytes (1 = allowed), and returns the properties of the numbers that were
/// read.
fn read_rows(mask: &Tensor, drop: bool, mut each: impl FnMut(&[u8])) -> PyResult<Seen> {
    let mut cells = vec![0u8; mask.shape.last().copied().unwrap_or(0)];
    let mut seen = Seen::default();
    match mask.kind {
        Kind::Bool => by_row(mask, &mut cells, |x: u8| u8::from((x == 0) == drop), &mut each)?,
        Kind::Float(Dtype::F32) => floats(mask, &mut cells, &mut seen, |x: f32| x, &mut each)?,
        Kind::Float(Dtype::Bf16) => {
            floats(mask, &mut cells, &mut seen, |x: u16| f32::from_bits(u32::from(x) << 16), &mut each)?;
        }
        Kind::Float(Dtype::F16) => floats(mask, &mut cells, &mut seen, half, &mut each)?,
        Kind::Double => floats(mask, &mut cells, &mut seen, |x: f64| x as f32, &mut each)?,
        Kind::Int(_) | Kind::Uint(_) => {
            return Err(PyTypeError::new_err(
                "the mask holds integers, but must hold booleans or floats: convert it (.bool())",
            ));
        }
    }
    Ok(seen)
}

/// Converts the bits of a float16 to an `f32` of the same meaning for a mask: 0, 1 and -inf stay, finite numbers that hide a
/// cell become the lowest `f32`, and every other number becomes 2.
fn half(bits: u16) -> f32 {
    match bits {
        INFINITE_F16 => f32::NEG_INFINITY,
        HIDES_F16..INFINITE_F16 => f32::MIN,
        0x3c00 => 1.0,
        _ if bits & 0x7fff == 0 => 0.0,
        _ => 2.0,
    }
}

fn by_row<T: Plain>(
    mask: &Tensor,
    cells: &mut [u8],
    keep: impl Fn(T) -> u8,
    each: &mut impl FnMut(&[u8]),
) -> PyResult<()> {
    mask.each_row(|row: &[T]| {
        cells.iter_mut().zip(row).for_each(|(cell, x)| *cell = keep(*x));
        each(cells);
    })
}

fn floats<T: Plain>(
    mask: &Tensor,
    cells: &mut [u8],
    seen: &mut Seen,
    value: impl Fn(T) -> f32,
    each: &mut impl FnMut(&[u8]),
) -> PyResult<()> {
    mask.each_row(|row: &[T]| {
        // Each loop reads values of one width, so that the compiler uses vectors: 8 times as fast as one loop for all widths.
        for (cells, numbers) in cells.chunks_mut(64).zip(row.chunks(64)) {
            let (mut zeros, mut ones, mut others, mut hidden, mut lowest) = (0u32, 0u32, 0u32, 0u32, 0u32);
            for x in numbers {
                let x = value(*x);
                let (zero, one, ignored) = (u32::from(x == 0.0), u32::from(x == 1.0), u32::from(x <= HIDES as f32));
                (zeros, ones, hidden) = (zeros | zero, ones | one, hidden | ignored);
                others |= 1 - (zero | one | ignored);
                lowest |= ignored & u32::from(x > f32::NEG_INFINITY);
            }
            seen.zeros |= zeros != 0;
            seen.ones |= ones != 0;
            seen.others |= others != 0;
            seen.hidden |= hidden != 0;
            seen.lowest |= lowest != 0;
            for (cell, x) in cells.iter_mut().zip(numbers) {
                *cell = 1 - u8::from(value(*x) <= HIDES as f32);
            }
        }
        each(cells);
    })
}

/// Appends the cells of one row to `words`, 64 cells in each number. Each byte of `row` is one cell: 1 if the cell is
/// allowed, else 0.
fn pack(row: &[u8], words: &mut Vec<u64>) {
    /// The factor that collects 8 bytes of value 0 or 1 into one byte: after the multiplication, bit `56 + i` of the
    /// product is byte `i`.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    for chunk in row.chunks(64) {
        let mut word = 0u64;
        for (i, eight) in chunk.chunks(8).enumerate() {
            let mut bytes = [0u8; 8];
            bytes[..eight.len()].copy_from_slice(eight);
            word |= (u64::from_le_bytes(bytes).wrapping_mul(GATHER) >> 56) << (8 * i);
        }
        words.push(word);
    }
}
