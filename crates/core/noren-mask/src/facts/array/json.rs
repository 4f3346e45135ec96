//! The serial form of an [`Array`]: an object with one field. The name of the field gives the form of its value. For
//! example, the value of `keep` is nested lists of 0 and 1.

use super::{ADDITIVE, Array, Compressed, Slice, additive_keep};
use crate::Error;
use crate::facts::json::{At, Json};
use crate::facts::shape::Shape;
use serde::ser::{Serialize, SerializeMap, Serializer};

const MAX: i64 = Shape::MAX_LEN as i64;
const LISTS: &str = "cells as nested lists: [q_len, kv_len] or [batch, heads, q_len, kv_len]";
const PAIR: &str = "a pair of whole numbers";

impl Array {
    /// Reads one array from JSON; [`Facts::from_json`](crate::Facts::from_json) lists the accepted forms.
    pub(crate) fn read(at: At<'_>) -> Result<Self, Error> {
        const FORMS: [&str; 6] = ["keep", "drop", "additive", "csr", "cells", "blocks"];
        at.only(&FORMS)?;
        let mut fields = at.entries("an object")?;
        let (Some((form, value)), None) = (fields.next(), fields.next()) else {
            return Err(at.error(format!("give exactly one of the fields {}", FORMS.join(", "))));
        };
        match form {
            "keep" => read_dense(&value, |cell| cell.flag()),
            "drop" => read_dense(&value, |cell| cell.flag().map(|drop| !drop)),
            "additive" => read_dense(&value, |cell| read_additive(&cell)),
            "csr" => read_csr(&value),
            "cells" => read_cells(&value),
            _ => read_blocks(&value),
        }
    }
}

/// Reads a cell of an additive mask, and returns true if the cell is allowed. JSON has no infinities, so minus infinity
/// is the text "-inf".
pub(crate) fn read_additive(cell: &At<'_>) -> Result<bool, Error> {
    let number = match cell.value {
        Json::Whole(n) => *n as f64,
        Json::Real(x) => *x,
        Json::Text(text) if matches!(text.as_str(), "-inf" | "-Infinity") => f64::NEG_INFINITY,
        _ => f64::NAN,
    };
    additive_keep(number).ok_or_else(|| {
        cell.wrong(&format!("0 or \"-inf\": {ADDITIVE}; add other values to the scores with `mask + bias(name)`"))
    })
}

fn read_dense(at: &At<'_>, read: impl Fn(At<'_>) -> Result<bool, Error>) -> Result<Array, Error> {
    let mut shape = Vec::new();
    let mut level = at.value;
    while let Json::List(list) = level {
        shape.push(list.len());
        // One level more than an array may have is enough to refuse it.
        match list.first() {
            Some(first) if shape.len() < 5 => level = first,
            _ => break,
        }
    }
    if shape.is_empty() {
        return Err(at.wrong(LISTS));
    }
    let mut cells = Vec::new();
    gather(at, &shape, &read, &mut cells)?;
    Array::keep(&shape, &cells).map_err(|e| at.rename(e))
}

/// Reads nested lists with the sizes `shape`, and appends their values to `cells` in row-major order. `read` reads one value.
fn gather(
    at: &At<'_>,
    shape: &[usize],
    read: &impl Fn(At<'_>) -> Result<bool, Error>,
    cells: &mut Vec<bool>,
) -> Result<(), Error> {
    let items = at.items(LISTS)?;
    if items.len() != shape[0] {
        return Err(at.error(format!(
            "the list has {} entries, but the first list at the same depth has {}: give lists of equal length",
            items.len(),
            shape[0]
        )));
    }
    for item in items {
        match shape.len() {
            1 => cells.push(read(item)?),
            _ => gather(&item, &shape[1..], read, cells)?,
        }
    }
    Ok(())
}

fn read_pair(at: At<'_>, what: &str, min: i64) -> Result<(usize, usize), Error> {
    let pair = at.list(PAIR, |n| n.whole(what, min, MAX))?;
    match pair[..] {
        [a, b] => Ok((a as usize, b as usize)),
        _ => Err(at.wrong(PAIR)),
    }
}

/// Reads the field `shape`: `[q_len, kv_len]`.
fn read_shape(at: &At<'_>) -> Result<(usize, usize), Error> {
    read_pair(at.needed("shape")?, "a number of queries or keys", 1)
}

fn read_csr(at: &At<'_>) -> Result<Array, Error> {
    at.only(&["shape", "indptr", "indices"])?;
    let (q_len, kv_len) = read_shape(at)?;
    let whole = |n: At<'_>| n.whole("an index", 0, MAX).map(|n| n as usize);
    let indptr = at.needed("indptr")?.list("a list of indices", whole)?;
    let indices = at.needed("indices")?.list("a list of keys", whole)?;
    Array::csr(q_len, kv_len, &indptr, &indices).map_err(|e| at.rename(e))
}

fn read_cells(at: &At<'_>) -> Result<Array, Error> {
    at.only(&["shape", "list"])?;
    let (q_len, kv_len) = read_shape(at)?;
    let list = at.needed("list")?.list("a list of [query, key] pairs", |pair| read_pair(pair, "an index", 0))?;
    Array::cells(q_len, kv_len, &list).map_err(|e| at.rename(e))
}

fn read_blocks(at: &At<'_>) -> Result<Array, Error> {
    at.only(&["shape", "block", "list"])?;
    let (q_len, kv_len) = read_shape(at)?;
    let block = read_pair(at.needed("block")?, "a block size", 1)?;
    let list = at.needed("list")?.list("a list of [query block, key block] pairs", |p| read_pair(p, "an index", 0))?;
    Array::blocks(q_len, kv_len, block, &list).map_err(|e| at.rename(e))
}

/// Writes an object with one field. A dense array has the field `keep`, nested lists of 0 and 1; a list of cells has the
/// field `cells`; a list of blocks has the field `blocks`.
impl Serialize for Array {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [batch, heads, q_len, kv_len] = self.shape;
        let mut map = serializer.serialize_map(Some(1))?;
        match &self.slices[..] {
            [Slice::Blocks { block_q, block_kv, list }] => {
                let block = Some([*block_q, *block_kv]).filter(|block| *block != [1, 1]);
                let form = if block.is_some() { "blocks" } else { "cells" };
                map.serialize_entry(form, &Cells { shape: [q_len, kv_len], block, list: list.pairs().collect() })?;
            }
            _ if (batch, heads) == (1, 1) => {
                map.serialize_entry("keep", &Nested { array: self, at: [0; 3], depth: 2 })?
            }
            _ => map.serialize_entry("keep", &Nested { array: self, at: [0; 3], depth: 0 })?,
        }
        map.end()
    }
}

impl Compressed {
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let lists = self.rows.iter().zip(self.indptr.windows(2));
        lists.flat_map(|(row, w)| self.indices[w[0]..w[1]].iter().map(|index| (*row, *index)))
    }
}

#[derive(serde::Serialize)]
struct Cells {
    shape: [usize; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<[u32; 2]>,
    list: Vec<(u32, u32)>,
}

/// A dense array, or a slice of it, that is written as nested lists. The slice fixes the first `depth` of the indices
/// (batch row, head, query row) to `at[..depth]`; with `depth` 0, it is the whole array.
struct Nested<'a> {
    array: &'a Array,
    at: [usize; 3],
    depth: usize,
}

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Nested { array, at, depth } = self;
        let count = 0..array.shape[depth];
        if depth == 3 {
            return serializer.collect_seq(count.map(|k| u8::from(array.allowed(at[0], at[1], at[2], k))));
        }
        serializer.collect_seq(count.map(|i| {
            let mut at = at;
            at[depth] = i;
            Nested { array, at, depth: depth + 1 }
        }))
    }
}
