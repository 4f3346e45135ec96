//! The doctor (`noren.check`) and `noren.recognise`: diagnosis of mask arrays from other programs.

use crate::dlpack::{Kind, MOST_VALUES, Tensor};
use crate::error::raise;
use crate::masks::bound::PyBound;
use crate::masks::classes::{PyMask, PySpec, mask_of};
use crate::masks::convention::read_words;
use crate::masks::facts::{PyShape, check_used, facts_of};
use noren::noren_mask::{Keep, Spec};
use noren_doctor::{Context, Dtype as Wide, Input, Numbers, Values};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use std::collections::BTreeMap;

/// Converts the values of an array to the number types of the doctor, without rounding.
fn values(tensor: &Tensor) -> PyResult<Values> {
    let name = tensor.kind.words();
    let dtype =
        Wide::named(&name).ok_or_else(|| PyTypeError::new_err(format!("the doctor reads no values of {name}")))?;
    let numbers = match tensor.kind {
        Kind::Bool => Numbers::Bool(tensor.values(|x| x != 0.0)?),
        Kind::Int(_) | Kind::Uint(_) => {
            let mut all = Vec::with_capacity(tensor.len_within(MOST_VALUES)?);
            tensor.for_each_integer(|x| all.push(x));
            Numbers::Int(all)
        }
        Kind::Float(_) => Numbers::Single(tensor.values(|x| x as f32)?),
        Kind::Double => Numbers::Double(tensor.values(|x| x)?),
    };
    Values::new(&tensor.shape, dtype, numbers).map_err(raise)
}

/// Cells of a mask: the sizes `[batch, heads, q_len, kv_len]`, and one byte for each cell, 1 if the cell is allowed.
type Cells<'py> = ([usize; 4], Bound<'py, PyByteArray>);

fn cells<'py>(py: Python<'py>, keep: &Keep) -> Cells<'py> {
    let bytes: Vec<u8> = keep.cells().map(u8::from).collect();
    (keep.dims(), PyByteArray::new(py, &bytes))
}

type Checked<'py> = (String, Vec<String>, String, [Option<Cells<'py>>; 3]);

/// Returns the mask with score modifiers that a user gives as an object or as text.
fn spec_of(object: &Bound<'_, PyAny>) -> PyResult<Spec> {
    match (object.cast::<PySpec>(), object.extract::<String>()) {
        (Ok(spec), _) => Ok(spec.get().0.clone()),
        (Err(_), Ok(text)) => text.parse().map_err(noren::noren_mask::Error::from).map_err(raise),
        (Err(_), Err(_)) => Ok(Spec { mask: mask_of(object)?, scores: Vec::new() }),
    }
}

/// Returns (fields of the report as JSON, classes of the report's findings, text of the report, three sets of cells).
/// The sets are the cells of the given mask, of the repaired mask, and of `meant`, the mask that the user intended.
#[pyfunction]
#[pyo3(signature = (mask, companions, context, meant=None, facts=None, batch=None))]
pub(crate) fn check<'py>(
    py: Python<'py>,
    mask: Option<Tensor>,
    companions: BTreeMap<String, Tensor>,
    context: &str,
    meant: Option<&Bound<'py, PyAny>>,
    facts: Option<&Bound<'py, PyAny>>,
    batch: Option<usize>,
) -> PyResult<Checked<'py>> {
    let mut input = match &mask {
        Some(mask) => Input::new(values(mask)?),
        None => Input::without_mask(),
    };
    input = input.context(Context::from_json(context).map_err(raise)?);
    for (name, tensor) in &companions {
        input = input.companion(name, values(tensor)?);
    }
    if let Some(meant) = meant {
        input = match (meant.cast::<PyBound>(), input.shape(batch).map_err(raise)?) {
            (Ok(bound), _) => input.meant(&bound.get().0),
            (Err(_), None) => input,
            (Err(_), Some(shape)) => {
                let spec = spec_of(meant)?;
                let facts = facts_of(facts)?;
                let bound = spec.mask.bind(&shape, &facts).map_err(raise)?;
                check_used(&spec.mask, &facts)?;
                input.intended(&spec, &bound, false).map_err(raise)?
            }
        };
    }
    let report = py.detach(|| input.diagnose()).map_err(raise)?;
    let fields = serde_json::json!({
        "verdict": report.verdict,
        "sentence": report.sentence,
        "compared": report.compared,
        "open": report.open,
        "description": report.description,
        "expression": report.expression,
        "findings": report.findings,
        "unknown": report.unknown,
        "intended": report.intended,
    });
    let classes = report.classes().into_iter().map(str::to_owned).collect();
    let keeps = [&report.given, &report.fixed, &report.expected];
    let arrays = keeps.map(|keep| keep.as_ref().map(|keep| cells(py, keep)));
    Ok((fields.to_string(), classes, report.to_string(), arrays))
}

type Found<'py> = (PyMask, PyShape, Vec<[usize; 4]>, u64, String, Cells<'py>);

/// Returns (mask expression nearest to the array, shape of this mask, some cells in which the mask and the array
/// differ, number of all such cells, text of the expression, cells of the array). The last value has no cells if the
/// expression is exact.
#[pyfunction]
pub(crate) fn recognise<'py>(py: Python<'py>, array: Tensor, convention: &str) -> PyResult<Found<'py>> {
    let convention = convention.parse()?;
    let (keep, found) = py.detach(|| {
        let (shape, words) = read_words(&array, convention)?;
        let keep = Keep::from_words(shape, words).map_err(raise)?;
        let found = noren_doctor::recognise(&keep);
        Ok::<_, PyErr>((keep, found))
    })?;
    let words = found.expression();
    let cells = if found.is_exact() { ([0; 4], PyByteArray::new(py, &[])) } else { cells(py, &keep) };
    let nearest = PyMask(found.nearest().clone());
    Ok((nearest, PyShape(found.shape), found.exceptions, found.wrong, words, cells))
}
