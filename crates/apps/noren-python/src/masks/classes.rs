//! The Python classes `Mask`, `Score` and `Spec`, and helper functions for methods of several classes. The methods of
//! these three classes are in `mask`.

use crate::error::{raise, repr};
use noren::noren_mask::Error;
use noren::{Mask, Score, Spec};
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A set of allowed (query, key) cells as an expression, without sizes. Two masks are equal if their expressions are
/// equal; masks can be hashed, printed and pickled.
///
/// `a & b` allows the cells that both allow, `a | b` the cells that at least one allows, `a - b` the cells that `a`
/// allows and `b` does not, `~a` the cells that `a` does not allow. `mask + score` is a `Spec`. `Mask(text)` parses a
/// text and raises `ParseError` if the text is not a mask.
#[pyclass(name = "Mask", module = "noren", frozen, eq, hash, weakref, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyMask(pub(crate) Mask);

/// A score modifier: a change of attention scores other than the mask, such as `alibi` or `softcap(30)`.
#[pyclass(name = "Score", module = "noren", frozen, eq, hash, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyScore(pub(crate) Score);

/// A mask with score modifiers: `mask + score + ...`.
#[pyclass(name = "Spec", module = "noren", frozen, eq, hash, weakref, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PySpec(pub(crate) Spec);

/// Names of attributes that libraries read from tensors. If code reads one of them from a mask, the mask was passed
/// where a tensor is needed.
const OF_TENSORS: [&str; 9] = ["ndim", "shape", "dtype", "device", "dim", "size", "to", "bool", "expand"];

/// Returns the error for the attribute `name`, which an object does not have. `kind` is the object's class and `text`
/// its text.
pub(crate) fn no_attribute(kind: &str, text: &str, name: &str) -> PyErr {
    let advice = match OF_TENSORS.contains(&name) {
        true => {
            "a mask is not a tensor. Where a tensor is expected (attention_mask of a Hugging Face model), give \
             torch.from_numpy(nr.to_keep(mask, shape)), booleans [batch, 1 or heads, q_len, kv_len], to a model with \
             attn_implementation=\"noren\" or \"sdpa\""
        }
        false => "",
    };
    let colon = if advice.is_empty() { "" } else { ": " };
    PyAttributeError::new_err(format!("noren.{kind} `{text}` has no attribute {name:?}{colon}{advice}"))
}

/// Returns the mask of an object, which is a mask or its text.
pub(crate) fn mask_of(object: &Bound<'_, PyAny>) -> PyResult<Mask> {
    if let Ok(mask) = object.cast::<PyMask>() {
        return Ok(mask.get().0.clone());
    }
    match object.extract::<String>() {
        Ok(text) => text.parse().map_err(Error::from).map_err(raise),
        Err(_) => Err(PyTypeError::new_err(format!("{} is not a mask: give a Mask or its text", repr(object)))),
    }
}

/// Draws a bound mask or a plan with the Python function `plot` in `noren/_plot.py`, and returns its result.
pub(crate) fn plot<'py>(
    py: Python<'py>,
    mask: Bound<'py, PyAny>,
    arguments: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("noren.masks._plot")?.getattr("plot")?.call((mask,), arguments)
}

/// Calls the function called `name` in `python/noren/_views.py`, and returns its result.
pub(crate) fn view<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("noren.masks._views")?.getattr(name)?.call1(arguments)
}
