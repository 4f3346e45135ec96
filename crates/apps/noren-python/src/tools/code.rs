//! The function behind `nr.code`: the code of a mask for another library.

use crate::error::{Error, ExportError, raise};
use crate::masks::bound::PyBound;
use crate::masks::classes::PyScore;
use noren::Spec;
use noren_code::Target;
use pyo3::prelude::*;

/// Returns (code, variables) of a bound mask with score modifiers. `variables` are the names of the variables that the
/// code reads and the user must define. `target` is the name of a library. Raises `Error` for an unknown target, and
/// `ExportError` with the reason if the mask cannot be expressed as code.
#[pyfunction]
pub(crate) fn code(
    py: Python<'_>,
    bound: &PyBound,
    scores: Vec<PyScore>,
    target: &str,
) -> PyResult<(String, Vec<String>)> {
    let target: Target = target.parse().map_err(Error::new_err)?;
    let spec = Spec { mask: bound.0.mask().clone(), scores: scores.into_iter().map(|score| score.0).collect() };
    let found = py.detach(|| noren_code::code(&spec, bound.0.shape(), bound.0.facts(), target));
    match found {
        Ok(code) => Ok((code.text, code.inputs)),
        Err(noren_code::Error::Mask(error)) => Err(raise(error)),
        Err(error) => Err(ExportError::new_err(error.to_string())),
    }
}

/// Returns (name, title) of each target of `code`.
#[pyfunction]
pub(crate) fn code_targets() -> Vec<(&'static str, &'static str)> {
    Target::ALL.map(|target| (target.name(), target.title())).into()
}
