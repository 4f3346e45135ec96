//! The named mask arrays in the facts (data given with a mask): the allowed keys of each query row, read from nested
//! lists of all cells, or from a list of the allowed keys, cells or blocks of cells.

use crate::facts::shape::{MOST, Shape};
use crate::read::json::{At, Value};
use crate::read::refusal::{Result, wrong};
use crate::runs::{Runs, normal};

/// One named mask array of the facts (data given with a mask): the allowed keys of each query row. Query rows without
/// allowed keys are not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Array {
    /// The shape `[batch, heads, q_len, kv_len]`. If `batch` is 1, the array applies to all batch rows; if `heads` is
    /// 1, it applies to all heads.
    dims: [i64; 4],
    /// The number of consecutive query rows in a group. The rows of a group have equal allowed keys, which are stored
    /// as one list.
    block_q: i64,
    /// The allowed keys, as pairs `(list number, allowed keys)` in ascending order of the list number. Query `q` in
    /// batch row `b` and head `h` has the list number `(b * heads + h) * lists + q / block_q`; `lists` is the number of
    /// lists in each head.
    rows: Vec<(i64, Runs)>,
}

impl Array {
    pub(crate) fn read(at: &At<'_>, shape: &Shape) -> Result<Self> {
        let fields = at.object(&["keep", "drop", "additive", "csr", "cells", "blocks"])?;
        let entries = at.entries()?;
        let [(kind, ref data)] = entries[..] else { return Err(at.refuse("an object with exactly one field")) };
        let array = match kind {
            "csr" => csr(data)?,
            "cells" => cells(data)?,
            "blocks" => blocks(data)?,
            _ => dense(&fields.need(kind)?, kind)?,
        };
        let [b, h, q, k] = array.dims;
        let fits = (b == 1 || b == shape.batch as i64) && (h == 1 || h == shape.heads as i64);
        if !fits || q != shape.q_len || k != shape.kv_len {
            return Err(wrong(
                at.path.clone(),
                format!("shape {:?}", array.dims),
                "the shape of the mask, where batch may be 1 (for all batch rows) and heads may be 1 (for all heads)",
            ));
        }
        Ok(array)
    }

    /// Returns the index of the matrix `[q_len, kv_len]` of the array that applies to a batch row and a head. The array
    /// has `dims[0] * dims[1]` of these matrices.
    pub(crate) fn slice(&self, batch: usize, head: usize) -> i64 {
        let b = if self.dims[0] == 1 { 0 } else { batch as i64 };
        let h = if self.dims[1] == 1 { 0 } else { head as i64 };
        b * self.dims[1] + h
    }

    /// Returns true if the array has a separate matrix `[q_len, kv_len]` for each head, false if one matrix applies to
    /// all heads.
    pub(crate) fn by_head(&self) -> bool {
        self.dims[1] > 1
    }

    /// Returns the allowed keys of query row `q`. `slice` is the index of the matrix `[q_len, kv_len]`, a result of the
    /// method [`slice`](Self::slice).
    pub(crate) fn row(&self, slice: i64, q: i64) -> &[(i64, i64)] {
        let list = slice * ((self.dims[2] - 1) / self.block_q + 1) + q / self.block_q;
        match self.rows.binary_search_by_key(&list, |row| row.0) {
            Ok(at) => &self.rows[at].1,
            Err(_) => &[],
        }
    }

    /// Builds an array from pairs `(list number, range of keys)` in any order. The comment of the field `rows` defines
    /// the list number.
    fn from_pairs(dims: [i64; 4], block_q: i64, mut pairs: Vec<(i64, (i64, i64))>) -> Self {
        pairs.sort_unstable();
        let mut rows: Vec<(i64, Runs)> = Vec::new();
        for (list, keys) in pairs {
            match rows.last_mut() {
                Some(last) if last.0 == list => last.1.push(keys),
                _ => rows.push((list, vec![keys])),
            }
        }
        rows.iter_mut().for_each(|row| row.1 = normal(std::mem::take(&mut row.1)));
        Self { dims, block_q, rows }
    }
}

/// Reads an array from nested lists of cells, `[q_len][kv_len]` or `[batch][heads][q_len][kv_len]`. `kind` is the
/// convention of the cells: `keep`, `drop` or `additive`.
fn dense(at: &At<'_>, kind: &str) -> Result<Array> {
    let mut slices = Vec::new();
    let nested = at.list(|slice| Ok(slice.is_nested()))?.into_iter().any(|deep| deep);
    let (batch, heads) = if nested {
        let heads = at.list(|row| row.list(|slice| rows(&slice, kind, &mut slices)).map(|list| list.len()))?;
        if heads.iter().any(|&count| count != heads[0]) {
            return Err(at.refuse("an array with the same number of heads in each batch row"));
        }
        (heads.len(), heads[0])
    } else {
        rows(at, kind, &mut slices)?;
        (1, 1)
    };
    let Some(&(q, k, _)) = slices.first() else { return Err(at.refuse("an array with at least one cell")) };
    if q == 0 || k == 0 || slices.iter().any(|slice| (slice.0, slice.1) != (q, k)) {
        return Err(at.refuse("lists of equal length with at least one cell"));
    }
    let lists = slices
        .into_iter()
        .enumerate()
        .flat_map(|(at, slice)| slice.2.into_iter().map(move |(row, keys)| (at as i64 * q + row, keys)));
    Ok(Array {
        dims: [batch as i64, heads as i64, q, k],
        block_q: 1,
        rows: lists.filter(|row| !row.1.is_empty()).collect(),
    })
}

/// The cells of one pair of batch row and head: `(q_len, kv_len, list)`. The list has pairs `(query row, allowed
/// keys)`.
type Slice = (i64, i64, Vec<(i64, Runs)>);

fn rows(at: &At<'_>, kind: &str, slices: &mut Vec<Slice>) -> Result<()> {
    let mut width = None;
    let mut number = 0;
    let list = at.list(|row| {
        let cells = row.list(|cell| keeps(&cell, kind))?;
        if *width.get_or_insert(cells.len()) != cells.len() {
            return Err(row.refuse("a row with the same number of cells as the other rows"));
        }
        let mut keys = Runs::new();
        for (k, _) in cells.iter().enumerate().filter(|cell| *cell.1) {
            match keys.last_mut() {
                Some(last) if last.1 == k as i64 => last.1 += 1,
                _ => keys.push((k as i64, k as i64 + 1)),
            }
        }
        number += 1;
        Ok((number - 1, keys))
    })?;
    slices.push((number, width.unwrap_or(0) as i64, list));
    Ok(())
}

fn keeps(at: &At<'_>, kind: &str) -> Result<bool> {
    match (kind, at.value) {
        ("keep", Value::Int(0) | Value::Bool(false)) | ("drop", Value::Int(1) | Value::Bool(true)) => Ok(false),
        ("keep", Value::Int(1) | Value::Bool(true)) | ("drop", Value::Int(0) | Value::Bool(false)) => Ok(true),
        ("additive", Value::Int(0)) => Ok(true),
        ("additive", Value::Text(text)) if text == "-inf" => Ok(false),
        ("additive", _) => Err(at.refuse("0 or \"-inf\"")),
        _ => Err(at.refuse("0 or 1")),
    }
}

/// Reads the field `shape`, a list `[q_len, kv_len]`, and returns `[1, 1, q_len, kv_len]`.
fn dims(at: &At<'_>) -> Result<[i64; 4]> {
    match at.ints(1, MOST)?[..] {
        [q, k] => Ok([1, 1, q, k]),
        _ => Err(at.refuse("[q_len, kv_len]")),
    }
}

fn csr(at: &At<'_>) -> Result<Array> {
    let fields = at.object(&["shape", "indptr", "indices"])?;
    let dims = dims(&fields.need("shape")?)?;
    let indices = fields.need("indices")?.ints(0, dims[3] - 1)?;
    let at = fields.need("indptr")?;
    let indptr = at.ints(0, indices.len() as i64)?;
    let ends = (indptr.first(), indptr.last());
    let fits = indptr.len() as i64 == dims[2] + 1 && ends == (Some(&0), Some(&(indices.len() as i64)));
    if !fits || indptr.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(at.refuse("q_len + 1 ascending numbers from 0 to the number of indices"));
    }
    let row = |pair: (usize, &[i64])| {
        let keys = &indices[pair.1[0] as usize..pair.1[1] as usize];
        keys.iter().map(|&k| (pair.0 as i64, (k, k + 1))).collect::<Vec<_>>()
    };
    Ok(Array::from_pairs(dims, 1, indptr.windows(2).enumerate().flat_map(row).collect()))
}

/// Reads a list of pairs `[i, j]` with `i` below `rows` and `j` below `columns`.
fn pairs(at: &At<'_>, rows: i64, columns: i64) -> Result<Vec<(i64, i64)>> {
    at.list(|at| match at.ints(0, MOST)?[..] {
        [i, j] if i < rows && j < columns => Ok((i, j)),
        _ => Err(at.refuse(format!("a pair [i, j] with i below {rows} and j below {columns}"))),
    })
}

fn cells(at: &At<'_>) -> Result<Array> {
    let fields = at.object(&["shape", "list"])?;
    let dims = dims(&fields.need("shape")?)?;
    let list = pairs(&fields.need("list")?, dims[2], dims[3])?;
    Ok(Array::from_pairs(dims, 1, list.into_iter().map(|(q, k)| (q, (k, k + 1))).collect()))
}

fn blocks(at: &At<'_>) -> Result<Array> {
    let fields = at.object(&["shape", "block", "list"])?;
    let dims = dims(&fields.need("shape")?)?;
    let at = fields.need("block")?;
    let [rows, keys] = at.ints(1, MOST)?[..] else { return Err(at.refuse("[rows, keys]")) };
    let list = pairs(&fields.need("list")?, (dims[2] - 1) / rows + 1, (dims[3] - 1) / keys + 1)?;
    let cut = |(i, j): (i64, i64)| (i, (j * keys, ((j + 1) * keys).min(dims[3])));
    Ok(Array::from_pairs(dims, rows, list.into_iter().map(cut).collect()))
}
