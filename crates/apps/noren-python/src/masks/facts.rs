//! The Python classes `Shape`, `Facts` and `Array`.

use crate::dlpack::Tensor;
use crate::error::{Error, raise, repr};
use crate::masks::convention::{Convention, read_words};
use noren::{Array, Facts, Mask, Shape};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;

/// The numbers of batch rows, heads, queries and keys to which a mask is bound, and the position of the first query.
///
/// `query_offset` is the position of the first query: one number, or one for each batch row. It must be given if
/// `q_len` and `kv_len` differ. `kv_heads` is the number of key-value heads [default: `heads`] and divides `heads`.
/// Raises `Error` for sizes that contradict each other.
#[pyclass(name = "Shape", module = "noren", frozen, eq, hash, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyShape(pub(crate) Shape);

/// Makes a shape from its sizes, for the constructors of `Shape`.
fn sized(shape: Shape, batch: Count, heads: Count, kv_heads: Option<Count>) -> PyResult<PyShape> {
    let shape = shape.batch(batch.0).heads(heads.0).kv_heads(kv_heads.map_or(heads.0, |n| n.0));
    shape.check().map_err(raise)?;
    Ok(PyShape(shape))
}

/// A number of batch rows, heads or tokens, an argument of `Shape`. Reading a number that is too large raises `Error`.
struct Count(usize);

impl FromPyObject<'_, '_> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        object.extract().map(Count).map_err(|error: PyErr| match error.is_instance_of::<PyOverflowError>(object.py()) {
            true => Error::new_err(format!(
                "shape: {} is not a size: give a whole number from 1 to {}",
                repr(&object),
                Shape::MAX_LEN
            )),
            false => error,
        })
    }
}

enum Offsets {
    One(i64),
    Each(Vec<i64>),
}

impl FromPyObject<'_, '_> for Offsets {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let one = object.extract().map(Offsets::One);
        one.or_else(|_| object.extract().map(Offsets::Each)).map_err(|_: PyErr| {
            let given = repr(&object);
            Error::new_err(format!(
                "query_offset is {given}: give the position of the first query, as one whole number or one whole number for each batch row"
            ))
        })
    }
}

#[pymethods]
impl PyShape {
    #[new]
    #[pyo3(signature = (q_len, kv_len, *, query_offset=None, batch=Count(1), heads=Count(1), kv_heads=None))]
    fn new(
        q_len: Count,
        kv_len: Count,
        query_offset: Option<Offsets>,
        batch: Count,
        heads: Count,
        kv_heads: Option<Count>,
    ) -> PyResult<Self> {
        let (q_len, kv_len) = (q_len.0, kv_len.0);
        let shape = match query_offset {
            Some(Offsets::One(offset)) => Shape::new(q_len, kv_len, offset),
            Some(Offsets::Each(offsets)) => Shape::cross(q_len, kv_len).query_offsets(offsets),
            None if q_len == kv_len => Shape::square(q_len),
            None => {
                let last = match kv_len.checked_sub(q_len) {
                    Some(past) => format!(
                        "the position of the first query, query_offset={past} if the queries are the last tokens of the sequence of \
                         keys, or 0 if the queries are another sequence"
                    ),
                    None => "query_offset=0 if the queries are another sequence; queries that are tokens of the sequence of keys cannot be \
                             more than the keys"
                        .to_owned(),
                };
                return Err(Error::new_err(format!("shape: q_len is {q_len} and kv_len is {kv_len}: give {last}")));
            }
        };
        sized(shape, batch, heads, kv_heads)
    }

    /// Returns a shape with `len` queries and `len` keys in each batch row.
    #[staticmethod]
    #[pyo3(signature = (len, *, batch=Count(1), heads=Count(1), kv_heads=None))]
    fn square(len: Count, batch: Count, heads: Count, kv_heads: Option<Count>) -> PyResult<Self> {
        sized(Shape::square(len.0), batch, heads, kv_heads)
    }

    /// Returns the shape of a step with a key-value cache: `past + new` keys, of which the last `new` are also the
    /// queries.
    #[staticmethod]
    #[pyo3(signature = (past, new, *, batch=Count(1), heads=Count(1), kv_heads=None))]
    fn cached(past: Count, new: Count, batch: Count, heads: Count, kv_heads: Option<Count>) -> PyResult<Self> {
        sized(Shape::cached(past.0, new.0), batch, heads, kv_heads)
    }

    /// Returns a shape in which queries and keys are different sequences; the first query has position 0.
    #[staticmethod]
    #[pyo3(signature = (q_len, kv_len, *, batch=Count(1), heads=Count(1), kv_heads=None))]
    fn cross(q_len: Count, kv_len: Count, batch: Count, heads: Count, kv_heads: Option<Count>) -> PyResult<Self> {
        sized(Shape::cross(q_len.0, kv_len.0), batch, heads, kv_heads)
    }

    /// Reads a shape from the JSON of `to_json`. Raises `Error` for any other text.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        Shape::from_json(text).map_err(raise).map(PyShape)
    }

    /// Returns the shape as JSON.
    fn to_json(&self) -> PyResult<String> {
        self.0.to_json().map_err(raise)
    }

    /// The number of batch rows.
    #[getter]
    fn batch(&self) -> usize {
        self.0.batch_len()
    }

    /// The number of query heads.
    #[getter]
    fn heads(&self) -> usize {
        self.0.head_count()
    }

    /// The number of key-value heads. Each is shared by `heads / kv_heads` query heads.
    #[getter]
    fn kv_heads(&self) -> usize {
        self.0.kv_head_count()
    }

    /// The number of queries in a batch row.
    #[getter]
    fn q_len(&self) -> usize {
        self.0.q_len()
    }

    /// The number of keys in a batch row.
    #[getter]
    fn kv_len(&self) -> usize {
        self.0.kv_len()
    }

    /// The position of the first query of each batch row.
    #[getter]
    fn query_offsets(&self) -> Vec<i64> {
        (0..self.0.batch_len()).map(|row| self.0.query_offset(row)).collect()
    }

    pub(crate) fn __repr__(&self) -> String {
        let shape = &self.0;
        let mut parts = vec![shape.q_len().to_string(), shape.kv_len().to_string()];
        let offsets = self.query_offsets();
        match offsets.iter().all(|offset| *offset == offsets[0]) {
            true if offsets[0] == 0 && shape.q_len() == shape.kv_len() => {}
            true => parts.push(format!("query_offset={}", offsets[0])),
            false => parts.push(format!("query_offset={offsets:?}")),
        }
        for (name, value, usual) in [
            ("batch", shape.batch_len(), 1),
            ("heads", shape.head_count(), 1),
            ("kv_heads", shape.kv_head_count(), shape.head_count()),
        ] {
            if value != usual {
                parts.push(format!("{name}={value}"));
            }
        }
        format!("Shape({})", parts.join(", "))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?.unbind(), (slf.get().to_json()?,)))
    }
}

/// Returns the shape given by a Python object: a `Shape`, or one integer, which is both the number of queries and the
/// number of keys.
pub(crate) fn shape_of(object: &Bound<'_, PyAny>) -> PyResult<Shape> {
    if let Ok(shape) = object.cast::<PyShape>() {
        return Ok(shape.get().0.clone());
    }
    let len = crate::masks::values::count(object, "shape").map_err(|_| {
        let given = repr(object);
        PyTypeError::new_err(format!("{given} is not a shape: give a length, or Shape(q_len, kv_len, batch=, heads=)"))
    })?;
    Ok(Shape::square(len))
}

/// A mask given cell by cell, for `Facts(arrays={name: ...})` and the elementary mask `dense(name)`.
#[pyclass(name = "Array", module = "noren", frozen, eq, hash, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyArray(pub(crate) Array);

/// Reads a mask array `[q_len, kv_len]` or `[batch, heads, q_len, kv_len]` for `nr.Array`.
fn read_array(array: &Tensor, convention: Convention) -> PyResult<PyArray> {
    let (shape, words) = read_words(array, convention)?;
    Array::keep_words(shape, &words).map_err(raise).map(PyArray)
}

#[pymethods]
impl PyArray {
    /// Reads an array in which true (or 1) means "may attend", `[q_len, kv_len]` or `[batch, heads, q_len, kv_len]`, or a
    /// sparse matrix of booleans `[q_len, kv_len]` of PyTorch or SciPy.
    #[staticmethod]
    fn keep(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let sparse = array.py().import("noren.arguments._given")?;
        if sparse.call_method1("is_sparse", (array,))?.is_truthy()? {
            return Ok(sparse.call_method1("sparse", ("array", array))?.extract()?);
        }
        read_array(&array.extract()?, Convention::Keep)
    }

    /// Reads an array in which true (or 1) means "ignored"; shapes are those of `keep`.
    #[staticmethod]
    fn drop(array: Tensor) -> PyResult<Self> {
        read_array(&array, Convention::Drop)
    }

    /// Reads floats that are added to scores: 0 means "may attend", -inf or a number from -9984 down means "ignored".
    #[staticmethod]
    fn additive(array: Tensor) -> PyResult<Self> {
        read_array(&array, Convention::Additive)
    }

    /// Returns the mask that allows exactly the (query, key) pairs in `cells`.
    #[staticmethod]
    fn cells(q_len: usize, kv_len: usize, cells: Vec<(usize, usize)>) -> PyResult<Self> {
        Array::cells(q_len, kv_len, &cells).map_err(raise).map(PyArray)
    }

    /// Returns the mask that allows exactly the cells of the rectangles in `blocks`.
    ///
    /// The queries are divided into groups of `block[0]` queries, the keys into groups of `block[1]` keys. Each entry
    /// of `blocks` is (index of a group of queries, index of a group of keys), counted from 0.
    #[staticmethod]
    fn blocks(q_len: usize, kv_len: usize, block: (usize, usize), blocks: Vec<(usize, usize)>) -> PyResult<Self> {
        Array::blocks(q_len, kv_len, block, &blocks).map_err(raise).map(PyArray)
    }

    /// The dimensions, `[batch, heads, q_len, kv_len]`; 1 if the array is equal for all batch rows or heads.
    #[getter]
    fn shape(&self) -> [usize; 4] {
        self.0.shape()
    }

    /// Returns the allowed keys of query row 0 of a batch row and head as ranges (first key, key after the last).
    fn first_row(&self, batch: usize, head: usize) -> PyResult<Vec<(usize, usize)>> {
        let [batches, heads, _, kv_len] = self.0.shape();
        if batch >= batches || head >= heads {
            return Err(Error::new_err(format!(
                "batch row {batch}, head {head} does not exist: there are {batches} batch rows and {heads} heads, counted from 0"
            )));
        }
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for key in (0..kv_len).filter(|key| self.0.allowed(batch, head, 0, *key)) {
            match runs.last_mut().filter(|run| run.1 == key) {
                Some(run) => run.1 += 1,
                None => runs.push((key, key + 1)),
            }
        }
        Ok(runs)
    }

    fn __repr__(&self) -> String {
        format!("Array(shape={:?})", self.0.shape())
    }
}

/// The data that a mask needs: `lengths`, `documents`, `labels`, `levels`, `positions`, `arrays`, ... (docs/facts.md).
///
/// Each fact is a keyword argument with its name. Values are numbers, texts, lists, ranges or arrays; `labels` and
/// `arrays` are dicts of such values by name. Raises `Error` for unknown, invalid or contradictory facts, and TypeError
/// for values of other types.
#[pyclass(name = "Facts", module = "noren", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct PyFacts(pub(crate) Facts);

/// Returns the facts (data of masks) given by a Python object: a `Facts` or a mapping. `None` means no facts.
pub(crate) fn facts_of(object: Option<&Bound<'_, PyAny>>) -> PyResult<Facts> {
    let Some(object) = object.filter(|object| !object.is_none()) else { return Ok(Facts::new()) };
    match object.cast::<PyFacts>() {
        Ok(facts) => Ok(facts.get().0.clone()),
        Err(_) => PyFacts::read(object).map(|facts| facts.0),
    }
}

/// Returns an error for a fact that `mask` does not read: a fact without effect is a mistake, such as lengths beside a mask
/// without `padding`.
pub(crate) fn check_used(mask: &Mask, facts: &Facts) -> PyResult<()> {
    // labels and levels describe tokens for several masks and policies
    let mut unused = facts.unused_by(mask);
    unused.retain(|name| !name.starts_with("labels") && name != "levels");
    let fix = match unused.first().map(String::as_str) {
        None => return Ok(()),
        Some("lengths" | "query_lengths") => "add `& padding`",
        Some("documents") => "add `& documents`",
        Some(_) => "use it in the mask",
    };
    Err(Error::new_err(format!(
        "facts: no part of the mask `{mask}` reads {}: {fix}, or leave the fact out; of facts for several masks, give \
         facts.used_by(mask)",
        unused.join(" and ")
    )))
}

impl PyFacts {
    /// Reads facts (data of masks, by name) from a mapping. The values of the mapping may be arrays of any library.
    fn read(mapping: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (text, arrays): (String, BTreeMap<String, PyArray>) =
            mapping.py().import("noren.arguments._facts")?.call_method1("read", (mapping,))?.extract()?;
        Self::from_json(&text, Some(arrays))
    }
}

#[pymethods]
impl PyFacts {
    #[new]
    #[pyo3(signature = (**facts))]
    fn new(facts: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        match facts {
            Some(facts) => Self::read(facts.as_any()),
            None => Self::from_json("{}", None),
        }
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("Facts.from_json({:?})", self.to_json()?))
    }

    /// Reads facts (data of masks) from a JSON object; `arrays` adds mask arrays, by the names with which `dense(name)` uses them.
    /// Raises `Error` for unknown facts and invalid values.
    #[staticmethod]
    #[pyo3(signature = (text, arrays=None))]
    fn from_json(text: &str, arrays: Option<BTreeMap<String, PyArray>>) -> PyResult<Self> {
        let facts = Facts::from_json(text).map_err(raise)?;
        Ok(PyFacts(arrays.into_iter().flatten().fold(facts, |facts, (name, array)| facts.array(name, array.0))))
    }

    /// Returns these facts (data given when a mask is bound) as JSON.
    fn to_json(&self) -> PyResult<String> {
        self.0.to_json().map_err(raise)
    }

    /// True if these facts (data given when a mask is bound) contain `positions`, the position of each key.
    #[getter]
    fn place_keys(&self) -> bool {
        self.0.place_keys()
    }

    /// Returns the union of these facts (data of masks) and `other`. Raises `Error` if both contain the same fact with
    /// different values.
    fn merged(&self, other: &Self) -> PyResult<Self> {
        self.0.clone().merge(&other.0).map_err(raise).map(PyFacts)
    }

    /// Returns only the facts that `mask`, a mask or its text, reads; with other facts, a mask cannot be bound.
    fn used_by(&self, mask: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyFacts(self.0.used_by(&crate::masks::classes::mask_of(mask)?)))
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?.unbind(), (slf.get().to_json()?,)))
    }
}
