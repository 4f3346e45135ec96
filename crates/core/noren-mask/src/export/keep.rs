//! [`Keep`]: the cells of a mask as bits, for functions that examine masks of other programs.

use crate::Error;
use crate::bind::BoundMask;
use crate::plan::{PlanOptions, Reorder};
use crate::sets::bits::{bit, count, row_of, runs};
use std::ops::Range;

/// Allowed cells with one bit per cell: `[batch, heads, q_len, kv_len]`, true = the query may read the key.
///
/// ```
/// use noren_mask::Keep;
/// let keep = Keep::from_fn([1, 1, 2, 3], |[_, _, q, k]| k <= q);
/// assert!(keep.get([0, 0, 1, 1]) && !keep.get([0, 0, 0, 1]));
/// assert_eq!(keep.count(), 3);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keep {
    dims: [usize; 4],
    /// The words of all query rows. Bit `k % 64` of word `k / 64` of a row is 1 if the query may read key `k`. Bits
    /// beyond `kv_len` are 0.
    words: Vec<u64>,
}

impl Keep {
    /// Returns a matrix without allowed cells. `dims` is `[batch, heads, q_len, kv_len]`.
    pub fn empty(dims: [usize; 4]) -> Self {
        let [b, h, q, k] = dims;
        Keep { dims, words: vec![0; b * h * q * k.div_ceil(64)] }
    }

    /// Returns a matrix of the dimensions `dims`, in which a cell is allowed if `allowed([batch, head, query, key])` is
    /// true.
    pub fn from_fn(dims: [usize; 4], allowed: impl Fn([usize; 4]) -> bool) -> Self {
        let mut keep = Self::empty(dims);
        let [batch, heads, q_len, kv_len] = dims;
        for b in 0..batch {
            for h in 0..heads {
                for q in 0..q_len {
                    let row = keep.row_mut(b, h, q);
                    for k in (0..kv_len).filter(|&k| allowed([b, h, q, k])) {
                        row[k / 64] |= 1 << (k % 64);
                    }
                }
            }
        }
        keep
    }

    /// Returns a matrix of the dimensions `dims` from its bits. `words` is the 64-bit words of all query rows. Bit `k %
    /// 64` of word `k / 64` of a row is 1 if the query may read key `k`. Bits beyond `kv_len` are ignored.
    ///
    /// # Errors
    /// Returns an error if the number of words does not match `dims`.
    pub fn from_words(dims: [usize; 4], mut words: Vec<u64>) -> Result<Self, Error> {
        let [b, h, q, k] = dims;
        let per_row = k.div_ceil(64);
        let expected = [b, h, q, per_row].iter().map(|&n| n as u128).product::<u128>();
        if expected != words.len() as u128 {
            let given = words.len();
            return Err(Error::fact(
                "cells",
                format!(
                    "dimensions {dims:?} need {expected} words of 64 bits, one bit for each key, but {given} words are given"
                ),
            ));
        }
        if k % 64 != 0 {
            words.chunks_mut(per_row).for_each(|row| row[per_row - 1] &= u64::MAX >> (64 - k % 64));
        }
        Ok(Keep { dims, words })
    }

    /// Returns a matrix of the dimensions `dims` from Booleans in row-major order; true allows a cell. `cells` must
    /// have one value for each cell.
    pub fn from_cells(dims: [usize; 4], cells: impl Iterator<Item = bool>) -> Self {
        let mut keep = Self::empty(dims);
        let (kv_len, words) = (dims[3], dims[3].div_ceil(64));
        let (mut row, mut k) = (0, 0);
        for cell in cells {
            keep.words[row * words + k / 64] |= u64::from(cell) << (k % 64);
            k += 1;
            if k == kv_len {
                (row, k) = (row + 1, 0);
            }
        }
        keep
    }

    /// Returns the cells of a bound mask. If the cells of all heads are equal, the result has one head.
    pub fn of(bound: &BoundMask) -> Self {
        let shape = bound.shape();
        let (batch, heads) = (shape.batch_len(), shape.head_count());
        let by_head = (0..batch).any(|b| (1..heads).any(|h| bound.pattern_of(b, h) != bound.pattern_of(b, 0)));
        let dims = [batch, if by_head { heads } else { 1 }, shape.q_len(), shape.kv_len()];
        let mut keep = Self::empty(dims);
        let plan = bound.plan_with(&PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() });
        let words = dims[3].div_ceil(64);
        for b in 0..batch {
            for h in 0..dims[1] {
                let pattern = &plan.patterns()[plan.pattern_of(b, h)];
                let from = (b * dims[1] + h) * dims[2] * words;
                let to = &mut keep.words[from..from + dims[2] * words];
                pattern.fill_bits(0..dims[2] as u32, 0..dims[3] as u32, to);
            }
        }
        keep
    }

    /// Returns `[batch, heads, q_len, kv_len]`.
    pub fn dims(&self) -> [usize; 4] {
        self.dims
    }

    /// Returns whether the cell `[batch, head, query, key]` is allowed.
    pub fn get(&self, [b, h, q, k]: [usize; 4]) -> bool {
        self.row(b, h, q)[k / 64] >> (k % 64) & 1 == 1
    }

    /// Returns all cells in row-major order.
    pub fn cells(&self) -> impl Iterator<Item = bool> + '_ {
        let kv_len = self.dims[3];
        self.words.chunks(kv_len.div_ceil(64).max(1)).flat_map(move |row| (0..kv_len).map(|k| bit(row, k)))
    }

    /// Returns the number of allowed cells.
    pub fn count(&self) -> u64 {
        count(&self.words)
    }

    /// Returns the words of query row `q` in batch row `b` and head `h`.
    pub fn row(&self, b: usize, h: usize, q: usize) -> &[u64] {
        let range = self.range(b, h, q);
        &self.words[range]
    }

    /// Returns the mutable words of query row `q` in batch row `b` and head `h`. Bits beyond `kv_len` must stay 0.
    pub fn row_mut(&mut self, b: usize, h: usize, q: usize) -> &mut [u64] {
        let range = self.range(b, h, q);
        &mut self.words[range]
    }

    fn range(&self, b: usize, h: usize, q: usize) -> Range<usize> {
        let words = self.dims[3].div_ceil(64);
        let row = (b * self.dims[1] + h) * self.dims[2] + q;
        row * words..(row + 1) * words
    }

    /// Returns the cells repeated to the dimensions `dims` = `[batch, heads, q_len, kv_len]`. Only a dimension of size
    /// 1 can be repeated.
    pub fn expand(&self, dims: [usize; 4]) -> Self {
        if self.dims == dims {
            return self.clone();
        }
        let mut out = Self::empty(dims);
        let pick = |axis: usize, i: usize| if self.dims[axis] == 1 { 0 } else { i };
        let whole = row_of(dims[3], 0, dims[3]);
        for b in 0..dims[0] {
            for h in 0..dims[1] {
                for q in 0..dims[2] {
                    let from = self.row(pick(0, b), pick(1, h), pick(2, q));
                    if self.dims[3] == dims[3] {
                        out.row_mut(b, h, q).copy_from_slice(from);
                    } else if bit(from, 0) {
                        out.row_mut(b, h, q).copy_from_slice(&whole);
                    }
                }
            }
        }
        out
    }

    /// Returns the cells with queries and keys exchanged: a matrix `[batch, heads, kv_len, q_len]`.
    pub fn transposed(&self) -> Self {
        let [b, h, q, k] = self.dims;
        let mut out = Self::empty([b, h, k, q]);
        for b in 0..b {
            for h in 0..h {
                for q in 0..q {
                    runs(self.row(b, h, q), 0, k as u32, |start, end| {
                        for key in start as usize..end as usize {
                            out.row_mut(b, h, key)[q / 64] |= 1 << (q % 64);
                        }
                    });
                }
            }
        }
        out
    }

    /// Returns whether the cells of all heads are equal.
    pub fn heads_equal(&self) -> bool {
        let [batch, heads, q_len, _] = self.dims;
        (0..batch).all(|b| (1..heads).all(|h| (0..q_len).all(|q| self.row(b, h, q) == self.row(b, 0, q))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_and_expanding() {
        let keep = Keep::from_fn([2, 1, 3, 70], |[b, _, q, k]| (b + q * 7 + k * 3) % 5 < 2);
        assert_eq!(keep.transposed().transposed(), keep);
        let plane = Keep::from_fn([2, 1, 1, 70], |[b, _, _, k]| k < 10 + b);
        assert_eq!(plane.expand([2, 2, 4, 70]), Keep::from_fn([2, 2, 4, 70], |[b, _, _, k]| k < 10 + b));
        let column = Keep::from_fn([1, 1, 3, 1], |[_, _, q, _]| q == 1);
        assert_eq!(column.expand([1, 1, 3, 5]), Keep::from_fn([1, 1, 3, 5], |[_, _, q, _]| q == 1));
        assert_eq!(Keep::from_cells(keep.dims(), keep.cells()), keep);
        let loose = keep.words.chunks(2).flat_map(|row| [row[0], row[1] | 1 << 63]).collect();
        assert_eq!(Keep::from_words(keep.dims(), loose), Ok(keep.clone()));
        assert!(Keep::from_words(keep.dims(), vec![0; 3]).is_err());
    }
}
