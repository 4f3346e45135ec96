//! Reads mask arrays whose convention is given: the allowed cells as bits.

use crate::dlpack::{Kind, Tensor};
use crate::error::{Error, raise};
use noren::Array;
use noren::noren_mask::HIDES;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::str::FromStr;

/// The maximum number of cells of a mask tensor. Stored as bits, this number of cells takes 2 GiB.
pub(crate) const MOST_CELLS: usize = 1 << 34;

/// The meaning of the values of a mask array: true (or 1) may attend, true is ignored, or numbers that are added to scores.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Convention {
    Keep,
    Drop,
    Additive,
}

impl FromStr for Convention {
    type Err = PyErr;

    fn from_str(name: &str) -> PyResult<Self> {
        match name {
            "keep" => Ok(Convention::Keep),
            "drop" => Ok(Convention::Drop),
            "additive" => Ok(Convention::Additive),
            _ => Err(Error::new_err(format!(
                "convention is {name:?}: give \"keep\" (true means may attend), \"drop\" (true means ignored) or \"additive\""
            ))),
        }
    }
}

/// Reads a mask array whose values have the meaning `convention`. Returns its sizes `[batch, heads, q_len, kv_len]`, and its allowed
/// cells as the 64-bit words of all query rows. Returns an error for an array with other values.
pub(crate) fn read_words(array: &Tensor, convention: Convention) -> PyResult<([usize; 4], Vec<u64>)> {
    array.len_within(MOST_CELLS)?;
    let real = matches!(array.kind, Kind::Float(_) | Kind::Double);
    if real != (convention == Convention::Additive) {
        return Err(PyTypeError::new_err(match real {
            true => {
                "the array holds floats, which are added to scores: give booleans, or convention=\"additive\" (Array.additive) for 0 \
                     (may attend) and -inf (ignored)"
            }
            false => {
                "the array does not hold floats: give convention=\"keep\" (Array.keep) or \"drop\" (Array.drop) for booleans"
            }
        }));
    }
    let shape = match array.shape[..] {
        [q_len, kv_len] => [1, 1, q_len, kv_len],
        [batch, heads, q_len, kv_len] => [batch, heads, q_len, kv_len],
        _ => {
            Array::keep(&array.shape, &[]).map_err(raise)?; // returns the error for the shape
            return Err(Error::new_err("the array is not a mask"));
        }
    };
    let is_kept = |x: f64| match convention {
        Convention::Additive if x == 0.0 || x <= HIDES => Some(x == 0.0),
        Convention::Keep if x == 0.0 || x == 1.0 => Some(x == 1.0),
        Convention::Drop if x == 0.0 || x == 1.0 => Some(x == 0.0),
        _ => None,
    };
    let kv_len = shape[3];
    let per_row = kv_len.div_ceil(64);
    let mut words = vec![0u64; shape[0] * shape[1] * shape[2] * per_row];
    let (mut row, mut k, mut wrong) = (0, 0, None);
    array.for_each(|x| {
        match is_kept(x) {
            Some(kept) => words[row + k / 64] |= u64::from(kept) << (k % 64),
            None => wrong = wrong.or(Some((row / per_row * kv_len + k, x))),
        }
        k += 1;
        if k == kv_len {
            (row, k) = (row + per_row, 0);
        }
    });
    match wrong {
        None => Ok((shape, words)),
        Some((cell, x)) if real => Err(Error::new_err(format!(
            "cell {cell} is {x}, but an additive mask holds only 0 (may attend) and -inf or numbers from {HIDES} down, such as -1e9 \
             (ignored): add other values to the scores with `mask + bias(name)`; nr.check finds the cause"
        ))),
        Some((_, x)) => Err(Error::new_err(format!("the array holds {x}: give booleans, or integers 0 and 1"))),
    }
}
