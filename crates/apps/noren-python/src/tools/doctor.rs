//! The doctor (`noren.check`) and `noren.recognise`: diagnosis of mask arrays from other programs.

use crate::dlpack::{Kind, MOST_VALUES, Tensor};
use crate::error::{Error, raise};
use crate::masks::bound::PyBound;
use crate::masks::classes::{PyMask, PySpec, mask_of};
use crate::masks::facts::{PyShape, check_used, facts_of};
use crate::masks::read::MOST_CELLS;
use noren::Dtype;
use noren::noren_mask::{HIDES, Keep, Spec};
use noren_doctor::{Context, Dtype as Wide, Input, Numbers, Values};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use std::collections::BTreeMap;

/// Converts the values of an array to the number types of the doctor, without rounding.
fn values(tensor: &Tensor) -> PyResult<Values> {
    let len = tensor.len_within(MOST_VALUES)?;
    let (dtype, numbers) = match tensor.kind {
        Kind::Bool => (Wide::Bool, Numbers::Bool(collect(tensor, len, |x| x != 0.0))),
        Kind::Uint(8) => (Wide::U8, Numbers::Int(integers(tensor, len))),
        Kind::Int(8) => (Wide::I8, Numbers::Int(integers(tensor, len))),
        Kind::Int(bits) => (whole([Wide::I16, Wide::I32, Wide::I64], bits), Numbers::Int(integers(tensor, len))),
        Kind::Uint(bits) => (whole([Wide::U16, Wide::U32, Wide::U64], bits), Numbers::Int(integers(tensor, len))),
        Kind::Float(kind) => {
            let dtype = match kind {
                Dtype::F32 => Wide::F32,
                Dtype::Bf16 => Wide::Bf16,
                Dtype::F16 => Wide::F16,
            };
            (dtype, Numbers::Single(collect(tensor, len, |x| x as f32)))
        }
        Kind::Double => (Wide::F64, Numbers::Double(collect(tensor, len, |x| x))),
    };
    Values::new(&tensor.shape, dtype, numbers).map_err(raise)
}

/// Returns the type of `bits` bits, from the types of 16, 32 and 64 bits.
fn whole([short, middle, long]: [Wide; 3], bits: u8) -> Wide {
    match bits {
        16 => short,
        32 => middle,
        _ => long,
    }
}

fn integers(tensor: &Tensor, len: usize) -> Vec<i64> {
    let mut all = Vec::with_capacity(len);
    tensor.for_each_integer(|x| all.push(x));
    all
}

fn collect<T>(tensor: &Tensor, len: usize, of: impl Fn(f64) -> T) -> Vec<T> {
    let mut all = Vec::with_capacity(len);
    tensor.for_each(|x| all.push(of(x)));
    all
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

/// Reads the allowed cells of an array; `convention` is `"keep"`, `"drop"` or `"additive"`.
fn keep(tensor: &Tensor, convention: &str) -> PyResult<Keep> {
    tensor.len_within(MOST_CELLS)?;
    let dims = match tensor.shape[..] {
        [q, k] => [1, 1, q, k],
        [b, q, k] => [b, 1, q, k],
        [b, h, q, k] => [b, h, q, k],
        _ => [0; 4],
    };
    if dims.contains(&0) {
        let shape = &tensor.shape;
        return Err(Error::new_err(format!(
            "an array of shape {shape:?} is not a mask: give [q_len, kv_len], [batch, q_len, kv_len] or \
             [batch, heads, q_len, kv_len], without a dimension of length 0"
        )));
    }
    let real = matches!(tensor.kind, Kind::Float(_) | Kind::Double);
    let is_kept = |x: f64| match convention {
        "additive" if x == 0.0 => Some(true),
        "additive" if x <= HIDES => Some(false),
        "keep" if x == 0.0 || x == 1.0 => Some(x == 1.0),
        "drop" if x == 0.0 || x == 1.0 => Some(x == 0.0),
        _ => None,
    };
    match convention {
        "additive" if !real => {
            return Err(PyTypeError::new_err(
                "convention=\"additive\" was given, but the array does not hold floats: give convention=\"keep\" or \"drop\" for booleans",
            ));
        }
        "keep" | "drop" if real => {
            return Err(PyTypeError::new_err(format!(
                "the array holds floats, which are added to scores: give convention=\"additive\", not {convention:?}"
            )));
        }
        "keep" | "drop" | "additive" => {}
        _ => {
            return Err(Error::new_err(format!(
                "convention is {convention:?}: give \"keep\" (true means may attend), \"drop\" (true means ignored) or \"additive\""
            )));
        }
    }
    let kv_len = dims[3];
    let per_row = kv_len.div_ceil(64);
    let mut words = vec![0u64; dims[0] * dims[1] * dims[2] * per_row];
    let (mut row, mut k, mut wrong) = (0, 0, None);
    tensor.for_each(|x| {
        match is_kept(x) {
            Some(kept) => words[row + k / 64] |= u64::from(kept) << (k % 64),
            None => wrong = Some(x),
        }
        k += 1;
        if k == kv_len {
            (row, k) = (row + per_row, 0);
        }
    });
    match wrong {
        None => Keep::from_words(dims, words).map_err(raise),
        Some(x) if real => Err(Error::new_err(format!(
            "the array holds {x}, but an additive mask holds only 0 (may attend) and -inf or numbers from {HIDES} down, such as -1e9 (ignored): nr.check finds the cause"
        ))),
        Some(x) => Err(Error::new_err(format!("the array holds {x}: give booleans, or integers 0 and 1"))),
    }
}

type Found<'py> = (PyMask, PyShape, Vec<[usize; 4]>, u64, String, Cells<'py>);

/// Returns (mask expression nearest to the array, shape of this mask, some cells in which the mask and the array
/// differ, number of all such cells, text of the expression, cells of the array). The last value has no cells if the
/// expression is exact.
#[pyfunction]
pub(crate) fn recognise<'py>(py: Python<'py>, array: Tensor, convention: &str) -> PyResult<Found<'py>> {
    let (keep, found) = py.detach(|| {
        let keep = keep(&array, convention)?;
        let found = noren_doctor::recognise(&keep);
        Ok::<_, PyErr>((keep, found))
    })?;
    let words = found.expression();
    let cells = if found.is_exact() { ([0; 4], PyByteArray::new(py, &[])) } else { cells(py, &keep) };
    let nearest = PyMask(found.nearest().clone());
    Ok((nearest, PyShape(found.shape), found.exceptions, found.wrong, words, cells))
}
