//! [`Array`]: a mask given as a dense array, a sparse array or a list of blocks.

#[cfg(feature = "serde")]
mod json;

use crate::Error;
use crate::sets::bits::runs;
use crate::sets::bounds::Bounds;
use crate::sets::interval::IntervalSet;

/// An array for the atom `dense(name)`, with shape `[batch, heads, q_len, kv_len]`. If the size `batch` is 1, the array
/// applies to all batch rows; if the size `heads` is 1, it applies to all heads.
///
/// The constructor names the convention: [`keep`](Array::keep) (true allows a cell), [`hide`](Array::hide) (true hides a cell),
/// [`additive`](Array::additive) (0 allows a cell; numbers up to [`HIDES`], such as -1e9 and -inf, hide it). Sparse forms list the
/// allowed cells.
///
/// ```
/// use noren_mask::{Array, Facts, Shape, atoms::*};
/// let array = Array::keep(&[2, 3], &[true, false, true, true, true, false])?;
/// let facts = Facts::new().array("mine", array);
/// let bound = dense("mine").bind(&Shape::cross(2, 3), &facts)?;
/// assert!(bound.allowed(0, 0, 0, 2) && !bound.allowed(0, 0, 1, 2));
/// # Ok::<(), noren_mask::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Array {
    shape: [usize; 4],
    /// The cells of the array: one slice for each pair (batch row, head) of `shape`. The slices of batch row 0 are
    /// first.
    slices: Vec<Slice>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Slice {
    /// A dense array: one bit per cell. The cell of key `k` is bit `k % 64` of word `k / 64` of its query row, and each
    /// row has `row_words` words.
    Bits { row_words: usize, words: Vec<u64> },
    /// A list of blocks: the allowed key blocks of each query block, ascending. A block has `block_q` queries and
    /// `block_kv` keys. The blocks of a sparse array are single cells.
    Blocks { block_q: u32, block_kv: u32, list: Compressed },
}

/// Lists of indices, one list for each row. An empty list takes no memory, so a large array with few allowed cells
/// stays small.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Compressed {
    /// The indices of the rows whose list is not empty, ascending.
    rows: Vec<u32>,
    /// The positions of the lists in `indices`: the list of row `rows[i]` is `indices[indptr[i]..indptr[i + 1]]`,
    /// ascending.
    indptr: Vec<usize>,
    /// The lists of all rows, one after another.
    indices: Vec<u32>,
}

impl Compressed {
    fn new() -> Self {
        Compressed { rows: Vec::new(), indptr: vec![0], indices: Vec::new() }
    }

    /// Appends `index` to the list of indices of `row`. The pairs (row, index) must be appended in ascending order.
    fn push(&mut self, row: u32, index: u32) {
        if self.rows.last() != Some(&row) {
            self.rows.push(row);
            self.indptr.push(self.indices.len());
        }
        self.indices.push(index);
        if let Some(end) = self.indptr.last_mut() {
            *end = self.indices.len();
        }
    }

    /// Returns the lists from pairs (row, index) in any order. Repeated pairs count once. `rows` is the number of rows,
    /// and `what` names the array in errors.
    fn from_pairs(rows: usize, pairs: &[(usize, usize)], what: &str) -> Result<Self, Error> {
        let mut sorted = pairs.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if let Some(pair) = sorted.last().filter(|p| p.0 >= rows) {
            return Err(Error::fact(
                what,
                format!("entry {pair:?} is in row {}, but the array has only {rows} rows, counted from 0", pair.0),
            ));
        }
        let mut out = Self::new();
        sorted.into_iter().for_each(|(row, index)| out.push(row as u32, index as u32));
        Ok(out)
    }

    fn row(&self, row: u32) -> &[u32] {
        match self.rows.binary_search(&row) {
            Ok(i) => &self.indices[self.indptr[i]..self.indptr[i + 1]],
            Err(_) => &[],
        }
    }
}

impl Array {
    /// Returns an array from booleans in row-major order; true allows the cell. `shape` is `[q_len, kv_len]` or
    /// `[batch, heads, q_len, kv_len]`.
    ///
    /// # Errors
    /// Returns [`Error::Fact`] if the shape does not have 2 or 4 dimensions from 1 to 2147483647, or if the number of
    /// cells is not that of the shape.
    pub fn keep(shape: &[usize], cells: &[bool]) -> Result<Self, Error> {
        Self::from_cells(shape, cells.len(), |i| Ok(cells[i]))
    }

    /// Returns an array from booleans in row-major order; true hides the cell. `shape` is `[q_len, kv_len]` or
    /// `[batch, heads, q_len, kv_len]`.
    ///
    /// # Errors
    /// Returns [`Error::Fact`] if the shape does not have 2 or 4 dimensions from 1 to 2147483647, or if the number of
    /// cells is not that of the shape.
    pub fn hide(shape: &[usize], cells: &[bool]) -> Result<Self, Error> {
        Self::from_cells(shape, cells.len(), |i| Ok(!cells[i]))
    }

    /// Returns an array from numbers that are added to scores. The number 0 allows the cell; -inf and the lowest finite
    /// f64, f32, bf16 or f16 hide the cell. Other numbers are an error, because they are a bias and not a mask.
    ///
    /// # Errors
    /// Returns [`Error::Fact`] if the shape does not have 2 or 4 dimensions from 1 to 2147483647, if the number of
    /// cells is not that of the shape, or if a cell has another number than these.
    pub fn additive(shape: &[usize], cells: &[f32]) -> Result<Self, Error> {
        Self::from_cells(shape, cells.len(), |i| {
            additive_keep(cells[i].into()).ok_or_else(|| {
                Error::fact(
                    "additive array",
                    format!(
                        "cell {i} is {}: {ADDITIVE}; add other values to the scores with `mask + bias(name)`",
                        cells[i]
                    ),
                )
            })
        })
    }

    /// Returns an array of shape `[batch, heads, q_len, kv_len]` from 64-bit words. Each query row has `kv_len / 64`
    /// words, rounded up. Bit `k % 64` of word `k / 64` of a query row is 1 if the query may read key `k`. Bits from
    /// `kv_len` on are ignored.
    ///
    /// ```
    /// use noren_mask::Array;
    /// let array = Array::keep_words([1, 1, 2, 3], &[0b101, 0b011])?;
    /// assert_eq!(array, Array::keep(&[2, 3], &[true, false, true, true, true, false])?);
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a size is 0 or if the number of words does not fit the shape.
    pub fn keep_words(shape: [usize; 4], words: &[u64]) -> Result<Self, Error> {
        let [batch, heads, q_len, kv_len] = Self::check_shape(&shape)?;
        let row_words = kv_len.div_ceil(64);
        let expected: u128 = [batch, heads, q_len, row_words].iter().map(|&n| n as u128).product();
        if expected != words.len() as u128 {
            let given = words.len();
            return Err(Error::fact(
                "array",
                format!(
                    "shape {shape:?} needs {expected} words of 64 bits, one bit for each key, but {given} words are given"
                ),
            ));
        }
        let last = u64::MAX >> ((64 - kv_len % 64) % 64);
        let slice = |words: &[u64]| {
            let mut words = words.to_vec();
            words.chunks_mut(row_words).for_each(|row| row[row_words - 1] &= last);
            Slice::Bits { row_words, words }
        };
        Ok(Array { shape, slices: words.chunks(q_len * row_words).map(slice).collect() })
    }

    /// Returns an array `[q_len, kv_len]` from compressed sparse rows: row `i` may read keys `indices[indptr[i]..indptr[i + 1]]`.
    ///
    /// # Errors
    /// Returns [`Error::Fact`] if a length is not from 1 to 2147483647, if `indptr` does not ascend from 0 to the
    /// number of indices with `q_len + 1` entries, if a key is not below `kv_len`, or if a row contains a key twice.
    pub fn csr(q_len: usize, kv_len: usize, indptr: &[usize], indices: &[usize]) -> Result<Self, Error> {
        let shape = Self::check_shape(&[q_len, kv_len])?;
        let wrong = |problem: String| Err(Error::fact("csr array", problem));
        if indptr.len() != q_len + 1 || indptr[0] != 0 || indptr[q_len] != indices.len() {
            return wrong(format!(
                "`indptr` has {} entries, the first is {} and the last is {}: for {q_len} rows and {} indices, give {} entries, the first 0 and the last {}",
                indptr.len(),
                indptr.first().copied().unwrap_or(0),
                indptr.last().copied().unwrap_or(0),
                indices.len(),
                q_len + 1,
                indices.len()
            ));
        }
        let mut list = Compressed::new();
        for (row, w) in indptr.windows(2).enumerate() {
            if w[1] > indices.len() {
                return wrong(format!(
                    "`indptr` has the end {} for row {row}, but there are only {} indices",
                    w[1],
                    indices.len()
                ));
            }
            if w[1] < w[0] {
                return wrong(format!(
                    "`indptr` decreases from {} to {} at row {row}: give entries that do not decrease",
                    w[0], w[1]
                ));
            }
            let mut keys = indices[w[0]..w[1]].to_vec();
            keys.sort_unstable();
            if let Some(&key) = keys.last().filter(|&&k| k >= kv_len) {
                return wrong(format!(
                    "row {row} contains key {key}, but there are only {kv_len} keys, counted from 0"
                ));
            }
            if let Some(twice) = keys.windows(2).find(|w| w[0] == w[1]) {
                return wrong(format!("row {row} contains key {} twice: give each allowed key once", twice[0]));
            }
            keys.into_iter().for_each(|key| list.push(row as u32, key as u32));
        }
        Ok(Array { shape, slices: vec![Slice::of_cells(list)] })
    }

    /// Returns an array `[q_len, kv_len]` from allowed cells (query row, key) in any order.
    ///
    /// # Errors
    /// Returns [`Error::Fact`] if a length is not from 1 to 2147483647, or if a cell is outside the array.
    pub fn cells(q_len: usize, kv_len: usize, cells: &[(usize, usize)]) -> Result<Self, Error> {
        let shape = Self::check_shape(&[q_len, kv_len])?;
        if let Some(cell) = cells.iter().find(|cell| cell.1 >= kv_len) {
            return Err(Error::fact(
                "cell list",
                format!("cell {cell:?} is at key {}, but there are only {kv_len} keys, counted from 0", cell.1),
            ));
        }
        Ok(Array { shape, slices: vec![Slice::of_cells(Compressed::from_pairs(q_len, cells, "cell list")?)] })
    }

    /// Returns an array `[q_len, kv_len]` from allowed pairs (query block, key block) in any order. A block has `block_q` queries
    /// and `block_kv` keys; the last blocks may be smaller.
    ///
    /// # Errors
    /// Returns [`Error::Fact`] if a length is not from 1 to 2147483647, if `block_q` or `block_kv` is 0, or if a pair
    /// is outside the array.
    pub fn blocks(
        q_len: usize,
        kv_len: usize,
        (block_q, block_kv): (usize, usize),
        list: &[(usize, usize)],
    ) -> Result<Self, Error> {
        let refuse = |problem: String| Err(Error::fact("block list", problem));
        let shape = Self::check_shape(&[q_len, kv_len])?;
        if block_q == 0 || block_kv == 0 {
            return refuse(format!(
                "blocks of {block_q} by {block_kv} cells are empty: give blocks of at least 1 by 1 cells"
            ));
        }
        let kv_blocks = kv_len.div_ceil(block_kv);
        if let Some(pair) = list.iter().find(|p| p.1 >= kv_blocks) {
            return refuse(format!(
                "key block {} of the pair {pair:?} does not exist: there are {kv_blocks} key blocks, counted from 0",
                pair.1
            ));
        }
        let list = Compressed::from_pairs(q_len.div_ceil(block_q), list, "block list")?;
        let [block_q, block_kv] = [block_q, block_kv].map(|size| size.min(crate::Shape::MAX_LEN) as u32);
        Ok(Array { shape, slices: vec![Slice::Blocks { block_q, block_kv, list }] })
    }

    /// Returns the shape `[batch, heads, q_len, kv_len]`. If `batch` is 1, the array applies to all batch rows; if
    /// `heads` is 1, it applies to all heads.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// Returns true if query row `q` of batch row `batch` and head `head` may read key `k`.
    pub fn allowed(&self, batch: usize, head: usize, q: usize, k: usize) -> bool {
        let key = k as u32;
        match self.slice(self.slice_index(batch, head)) {
            Slice::Bits { row_words, words } => words[q * row_words + k / 64] >> (k % 64) & 1 == 1,
            Slice::Blocks { block_q, block_kv, list } => {
                list.row(q as u32 / block_q).binary_search(&(key / block_kv)).is_ok()
            }
        }
    }

    pub(crate) fn slice_index(&self, batch: usize, head: usize) -> usize {
        let pick = |n: usize, i: usize| if n == 1 { 0 } else { i };
        pick(self.shape[0], batch) * self.shape[1] + pick(self.shape[1], head)
    }

    pub(crate) fn slice(&self, index: usize) -> &Slice {
        &self.slices[index]
    }

    /// Returns `shape` as `[batch, heads, q_len, kv_len]`. Returns an error if `shape` does not have 2 or 4 dimensions,
    /// or if a size is not from 1 to 2147483647. Three dimensions are an error because the first could be batch rows or
    /// heads.
    fn check_shape(shape: &[usize]) -> Result<[usize; 4], Error> {
        let refuse = |problem: String| Err(Error::fact("array", problem));
        let full = match *shape {
            [q, k] => [1, 1, q, k],
            [b, h, q, k] => [b, h, q, k],
            [n, q, k] => {
                return refuse(format!(
                    "shape {shape:?} has 3 dimensions, and {n} could be the number of batch rows or of heads: \
                         give [{n}, 1, {q}, {k}] or [1, {n}, {q}, {k}]"
                ));
            }
            _ => {
                return refuse(format!(
                    "shape {shape:?} has {} dimensions: give [q_len, kv_len] or [batch, heads, q_len, kv_len]",
                    shape.len()
                ));
            }
        };
        match full.iter().any(|&n| n == 0 || n > crate::Shape::MAX_LEN) {
            true => Err(Error::fact("array", format!("shape {shape:?}: every size must be 1 to 2147483647"))),
            false => Ok(full),
        }
    }

    fn from_cells(shape: &[usize], count: usize, keep: impl Fn(usize) -> Result<bool, Error>) -> Result<Self, Error> {
        let shape = Self::check_shape(shape)?;
        let expected: u128 = shape.iter().map(|&n| n as u128).product();
        if expected != count as u128 {
            return Err(Error::fact("array", format!("shape {shape:?} has {expected} cells but {count} were given")));
        }
        let [b, h, q, k] = shape;
        let row_words = k.div_ceil(64);
        let slice = |s: usize| {
            let mut words = vec![0u64; q * row_words];
            for row in 0..q {
                for key in 0..k {
                    let bit = u64::from(keep((s * q + row) * k + key)?);
                    words[row * row_words + key / 64] |= bit << (key % 64);
                }
            }
            Ok(Slice::Bits { row_words, words })
        };
        Ok(Array { shape, slices: (0..b * h).map(slice).collect::<Result<_, Error>>()? })
    }
}

impl Slice {
    fn of_cells(list: Compressed) -> Self {
        Slice::Blocks { block_q: 1, block_kv: 1, list }
    }

    /// Returns whether the cells are stored as a dense array: one bit for each cell.
    pub(crate) fn is_dense(&self) -> bool {
        matches!(self, Slice::Bits { .. })
    }

    /// Calls `emit(first, end)` for each range of keys in `start..end` that query row `q` may read, in ascending order;
    /// `end` is excluded. Adjacent ranges are not always joined: a sparse array gives one range for each key.
    pub(crate) fn row(&self, q: usize, start: u32, end: u32, mut emit: impl FnMut(u32, u32)) {
        match self {
            Slice::Bits { row_words, words } => {
                runs(&words[q * row_words..(q + 1) * row_words], start, end, emit);
            }
            Slice::Blocks { block_q, block_kv, list } => {
                let row = list.row(q as u32 / block_q);
                for &b in &row[row.partition_point(|&b| b < start / block_kv)..] {
                    let first = b * block_kv;
                    if first >= end {
                        break;
                    }
                    emit(first.max(start), first.saturating_add(*block_kv).min(end));
                }
            }
        }
    }

    /// Returns the end (excluded) of the longest range of query rows that begins at `q` and whose rows are known to
    /// have equal keys. For a list of blocks, this is the end of the query block; for other arrays, `q + 1`.
    pub(crate) fn equal_rows_end(&self, q: u32) -> u32 {
        match self {
            Slice::Blocks { block_q, .. } => (q / block_q + 1).saturating_mul(*block_q),
            _ => q + 1,
        }
    }

    /// Returns (keys that at least one row may read, keys that every row may read) for the query rows `start..end` of a
    /// dense array. Returns `None` for sparse arrays and lists of blocks.
    pub(crate) fn bounds(&self, start: u32, end: u32, kv_len: u32) -> Option<Bounds> {
        let Slice::Bits { row_words, words } = self else { return None };
        let row = |q: u32| &words[q as usize * row_words..(q as usize + 1) * row_words];
        let (mut any, mut all) = (row(start).to_vec(), row(start).to_vec());
        for q in start + 1..end {
            any.iter_mut().zip(row(q)).for_each(|(a, w)| *a |= w);
            all.iter_mut().zip(row(q)).for_each(|(a, w)| *a &= w);
        }
        Some(Bounds { upper: bit_set(&any, kv_len), lower: bit_set(&all, kv_len) })
    }
}

/// The largest number that hides a cell of an additive mask: `exp(-9984)` is 0 in every type, and -1e4, -1e9, -inf and
/// the lowest numbers of all types are not larger. (-9984 is -1e4 in bfloat16.)
pub const HIDES: f64 = -9984.0;

/// The values that are allowed in an additive mask, as text for error messages.
pub(crate) const ADDITIVE: &str =
    "an additive mask contains only 0 (allowed), and -inf or numbers from -9984 down, such as -1e9 (not allowed)";

/// Returns true for 0, false for numbers up to [`HIDES`], and `None` for other numbers.
pub(crate) fn additive_keep(cell: f64) -> Option<bool> {
    if cell == 0.0 { Some(true) } else { (cell <= HIDES).then_some(false) }
}

fn bit_set(words: &[u64], len: u32) -> IntervalSet {
    let mut out = IntervalSet::new();
    runs(words, 0, len, |a, z| out.push(a, z));
    out
}
