//! Python classes for the flow of information over layers, policies and certificates.

use crate::error::{Error, raise, repr};
use crate::masks::classes::mask_of;
use crate::masks::facts::{PyShape, facts_of, shape_of};
use noren::noren_mask::interval::{Interval, IntervalSet};
use noren::noren_mask::{Mask, Node};
use noren_flow::{Certificate, Fill, Flow, Policy, Ruling};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyRange};
use serde::Serialize;

/// The exact flow of information between tokens over the layers of a list of masks. `noren.flow` makes a `Flow`.
#[pyclass(name = "Flow", module = "noren", frozen)]
pub(crate) struct PyFlow(Flow);

/// A certificate: the verdict of a policy with the masks, facts and proof that are needed to verify the verdict.
///
/// `Certificate(json)` reads a certificate; `Flow.certify` creates a certificate. `not_covered` lists the paths of influence
/// outside of attention, about which the certificate states nothing.
#[pyclass(name = "Certificate", module = "noren", frozen)]
pub(crate) struct PyCertificate(Certificate, String);

type Ranges<'py> = Vec<Bound<'py, PyRange>>;

/// The result of a policy check as texts: (verdict, summary, one text for each rule).
type Words = (String, String, Vec<String>);

fn words(ruling: &Ruling) -> Words {
    (ruling.verdict().to_string(), ruling.summary(), ruling.rules.iter().map(ToString::to_string).collect())
}

/// Returns true if `mask` contains `heads(...)` or `batch(...)`.
fn by_head_or_row(mask: &Mask) -> bool {
    matches!(mask.node(), Node::Heads(_) | Node::Batch(_)) || mask.children().into_iter().any(by_head_or_row)
}

/// Returns the tokens of each set as ranges of Python.
fn ranges<'py>(py: Python<'py>, sets: &[IntervalSet]) -> PyResult<Vec<Ranges<'py>>> {
    let range = |i: Interval| PyRange::new(py, i.start as isize, i.end as isize);
    sets.iter().map(|set| set.iter().map(range).collect()).collect()
}

/// Calls the function called `name` in `python/noren/_flow.py`, which makes a result from JSON, and returns the result.
fn made<'py>(py: Python<'py>, name: &str, arguments: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
    py.import("noren.masks._flow")?.getattr(name)?.call1(arguments)
}

fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| Error::new_err(e.to_string()))
}

impl PyFlow {
    /// Reads a set of tokens: the index of a token, a range, or a list of these. `what` is the name of the set in error
    /// messages.
    fn tokens_of(&self, given: &Bound<'_, PyAny>, what: &str) -> PyResult<IntervalSet> {
        let n = self.0.tokens();
        let mut out = IntervalSet::new();
        for span in crate::masks::values::spans(given, what)? {
            let end = span.end.unwrap_or(n as usize);
            if end > n as usize || span.start > end {
                let words = repr(given);
                return Err(Error::new_err(format!(
                    "{what}: {words} is not a range of tokens of the sequence, which has {n} tokens, counted from 0"
                )));
            }
            out = out.union(&IntervalSet::from(span.start as u32..end as u32));
        }
        Ok(out)
    }

    fn row(&self, batch: usize) -> PyResult<usize> {
        let rows = self.0.shape().batch_len();
        if batch < rows {
            Ok(batch)
        } else {
            Err(Error::new_err(format!(
                "batch row {batch} does not exist: there are {rows} batch rows, counted from 0"
            )))
        }
    }
}

#[pymethods]
impl PyFlow {
    #[new]
    #[pyo3(signature = (masks, shape, facts=None, *, fill="nothing"))]
    fn new(
        py: Python<'_>,
        masks: Vec<Bound<'_, PyAny>>,
        shape: &Bound<'_, PyAny>,
        facts: Option<&Bound<'_, PyAny>>,
        fill: &str,
    ) -> PyResult<Self> {
        let fill = match fill {
            "nothing" => Fill::Nothing,
            "finite" => Fill::Finite,
            _ => {
                return Err(Error::new_err(format!(
                    "fill is {fill:?}: give \"nothing\" (rows without a key read nothing) or \"finite\" (such rows read the mean of all keys)"
                )));
            }
        };
        if masks.is_empty() {
            return Err(PyTypeError::new_err("no mask was given: give one mask for each layer, at least one"));
        }
        let masks = masks.iter().map(mask_of).collect::<PyResult<Vec<_>>>()?;
        let (sized, shape, facts) = (shape.is_instance_of::<PyShape>(), shape_of(shape)?, facts_of(facts)?);
        if let Some(mask) = masks.iter().find(|mask| !sized && by_head_or_row(mask)) {
            return Err(Error::new_err(format!(
                "the mask `{mask}` depends on the head or batch row, but the shape is only a number of tokens: give noren.Shape(q_len={n}, kv_len={n}, heads=..., batch=...)",
                n = shape.q_len()
            )));
        }
        py.detach(|| Flow::of_stack(&masks, &shape, &facts, fill)).map_err(raise).map(PyFlow)
    }

    /// The number of layers.
    #[getter]
    fn depth(&self) -> usize {
        self.0.depth()
    }

    /// The number of tokens in a batch row.
    #[getter]
    fn tokens(&self) -> u32 {
        self.0.tokens()
    }

    /// Returns the tokens that the tokens `sources` can influence. Entry 0 of the result has the sources, and entry `n`
    /// has the tokens that they can influence after the first `n` layers.
    ///
    /// Each entry is a list of ranges.
    #[pyo3(signature = (sources, *, batch=0))]
    fn reach<'py>(&self, py: Python<'py>, sources: &Bound<'py, PyAny>, batch: usize) -> PyResult<Vec<Ranges<'py>>> {
        let (row, sources) = (self.row(batch)?, self.tokens_of(sources, "sources")?);
        ranges(py, &py.detach(|| self.0.reach(row, &sources)))
    }

    /// Returns the tokens on which the tokens `targets` depend. Entry 0 of the result has the targets, and entry `n`
    /// has the tokens on which they depend over the last `n` layers.
    ///
    /// Each entry is a list of ranges.
    #[pyo3(signature = (targets, *, batch=0))]
    fn receptive_field<'py>(
        &self,
        py: Python<'py>,
        targets: &Bound<'py, PyAny>,
        batch: usize,
    ) -> PyResult<Vec<Ranges<'py>>> {
        let (row, targets) = (self.row(batch)?, self.tokens_of(targets, "targets")?);
        ranges(py, &py.detach(|| self.0.back(row, &targets)))
    }

    /// Returns a path from one of `sources` to one of `targets` over the fewest layers, or `None` if no path exists.
    #[pyo3(signature = (sources, targets, *, batch=0))]
    fn witness<'py>(
        &self,
        py: Python<'py>,
        sources: &Bound<'py, PyAny>,
        targets: &Bound<'py, PyAny>,
        batch: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let row = self.row(batch)?;
        let (sources, targets) = (self.tokens_of(sources, "sources")?, self.tokens_of(targets, "targets")?);
        let path = py.detach(|| self.0.witness(row, &sources, &targets));
        path.map(|path| made(py, "path", (json(&path)?, path.to_string()))).transpose()
    }

    /// Returns one `Cut` for each layer: the cells through which `sources` influence `targets`.
    #[pyo3(signature = (sources, targets, *, batch=0))]
    fn cuts<'py>(
        &self,
        py: Python<'py>,
        sources: &Bound<'py, PyAny>,
        targets: &Bound<'py, PyAny>,
        batch: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let row = self.row(batch)?;
        let (sources, targets) = (self.tokens_of(sources, "sources")?, self.tokens_of(targets, "targets")?);
        made(py, "cuts", (json(&py.detach(|| self.0.cuts(row, &sources, &targets)))?,))
    }

    /// Returns the influence over all layers as booleans `[tokens, tokens]`: true in row `i` and column `j` if output `i`
    /// may depend on token `j`.
    ///
    /// Memory grows with the square of the number of tokens.
    #[pyo3(signature = (*, batch=0))]
    fn closure<'py>(&self, py: Python<'py>, batch: usize) -> PyResult<Bound<'py, PyAny>> {
        let row = self.row(batch)?;
        let bytes: Vec<u8> = py.detach(|| self.0.closure(row).cells().map(u8::from).collect());
        made(py, "closure", (PyByteArray::new(py, &bytes), self.0.tokens()))
    }

    /// Checks every pair of tokens that a policy denies.
    ///
    /// A policy is a text of lines. `deny: label(pii) -> output` denies that a token of the left group influences a token of
    /// the right group. `deny maybe: ...` is a `deny` line whose groups may be empty; `allow: ...` permits exceptions. Groups
    /// are `label(NAME)`, `document(N)`, `level(N)`, `token(N)`, `tokens(A..B)`, `output` (a target only) and `all`. Raises
    /// `noren.Error` for a text that is not a policy.
    fn check<'py>(&self, py: Python<'py>, policy: &str) -> PyResult<Bound<'py, PyAny>> {
        let policy = policy.parse::<Policy>().map_err(raise)?;
        let ruling = py.detach(|| policy.check(&self.0)).map_err(raise)?;
        made(py, "ruling", (json(&ruling)?, words(&ruling)))
    }

    /// Checks a policy like `check` and returns a certificate: a JSON document from which the verdict can be verified.
    fn certify(&self, py: Python<'_>, policy: &str) -> PyResult<PyCertificate> {
        let policy = policy.parse::<Policy>().map_err(raise)?;
        let certificate = py.detach(|| Certificate::issue(&self.0, &policy)).map_err(raise)?;
        PyCertificate::new(&certificate.to_json().map_err(raise)?)
    }

    fn __repr__(&self) -> String {
        format!("<flow over {} layers of {} tokens>", self.0.depth(), self.0.tokens())
    }
}

#[pymethods]
impl PyCertificate {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let certificate = Certificate::from_json(text).map_err(raise)?;
        Ok(PyCertificate(certificate, text.to_string()))
    }

    /// True if the certificate states that the policy holds; `verify` checks the statement.
    #[getter]
    fn holds(&self) -> bool {
        self.0.holds()
    }

    /// The text of the policy.
    #[getter]
    fn policy(&self) -> &str {
        &self.0.policy
    }

    /// The paths of influence between tokens that the certificate does not cover, such as pooling.
    #[getter]
    fn not_covered(&self) -> Vec<String> {
        self.0.not_covered.clone()
    }

    /// The hash of the certificate, in hexadecimal digits.
    #[getter]
    fn sha256(&self) -> &str {
        &self.0.sha256
    }

    /// Verifies every count, set, path and verdict of the certificate. The verifier shares no code with the program that
    /// made the certificate.
    ///
    /// Raises `noren.Error` if the certificate is wrong or cannot be verified.
    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.detach(|| noren_verify::verify(&self.1))
            .map_err(|refusal| crate::error::Error::new_err(refusal.to_string()))?;
        let ruling = self.0.ruling();
        made(py, "ruling", (json(&ruling)?, words(&ruling)))
    }

    /// Raises `Error` if the masks, sizes or facts (data of the masks) of the certificate differ from those of `flow`.
    fn matches(&self, flow: &PyFlow) -> PyResult<()> {
        self.0.matches(&flow.0).map_err(raise)
    }

    /// Returns the certificate as JSON.
    fn to_json(&self) -> PyResult<String> {
        self.0.to_json().map_err(raise)
    }

    fn __repr__(&self) -> String {
        let hash: String = self.0.sha256.chars().take(12).collect();
        format!("<certificate {hash}: {}>", self.0.ruling().summary())
    }
}
