//! Methods of the Python classes `Mask`, `Score` and `Spec`.

use crate::error::{raise, repr};
use crate::masks::bound::{Order, PyBound, PyPlan};
use crate::masks::classes::{PyMask, PyScore, PySpec, mask_of, no_attribute, plot, view};
use crate::masks::facts::{PyFacts, PyShape, check_used, facts_of, shape_of};
use noren::noren_mask::{Equivalence, Error};
use noren::{Mask, Score, Spec};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

const NO_TRUTH: &str = "a mask has no truth value: combine masks with & (and), | (or), ~ (not) and -; compare cells \
                        with mask.diff(other, shape)";

/// Parses a text to a `Mask`, or to a `Spec` if the text has score modifiers. Raises `ParseError` if the text is
/// neither.
#[pyfunction]
pub(crate) fn parse(py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let spec: Spec = text_of(text)?.to_str()?.parse().map_err(Error::from).map_err(raise)?;
    match spec.scores.is_empty() {
        true => Ok(Py::new(py, PyMask(spec.mask))?.into_any()),
        false => Ok(Py::new(py, PySpec(spec))?.into_any()),
    }
}

/// Returns the text of a mask or of a mask with score modifiers. Returns an error if `given` is not a text.
fn text_of<'a, 'py>(given: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyString>> {
    given.cast().map_err(|_| {
        PyTypeError::new_err(format!(
            "{} is not a text: give the text of a mask, such as \"causal & padding\"",
            repr(given)
        ))
    })
}

#[pymethods]
impl PyMask {
    #[new]
    fn new(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        mask_of(text).map(PyMask)
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(NO_TRUTH))
    }

    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(no_attribute("Mask", &self.0.to_string(), name))
    }

    fn __and__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(spec) = other.cast::<PySpec>() {
            return Ok(Py::new(py, PySpec(self.0.clone() & spec.get().0.clone()))?.into_any());
        }
        Ok(Py::new(py, PyMask(self.0.clone() & operand(other)?))?.into_any())
    }

    fn __or__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(spec) = other.cast::<PySpec>() {
            return Ok(Py::new(py, PySpec(self.0.clone() | spec.get().0.clone()))?.into_any());
        }
        Ok(Py::new(py, PyMask(self.0.clone() | operand(other)?))?.into_any())
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyMask(self.0.clone() - operand(other)?))
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyMask(operand(other)? & self.0.clone()))
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyMask(operand(other)? | self.0.clone()))
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyMask(operand(other)? - self.0.clone()))
    }

    /// `None`: an operator with a NumPy array on the left calls this class, not each element of the array.
    #[classattr]
    fn __array_ufunc__() -> Option<bool> {
        None
    }

    fn __add__(&self, score: &Bound<'_, PyAny>) -> PyResult<PySpec> {
        Ok(PySpec(self.0.clone() + added(score)?))
    }

    fn __invert__(&self) -> Self {
        PyMask(!self.0.clone())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        let mask = &slf.get().0;
        if mask.atoms().iter().any(|atom| atom.name() == "function") {
            return Err(PyTypeError::new_err(format!(
                "the mask `{mask}` contains a function of Python and cannot be pickled: pickle the function, and call \
                 nr.from_mask_mod again"
            )));
        }
        Ok((slf.get_type().into_any().unbind(), (mask.to_string(),)))
    }

    /// Returns the mask with a shape and facts, after checking that they fit each other.
    ///
    /// `shape` is a `Shape`, or one integer: the number of queries and of keys, with one batch row and one head. `facts` is
    /// the data that the mask needs, such as document lengths. Raises `Error` if a fact is missing or does not fit the
    /// shape.
    #[pyo3(signature = (shape, facts=None))]
    fn bind(&self, shape: &Bound<'_, PyAny>, facts: Option<&Bound<'_, PyAny>>) -> PyResult<PyBound> {
        crate::masks::bound::bind_to(&self.0, shape, facts)
    }

    /// Returns the block-sparse plan that attention and exports use; the arguments and errors are those of `bind`.
    ///
    /// `block_q` is the maximum number of query rows in a tile. `block_kv` is the number of keys in a tile, as
    /// statistics count tiles. `reorder` selects the order of queries and keys in the plan:
    ///
    /// - `"auto"` [default]: another order for masks that allow only distances that are multiples of one number; for
    ///   other masks only if the other order reduces the cost (by at least 1/8 and 2^20 cells if it changes the order
    ///   in which the keys of a row are added)
    /// - `"never"`: the order of indices
    /// - `"always"`: another order for every mask whose structure allows one, even if it saves no cost
    /// - `"copies"`: the list of keys contains each key twice, first in the order of indices, then sorted by their position
    ///   modulo the stride, for masks that combine a stride with other masks; a query row reads each key at one of the
    ///   two places
    /// - an integer `n`: positions sorted by `position mod n`; with 2, all even positions come before all odd ones
    #[pyo3(signature = (shape, facts=None, *, block_q=96, block_kv=64, reorder=None))]
    fn plan(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        facts: Option<&Bound<'_, PyAny>>,
        block_q: u32,
        block_kv: u32,
        reorder: Option<Order>,
    ) -> PyResult<PyPlan> {
        self.bind(shape, facts)?.plan(py, block_q, block_kv, reorder)
    }

    /// Returns the cells `[batch, heads, q_len, kv_len]` as booleans. True means that the query may read the key.
    #[pyo3(signature = (shape, facts=None))]
    fn dense<'py>(&self, shape: &Bound<'py, PyAny>, facts: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let bound = self.bind(shape, facts)?;
        view(shape.py(), "dense", (bound,))
    }

    /// Returns the reason why query row `q` may or may not read key `k` (indices from 0), for the whole mask and for
    /// each of its subexpressions.
    #[pyo3(signature = (q, k, shape, facts=None, *, batch=0, head=0))]
    fn explain<'py>(
        &self,
        q: usize,
        k: usize,
        shape: &Bound<'py, PyAny>,
        facts: Option<&Bound<'py, PyAny>>,
        batch: usize,
        head: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.bind(shape, facts)?.explain(shape.py(), q, k, batch, head)
    }

    /// Returns the cells that exactly one of this mask and `other` allows.
    #[pyo3(signature = (other, shape, facts=None))]
    fn diff<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        shape: &Bound<'py, PyAny>,
        facts: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let other = mask_of(other)?;
        let (sizes, facts) = (shape_of(shape)?, facts_of(facts)?);
        let bind = |mask: &Mask| mask.bind(&sizes, &facts).map(PyBound).map_err(raise);
        let both = (bind(&self.0)?, bind(&other)?);
        check_used(&(self.0.clone() | other), &facts)?;
        view(shape.py(), "Difference", both)
    }

    /// Draws the cells of one batch row and head with matplotlib, and returns the axes. The other arguments are those of
    /// `noren.masks._plot.plot`.
    #[pyo3(signature = (shape, facts=None, **arguments))]
    fn plot<'py>(
        &self,
        shape: &Bound<'py, PyAny>,
        facts: Option<&Bound<'py, PyAny>>,
        arguments: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bound = Bound::new(shape.py(), self.bind(shape, facts)?)?;
        plot(shape.py(), bound.into_any(), arguments)
    }

    /// Returns statistics of the default plan: the exact numbers of allowed cells, computed cells, tiles and bytes.
    #[pyo3(signature = (shape, facts=None))]
    fn stats<'py>(&self, shape: &Bound<'py, PyAny>, facts: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = shape.py();
        self.plan(py, shape, facts, 96, 64, None)?.stats(py)
    }

    /// Returns a picture as text: one row for each query, one column for each key.
    ///
    /// `labels` are names of tokens, one for each position. `width` and `height` are the maximum number of characters
    /// and lines; in the picture of a larger mask, each character stands for several cells. `color` adds ANSI colours.
    #[pyo3(signature = (shape=None, facts=None, *, labels=None, width=100, height=48, color=false))]
    #[allow(clippy::too_many_arguments)] // keyword arguments
    fn picture<'py>(
        &self,
        py: Python<'py>,
        shape: Option<&Bound<'py, PyAny>>,
        facts: Option<&Bound<'py, PyAny>>,
        labels: Option<Vec<String>>,
        width: usize,
        height: usize,
        color: bool,
    ) -> PyResult<String> {
        let usual = self.usual_len().into_pyobject(py)?.into_any();
        self.bind(shape.unwrap_or(&usual), facts)?.picture(labels, width, height, color)
    }

    /// Returns an SVG picture for notebooks. The number of tokens is chosen from the numbers in the mask. Returns
    /// `None` if the mask needs facts (data such as document lengths).
    fn _repr_svg_(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let len = self.usual_len().into_pyobject(py)?.into_any();
        match self.bind(&len, None) {
            Ok(bound) => bound._repr_svg_().map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Returns true if the query offset (position of the first query) may change the cells.
    fn uses_query_offset(&self) -> bool {
        self.0.uses_query_offset()
    }

    /// Returns a canonical form that allows the same cells.
    fn simplify(&self) -> Self {
        PyMask(self.0.simplify())
    }

    /// Compares the cells of two masks at every length. The result is one of three: equality is proved, a cell differs,
    /// or neither was established.
    fn equivalent<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let other = mask_of(other)?;
        let found = py.detach(|| self.0.equivalent(&other)).map_err(raise)?;
        let fields = PyDict::new(py);
        match &found {
            Equivalence::Equal { lengths, .. } => {
                fields.set_item("equal", true)?;
                fields.set_item("lengths", lengths)?;
            }
            Equivalence::Differ { layer, shape, facts, cell, only_first, .. } => {
                fields.set_item("equal", false)?;
                fields.set_item("shape", PyShape(shape.clone()))?;
                fields.set_item("facts", PyFacts((**facts).clone()))?;
                fields.set_item("cell", (cell.batch, cell.head, cell.q, cell.k))?;
                fields.set_item("layer", layer)?;
                fields.set_item("only_first", only_first)?;
            }
            Equivalence::Undecided { atoms, .. } => fields.set_item("atoms", atoms)?,
            _ => {}
        }
        py.import("noren.masks._views")?.getattr("Equivalence")?.call((found.to_string(),), Some(&fields))
    }

    /// Returns the mask of the layer with index `layer`, counted from 0. A mask without `layers(...)` is returned
    /// unchanged.
    fn at_layer(&self, layer: usize) -> Self {
        PyMask(self.0.at_layer(layer))
    }

    /// True if the mask contains `layers(...)`. Such a mask cannot be bound; first select a layer with `at_layer`.
    #[getter]
    fn has_layers(&self) -> bool {
        self.0.has_layers()
    }
}

impl PyMask {
    /// Returns the number of tokens for a picture if no shape is given: twice the largest number in the mask's text,
    /// but at least 16 and at most 65536. For example, 200 for `sliding(100)`.
    fn usual_len(&self) -> usize {
        let text = self.0.to_string();
        let numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<usize>().ok());
        numbers.max().map_or(16, |n| n.saturating_mul(2).clamp(16, 1 << 16))
    }
}

/// Returns the mask of an operand of `&`, `|` or `-`: a mask or its text. The error for an array names the functions that
/// convert it.
fn operand(given: &Bound<'_, PyAny>) -> PyResult<Mask> {
    match given.hasattr("shape")? && !given.is_instance_of::<PyMask>() {
        true => Err(PyTypeError::new_err(
            "a mask cannot be combined with an array: give nr.from_keep(array).mask (true = may attend) or nr.from_drop(array).mask \
             (true = ignored), or give the array beside the mask as keep= or drop= of attention",
        )),
        false => mask_of(given),
    }
}

/// Returns the score modifier that is added to a mask: a `Score` or its text.
fn added(given: &Bound<'_, PyAny>) -> PyResult<Score> {
    if let Ok(score) = given.cast::<PyScore>() {
        return Ok(score.get().0.clone());
    }
    match given.extract::<String>() {
        Ok(text) => PyScore::new(&text).map(|score| score.0),
        Err(_) => Err(PyTypeError::new_err(format!(
            "{} cannot be added to a mask: `+` adds a score modifier such as nr.bias() or nr.softcap(30.0); use | for the union of two \
             masks, and bias= of attention for an array",
            repr(given)
        ))),
    }
}

#[pymethods]
impl PyScore {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let spec: Spec = format!("full + {text}").parse().map_err(Error::from).map_err(raise)?;
        match &spec.scores[..] {
            [score] => Ok(PyScore(score.clone())),
            _ => Err(crate::error::Error::new_err(format!(
                "the text `{text}` does not define exactly one score modifier"
            ))),
        }
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    /// The kind of modifier: the name of the function that creates the modifier, such as "bias" or "alibi".
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        Ok(match &self.0 {
            Score::Bias { .. } => "bias",
            Score::Relative { .. } => "relative",
            Score::Alibi { .. } => "alibi",
            Score::Softcap { .. } => "softcap",
            Score::Soft { .. } => "soft",
            Score::Sinks { .. } => "sinks",
            _ => {
                return Err(crate::error::Error::new_err(format!(
                    "the score modifier `{}` has a kind that the Python package does not know",
                    self.0
                )));
            }
        })
    }

    /// The name of the modifier's array; `None` for `alibi` and `softcap`.
    #[getter]
    fn name(&self) -> Option<&str> {
        match &self.0 {
            Score::Bias { name } | Score::Relative { name } | Score::Soft { name } | Score::Sinks { name } => {
                Some(name)
            }
            _ => None,
        }
    }

    /// The slopes of `alibi`, one for each head; `None` for default slopes and for other modifiers.
    #[getter]
    fn slopes(&self) -> Option<Vec<f64>> {
        match &self.0 {
            Score::Alibi { slopes: Some(slopes) } => Some(slopes.iter().map(|slope| slope.get()).collect()),
            _ => None,
        }
    }

    /// The limit of `softcap`; `None` for other modifiers.
    #[getter]
    fn cap(&self) -> Option<f64> {
        match &self.0 {
            Score::Softcap { cap } => Some(cap.get()),
            _ => None,
        }
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().into_any().unbind(), (slf.get().0.to_string(),)))
    }
}

#[pymethods]
impl PySpec {
    #[new]
    fn new(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        text_of(text)?.to_str()?.parse().map_err(Error::from).map_err(raise).map(PySpec)
    }

    /// Returns true if the query offset (position of the first query) may change the cells or the scores.
    fn uses_query_offset(&self) -> bool {
        self.0.uses_query_offset()
    }

    /// The mask without the score modifiers.
    #[getter]
    fn mask(&self) -> PyMask {
        PyMask(self.0.mask.clone())
    }

    /// The score modifiers in the order of the expression.
    #[getter]
    fn scores(&self) -> Vec<PyScore> {
        self.0.scores.iter().cloned().map(PyScore).collect()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(NO_TRUTH))
    }

    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(no_attribute("Spec", &self.0.to_string(), name))
    }

    fn __add__(&self, score: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PySpec(self.0.clone() + added(score)?))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().into_any().unbind(), (slf.get().0.to_string(),)))
    }
}
