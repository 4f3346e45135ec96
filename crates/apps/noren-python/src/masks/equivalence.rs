//! `Equivalence`: whether two masks allow the same cells at every length.

use crate::masks::facts::{PyFacts, PyShape};
use noren::noren_mask::Equivalence;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The result of `Mask.equivalent`; `str` formats the result as a sentence.
#[pyclass(name = "Equivalence", module = "noren", frozen)]
pub(crate) struct PyEquivalence(pub(crate) Equivalence);

#[pymethods]
impl PyEquivalence {
    /// True: equality was proved. False: a difference was found. None: neither was established.
    #[getter]
    fn equal(&self) -> Option<bool> {
        match &self.0 {
            Equivalence::Equal { .. } => Some(true),
            Equivalence::Differ { .. } => Some(false),
            _ => None,
        }
    }

    /// The shortest and the longest length, in tokens, for which equality was proved: those at which both masks can be
    /// bound. `None` unless equality was proved.
    #[getter]
    fn lengths(&self) -> Option<(usize, usize)> {
        match &self.0 {
            Equivalence::Equal { lengths, .. } => Some(*lengths),
            _ => None,
        }
    }

    /// The shape in which a difference was found; `None` if no difference was found. If the difference does not depend
    /// on `facts`, no shorter shape has a difference.
    #[getter]
    fn shape(&self) -> Option<PyShape> {
        match &self.0 {
            Equivalence::Differ { shape, .. } => Some(PyShape(shape.clone())),
            _ => None,
        }
    }

    /// The facts (data of a mask, such as document lengths) with which a difference was found.
    ///
    /// The facts are empty if the difference does not depend on facts; `None` if no difference was found.
    #[getter]
    fn facts(&self) -> Option<PyFacts> {
        match &self.0 {
            Equivalence::Differ { facts, .. } => Some(PyFacts((**facts).clone())),
            _ => None,
        }
    }

    /// The cell (batch row, head, query row, key) that exactly one mask allows.
    #[getter]
    fn cell(&self) -> Option<(usize, usize, usize, usize)> {
        match &self.0 {
            Equivalence::Differ { cell, .. } => Some((cell.batch, cell.head, cell.q, cell.k)),
            _ => None,
        }
    }

    /// The layer, counted from 0, in which a difference was found.
    #[getter]
    fn layer(&self) -> Option<usize> {
        match &self.0 {
            Equivalence::Differ { layer, .. } => Some(*layer),
            _ => None,
        }
    }

    /// True: only the first mask allows `cell`. False: only the second mask allows `cell`. None: no difference was
    /// found.
    #[getter]
    fn only_first(&self) -> Option<bool> {
        match &self.0 {
            Equivalence::Differ { only_first, .. } => Some(*only_first),
            _ => None,
        }
    }

    /// The elementary masks (atoms) that prevented a proof, if neither equality nor a difference was established.
    #[getter]
    fn atoms(&self) -> Vec<String> {
        match &self.0 {
            Equivalence::Undecided { atoms, .. } => atoms.clone(),
            _ => Vec::new(),
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Equivalence({:?})", self.0.to_string())
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(
            "an Equivalence has no truth value: use its attribute `equal`, which is True, False or None (not \
             established)",
        ))
    }
}
