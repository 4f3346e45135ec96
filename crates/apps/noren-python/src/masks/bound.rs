//! The Python classes `BoundMask` and `Plan`: cells, pictures and statistics of masks with a shape and facts (their
//! data).

use crate::dlpack::{Kind, Tensor};
use crate::error::{Error, raise};
use crate::masks::classes::{PyMask, no_attribute, plot, view};
use crate::masks::facts::{PyFacts, PyShape, check_used, facts_of, shape_of};
use noren::noren_mask::{Budget, CellIndex, Progress};
use noren::{BoundMask, Mask, Plan, PlanOptions, Reorder, Spec};
use noren_picture::{Draw, Picture, TerminalOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// A mask together with a shape and facts (the data that the mask needs, such as document lengths), which determine
/// every cell.
#[pyclass(name = "BoundMask", module = "noren", frozen)]
pub(crate) struct PyBound(pub(crate) BoundMask);

/// A block-sparse plan: tiles of query rows with the ranges of keys that they read.
#[pyclass(name = "Plan", module = "noren", frozen, weakref)]
pub(crate) struct PyPlan {
    pub(crate) plan: Plan,
    /// The number of cells that kernels compute, over all batch rows and heads.
    pub(crate) computed: u64,
}

type CellTuple = (usize, usize, usize, usize);
/// A tile: `(first row, row after the last, [(first key, key after the last, full), ...])`. Each entry of the list is a
/// span of keys; `full` is true if every cell of the span is allowed.
type TileTuple = (u32, u32, Vec<(u32, u32, bool)>);

fn tuple(cell: CellIndex) -> CellTuple {
    (cell.batch, cell.head, cell.q, cell.k)
}

/// Binds a mask to facts (its data, such as document lengths) and to a shape, which may be given as one length.
pub(crate) fn bind_to(mask: &Mask, shape: &Bound<'_, PyAny>, facts: Option<&Bound<'_, PyAny>>) -> PyResult<PyBound> {
    let (shape, facts) = (shape_of(shape)?, facts_of(facts)?);
    let bound = mask.bind(&shape, &facts).map_err(raise)?;
    check_used(mask, &facts)?;
    Ok(PyBound(bound))
}

/// The value of the argument `reorder` of `Mask.plan`: `"auto"`, `"never"`, `"always"`, `"copies"`, or an integer `n`,
/// with which queries and keys are sorted by `position mod n`.
#[derive(FromPyObject)]
pub(crate) enum Order {
    Modulus(u32),
    Name(String),
}

fn reorder(order: Option<Order>) -> PyResult<Reorder> {
    match order {
        None => Ok(Reorder::Auto),
        Some(Order::Modulus(modulus)) => Ok(Reorder::Residues(modulus)),
        Some(Order::Name(name)) => match name.as_str() {
            "auto" => Ok(Reorder::Auto),
            "never" => Ok(Reorder::Never),
            "always" => Ok(Reorder::Always),
            "copies" => Ok(Reorder::Copies),
            _ => Err(Error::new_err(format!(
                "reorder is {name:?}: give \"auto\", \"never\", \"always\", \"copies\" or a modulus"
            ))),
        },
    }
}

/// Calls `run`, a function that plans or counts, with the default budget (limits of tiles, spans and steps). Ctrl-C
/// cancels the call.
pub(crate) fn within_budget<T: Send, E: Into<noren::Error> + Send>(
    py: Python<'_>,
    run: impl FnOnce(&Budget<'_>) -> Result<T, E> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let interrupt = RefCell::new(None);
        let watch = |_: Progress| match Python::attach(|py| py.check_signals()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                *interrupt.borrow_mut() = Some(error);
                ControlFlow::Break(())
            }
        };
        let result = run(&Budget::new().watch(&watch));
        result.map_err(|error| interrupt.take().unwrap_or_else(|| raise(error)))
    })
}

impl PyPlan {
    pub(crate) fn new(plan: Plan) -> Self {
        let shape = plan.shape();
        let mut uses = vec![0u64; plan.patterns().len()];
        for batch in 0..shape.batch_len() {
            (0..shape.head_count()).for_each(|head| uses[plan.pattern_of(batch, head)] += 1);
        }
        let computed = plan.patterns().iter().zip(uses).map(|(p, n)| n * p.tiles().map(|t| t.computed()).sum::<u64>());
        PyPlan { computed: computed.sum(), plan }
    }
}

fn picture_text(picture: &Picture<'_>, color: bool, width: usize, height: usize) -> PyResult<String> {
    let options = TerminalOptions { color, max_width: width, max_height: height, ..TerminalOptions::default() };
    picture.to_terminal(&options).map_err(raise)
}

fn labelled<'a>(picture: Picture<'a>, labels: Option<Vec<String>>) -> Picture<'a> {
    match labels {
        Some(labels) => picture.labels(labels),
        None => picture,
    }
}

#[pymethods]
impl PyBound {
    /// The mask that was bound.
    #[getter]
    fn mask(&self) -> PyMask {
        PyMask(self.0.mask().clone())
    }

    /// The shape to which the mask is bound.
    #[getter]
    fn shape(&self) -> PyShape {
        PyShape(self.0.shape().clone())
    }

    /// The facts with which the mask is bound: lengths, documents and other data of this batch.
    #[getter]
    fn facts(&self) -> PyFacts {
        PyFacts(self.0.facts().clone())
    }

    /// Returns the block-sparse plan; the arguments are those of `Mask.plan`.
    #[pyo3(signature = (*, block_q=96, block_kv=64, reorder=None))]
    pub(crate) fn plan(&self, py: Python<'_>, block_q: u32, block_kv: u32, reorder: Option<Order>) -> PyResult<PyPlan> {
        let options = PlanOptions { block_q, block_kv, reorder: self::reorder(reorder)? };
        within_budget(py, |budget| self.0.plan_within(&options, budget)).map(PyPlan::new)
    }

    /// Returns the reason why query row `q` may or may not read key `k`, for the whole mask and for each of its
    /// subexpressions.
    #[pyo3(signature = (q, k, *, batch=0, head=0))]
    pub(crate) fn explain<'py>(
        &self,
        py: Python<'py>,
        q: usize,
        k: usize,
        batch: usize,
        head: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let why = self.0.explain(batch, head, q, k).map_err(raise)?;
        let json = serde_json::to_string(&why).map_err(|e| Error::new_err(e.to_string()))?;
        view(py, "Explanation", (why.to_string(), json))
    }

    /// Returns a smaller mask with only the query rows in `rows` and the keys in `keys`; both are lists of ranges
    /// (first index, index after the last).
    fn select(&self, rows: Vec<(usize, usize)>, keys: Vec<(usize, usize)>) -> PyResult<PyBound> {
        let ranges = |list: Vec<(usize, usize)>| list.into_iter().map(|(start, end)| start..end);
        self.0.select(ranges(rows), ranges(keys)).map_err(raise).map(PyBound)
    }

    /// Returns a smaller mask with only the batch rows in `batch`, a list of indices from 0.
    fn select_batch(&self, batch: Vec<usize>) -> PyResult<PyBound> {
        self.0.select_batch(&batch).map_err(raise).map(PyBound)
    }

    /// Returns the cells `[batch, heads, q_len, kv_len]` as booleans. True means that the query may read the key.
    fn dense<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf.py(), "dense", (slf,))
    }

    /// Returns the cells that exactly one of the two masks allows. Raises `Error` if their shapes differ.
    fn diff<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf.py(), "Difference", (slf, other))
    }

    /// Returns the first `limit` cells (batch row, head, query row, key) that exactly one of the two masks allows, in
    /// ascending order.
    fn differences(&self, py: Python<'_>, other: &Self, limit: usize) -> PyResult<Vec<CellTuple>> {
        Ok(py.detach(|| self.0.differences(&other.0, limit)).map_err(raise)?.into_iter().map(tuple).collect())
    }

    /// Returns the number of cells that this mask allows and `other` denies.
    fn count_outside(&self, py: Python<'_>, other: &Self) -> PyResult<u128> {
        py.detach(|| self.0.count_outside(&other.0)).map_err(raise)
    }

    /// Writes each cell, 1 if it is allowed and 0 if not, to `out`, a contiguous array of booleans or bytes `[batch or 1,
    /// heads or 1, q_len, kv_len]`.
    fn fill(&self, py: Python<'_>, mut out: Tensor) -> PyResult<()> {
        let [batch, heads, q_len, kv_len] = match out.shape[..] {
            [b, h, q, k] => [b, h, q, k],
            _ => {
                return Err(Error::new_err("`out` must have the shape [batch or 1, heads or 1, q_len, kv_len]"));
            }
        };
        let shape = self.0.shape();
        let fits = |given: usize, whole: usize| given == 1 || given == whole;
        if !fits(batch, shape.batch_len())
            || !fits(heads, shape.head_count())
            || (q_len, kv_len) != (shape.q_len(), shape.kv_len())
        {
            return Err(Error::new_err(format!(
                "`out` has the shape {:?}, which does not fit the mask: give [{} or 1, {} or 1, {}, {}]",
                out.shape,
                shape.batch_len(),
                shape.head_count(),
                shape.q_len(),
                shape.kv_len()
            )));
        }
        let plan = self.0.plan_with(&PlanOptions { reorder: Reorder::Never, ..PlanOptions::default() });
        let cells: &mut [u8] = out.slice_mut("cells", &[Kind::Bool, Kind::Uint(8)])?;
        py.detach(|| {
            for (index, plane) in cells.chunks_mut(q_len * kv_len).enumerate() {
                fill_plane(&plan, plan.pattern_of(index / heads, index % heads), plane);
            }
        });
        Ok(())
    }

    /// Two booleans. The first is true if the cells differ between batch rows, the second if they differ between the
    /// heads of a batch row.
    #[getter]
    fn varies(&self) -> (bool, bool) {
        let (batch, heads) = (self.0.shape().batch_len(), self.0.shape().head_count());
        let differ = |a: (usize, usize), b: (usize, usize)| self.0.pattern_of(a.0, a.1) != self.0.pattern_of(b.0, b.1);
        let by_row = (1..batch).any(|b| (0..heads).any(|h| differ((b, h), (0, h))));
        let by_head = (0..batch).any(|b| (1..heads).any(|h| differ((b, h), (b, 0))));
        (by_row, by_head)
    }

    /// Returns a picture of the mask as text; the arguments are those of `Mask.picture`.
    #[pyo3(signature = (*, labels=None, width=100, height=48, color=false))]
    pub(crate) fn picture(
        &self,
        labels: Option<Vec<String>>,
        width: usize,
        height: usize,
        color: bool,
    ) -> PyResult<String> {
        picture_text(&labelled(self.0.picture(), labels), color, width, height)
    }

    /// Draws the cells of one batch row and head with matplotlib, and returns the axes. The arguments are those of
    /// `noren.masks._plot.plot`.
    #[pyo3(signature = (**arguments))]
    fn plot<'py>(slf: &Bound<'py, Self>, arguments: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        plot(slf.py(), slf.clone().into_any(), arguments)
    }

    /// Returns a picture as SVG; `labels` are names of tokens, one for each position.
    #[pyo3(signature = (*, labels=None))]
    fn svg(&self, labels: Option<Vec<String>>) -> PyResult<String> {
        labelled(self.0.picture(), labels).to_svg().map_err(raise)
    }

    /// Returns the mask as a web page in one file, which opens from disk without network: picture, expression, facts,
    /// code, and for each cell the reason why it is allowed or denied. `labels` are names of tokens, one for each
    /// position; `title` is the heading. Raises `Error` if the page would have more than 300,000 bytes.
    #[pyo3(signature = (*, labels=None, title=None))]
    fn html(&self, labels: Option<Vec<String>>, title: Option<String>) -> PyResult<String> {
        let picture = labelled(self.0.picture(), labels);
        let picture = title.into_iter().fold(picture, |picture, title| picture.title(title));
        let spec = Spec { mask: self.0.mask().clone(), scores: Vec::new() };
        let all = noren_code::all(&spec, self.0.shape(), self.0.facts());
        let picture = all.into_iter().fold(picture, |picture, code| picture.code(code.target.title(), code.text));
        picture.to_html().map_err(raise)
    }

    pub(crate) fn _repr_svg_(&self) -> PyResult<String> {
        self.svg(None)
    }

    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(no_attribute("BoundMask", &self.0.mask().to_string(), name))
    }

    fn __repr__(&self) -> String {
        format!("<{} on {}>", self.0.mask(), self.shape().__repr__())
    }

    fn __str__(&self) -> PyResult<String> {
        self.picture(None, 100, 48, false)
    }

    /// Returns a picture of the cells in which this mask and `other` differ, as text; the other arguments are those of
    /// `Mask.picture`.
    #[pyo3(signature = (other, *, width=100, height=48, color=false))]
    fn difference_text(&self, other: &Self, width: usize, height: usize, color: bool) -> PyResult<String> {
        picture_text(&self.0.picture_of_difference(&other.0), color, width, height)
    }

    /// Returns a picture of the cells in which this mask and `other` differ, as SVG.
    fn difference_svg(&self, other: &Self) -> PyResult<String> {
        self.0.picture_of_difference(&other.0).to_svg().map_err(raise)
    }

    /// Reads a bound mask from the JSON of `to_json`. Raises `Error` for any other text.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        BoundMask::from_json(text).map_err(raise).map(PyBound)
    }

    /// Returns the mask, its shape and its facts (data such as document lengths) as JSON.
    fn to_json(&self) -> PyResult<String> {
        self.0.to_json().map_err(raise)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?.unbind(), (slf.get().to_json()?,)))
    }
}

/// Writes the cells of the pattern with index `pattern` (one of the distinct sets of cells) into `plane`, `[q_len,
/// kv_len]` bytes: 1 for an allowed cell, otherwise 0.
fn fill_plane(plan: &Plan, pattern: usize, plane: &mut [u8]) {
    let kv_len = plan.shape().kv_len();
    let pattern = &plan.patterns()[pattern];
    plane.fill(0);
    let mut words = Vec::new();
    for tile in pattern.tiles() {
        for span in tile.spans {
            let per_row = (span.keys() as usize).div_ceil(64);
            words.clear();
            words.resize(tile.rows() as usize * per_row, 0u64);
            pattern.fill_bits(tile.start..tile.end, span.start..span.end, &mut words);
            for (row, bits) in (tile.start..tile.end).zip(words.chunks(per_row)) {
                let cells = &mut plane[row as usize * kv_len..][span.start as usize..span.end as usize];
                for (i, cell) in cells.iter_mut().enumerate() {
                    *cell = (bits[i / 64] >> (i % 64) & 1) as u8;
                }
            }
        }
    }
}

#[pymethods]
impl PyPlan {
    /// The bound mask from which the plan was made.
    #[getter]
    fn bound(&self) -> PyBound {
        PyBound(self.plan.bound().clone())
    }

    /// The mask from which the plan was made.
    #[getter]
    fn mask(&self) -> PyMask {
        PyMask(self.plan.bound().mask().clone())
    }

    /// The shape for which the plan was made.
    #[getter]
    fn shape(&self) -> PyShape {
        PyShape(self.plan.shape().clone())
    }

    /// The number of cells that kernels compute, over all batch rows and heads. It is never below the number of allowed
    /// cells.
    #[getter]
    fn computed(&self) -> u64 {
        self.computed
    }

    /// The memory of the plan's tiles and key ranges, in bytes.
    #[getter]
    fn bytes(&self) -> usize {
        self.plan.bytes()
    }

    /// Returns statistics of the plan: the exact numbers of allowed cells, computed cells, tiles and bytes.
    pub(crate) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = within_budget(py, |budget| self.plan.stats_within(budget))?;
        let json = serde_json::to_string(&stats).map_err(|e| Error::new_err(e.to_string()))?;
        view(py, "stats", (stats.to_string(), json))
    }

    /// Returns the tiles of a batch row and head as (first row, row after the last, spans).
    ///
    /// A span is (first key, key after the last, full); `full` is true if every cell of the span is allowed. Rows and
    /// keys are indices in the original sequence, even if the plan reorders queries and keys.
    fn tiles(&self, batch: usize, head: usize) -> PyResult<Vec<TileTuple>> {
        let shape = self.plan.shape();
        if batch >= shape.batch_len() || head >= shape.head_count() {
            return Err(Error::new_err(format!(
                "batch row {batch}, head {head} does not exist: there are {} batch rows and {} heads, counted from 0",
                shape.batch_len(),
                shape.head_count()
            )));
        }
        let plan = self.plan.in_place();
        let pattern = &plan.patterns()[plan.pattern_of(batch, head)];
        let span = |s: &noren::noren_mask::TileSpan| (s.start, s.end, s.kind == noren::noren_mask::SpanKind::Full);
        Ok(pattern.tiles().map(|t| (t.start, t.end, t.spans.iter().map(span).collect())).collect())
    }

    /// Returns a picture of the mask with its tiles as text; the arguments are those of `Mask.picture`.
    #[pyo3(signature = (*, width=100, height=48, color=false))]
    fn picture(&self, width: usize, height: usize, color: bool) -> PyResult<String> {
        picture_text(&self.plan.bound().picture().tiles(*self.plan.options()), color, width, height)
    }

    /// Returns a picture of the mask with its tiles as SVG.
    fn svg(&self) -> PyResult<String> {
        self.plan.bound().picture().tiles(*self.plan.options()).to_svg().map_err(raise)
    }

    fn _repr_svg_(&self) -> PyResult<String> {
        self.svg()
    }

    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(no_attribute("Plan", &self.plan.bound().mask().to_string(), name))
    }

    fn __repr__(&self) -> String {
        format!("<plan of {} on {}>", self.plan.bound().mask(), self.shape().__repr__())
    }

    fn __str__(&self) -> PyResult<String> {
        self.picture(100, 48, false)
    }

    /// Reads a plan from the JSON of `to_json`. Raises `Error` for any other text, and for a plan that does not fit its
    /// mask.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        Plan::from_json(text).map_err(raise).map(PyPlan::new)
    }

    /// Returns the plan as JSON.
    fn to_json(&self) -> PyResult<String> {
        self.plan.to_json().map_err(raise)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?.unbind(), (slf.get().to_json()?,)))
    }
}
