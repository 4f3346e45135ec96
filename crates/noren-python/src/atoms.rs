//! The atoms: thin functions over `noren_mask::atoms`, each documented there and in `noren/__init__.pyi`.

use crate::mask::{PyMask, PyScore};
use crate::values::{arms, count, counts, per_row, set, spans as spans_of, wholes};
use noren::noren_mask::{Padding, Selector, Set};
use noren::{Mask, Score, Side, atoms};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

type Given<'a, 'py> = &'a Bound<'py, PyAny>;

#[pyfunction]
fn full() -> PyMask {
    PyMask(atoms::full())
}

#[pyfunction]
fn none() -> PyMask {
    PyMask(atoms::none())
}

#[pyfunction]
#[pyo3(signature = (offset=0))]
fn causal(offset: i64) -> PyMask {
    PyMask(atoms::causal_offset(offset))
}

#[pyfunction]
#[pyo3(signature = (left=None, right=None))]
fn window(left: Option<i64>, right: Option<i64>) -> PyMask {
    PyMask(atoms::window(left, right))
}

#[pyfunction]
fn sliding(window: Given<'_, '_>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::sliding(count(window, "sliding")?)))
}

#[pyfunction]
fn chunk(size: Given<'_, '_>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::chunk(count(size, "chunk")?)))
}

#[pyfunction]
fn stride(step: Given<'_, '_>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::stride(count(step, "stride")?)))
}

#[pyfunction]
fn prefix(lengths: Given<'_, '_>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::prefix(per_row(lengths, "prefix")?)))
}

fn set_or_label(given: Option<Given<'_, '_>>, label: Option<String>, what: &str) -> PyResult<Set> {
    match (given, label) {
        (Some(given), None) => set(given, what),
        (None, Some(label)) => Ok(Set::label(label)),
        _ => Err(PyTypeError::new_err(format!("{what} takes positions or label=, one of the two"))),
    }
}

#[pyfunction]
#[pyo3(signature = (positions=None, *, label=None))]
fn keys(positions: Option<Given<'_, '_>>, label: Option<String>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::keys(set_or_label(positions, label, "keys")?)))
}

#[pyfunction]
#[pyo3(signature = (positions=None, *, label=None))]
fn queries(positions: Option<Given<'_, '_>>, label: Option<String>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::queries(set_or_label(positions, label, "queries")?)))
}

#[pyfunction]
#[pyo3(signature = (positions=None, *, label=None))]
fn global_(positions: Option<Given<'_, '_>>, label: Option<String>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::global(set_or_label(positions, label, "global_")?)))
}

/// `"left"` or `"right"`.
fn side_of(name: &str) -> PyResult<Side> {
    match name {
        "left" => Ok(Side::Left),
        "right" => Ok(Side::Right),
        _ => Err(PyValueError::new_err(format!("side is {name:?}: give \"left\" or \"right\""))),
    }
}

#[pyfunction]
#[pyo3(signature = (*, side=None, lengths=None, on="keys"))]
fn padding(side: Option<&str>, lengths: Option<Given<'_, '_>>, on: &str) -> PyResult<PyMask> {
    let both = match on {
        "keys" => false,
        "both" => true,
        _ => return Err(PyValueError::new_err(format!("on is {on:?}: give \"keys\" or \"both\""))),
    };
    let lengths = lengths.map(|list| counts(list, "padding lengths")).transpose()?;
    Ok(PyMask(atoms::padding_with(Padding { side: side.map(side_of).transpose()?, lengths, both })))
}

#[pyfunction]
#[pyo3(signature = (lengths=None))]
fn documents(lengths: Option<Given<'_, '_>>) -> PyResult<PyMask> {
    Ok(PyMask(match lengths {
        Some(lengths) => atoms::documents_of(counts(lengths, "documents")?),
        None => atoms::documents(),
    }))
}

#[pyfunction]
fn spans(spans: Given<'_, '_>) -> PyResult<PyMask> {
    Ok(PyMask(atoms::spans(spans_of(spans, "spans")?)))
}

#[pyfunction]
#[pyo3(signature = (parents, start=0))]
fn tree(parents: Given<'_, '_>, start: u64) -> PyResult<PyMask> {
    Ok(PyMask(atoms::tree(wholes(parents, "tree parents")?, start)))
}

#[pyfunction]
fn clearance() -> PyMask {
    PyMask(atoms::clearance())
}

#[pyfunction]
#[pyo3(signature = (grid, size, dilation=None))]
fn neighborhood(grid: Given<'_, '_>, size: Given<'_, '_>, dilation: Option<Given<'_, '_>>) -> PyResult<PyMask> {
    let (grid, size) = (counts(grid, "neighborhood grid")?, counts(size, "neighborhood size")?);
    Ok(PyMask(match dilation {
        Some(dilation) => atoms::neighborhood_dilated(grid, size, counts(dilation, "neighborhood dilation")?),
        None => atoms::neighborhood(grid, size),
    }))
}

#[pyfunction]
fn random(p: f64, seed: u64) -> PyMask {
    PyMask(atoms::random(p, seed))
}

#[pyfunction]
fn random_blocks(block: u64, count: u64, seed: u64) -> PyMask {
    PyMask(atoms::random_blocks(block, count, seed))
}

#[pyfunction]
fn dense(name: String) -> PyMask {
    PyMask(atoms::dense(name))
}

fn by<'py>(
    what: &str,
    given: &Bound<'py, PyAny>,
    make: impl FnOnce(Vec<(Selector, Mask)>) -> Mask,
) -> PyResult<PyMask> {
    let pairs = arms(given, what)?.into_iter().map(|arm| (arm.selector, arm.mask));
    Ok(PyMask(make(pairs.collect())))
}

#[pyfunction]
fn heads(arms: Given<'_, '_>) -> PyResult<PyMask> {
    by("heads", arms, atoms::heads)
}

#[pyfunction]
fn batch(arms: Given<'_, '_>) -> PyResult<PyMask> {
    by("batch", arms, atoms::batch)
}

#[pyfunction]
fn layers(arms: Given<'_, '_>) -> PyResult<PyMask> {
    by("layers", arms, atoms::layers)
}

#[pyfunction]
#[pyo3(signature = (name="bias"))]
fn bias(name: &str) -> PyScore {
    PyScore(Score::bias(name))
}

#[pyfunction]
#[pyo3(signature = (name="relative"))]
fn relative(name: &str) -> PyScore {
    PyScore(Score::relative(name))
}

#[pyfunction]
#[pyo3(signature = (slopes=None))]
fn alibi(slopes: Option<Vec<f64>>) -> PyScore {
    PyScore(Score::Alibi { slopes: slopes.map(|list| list.into_iter().map(Into::into).collect()) })
}

#[pyfunction]
fn softcap(cap: f64) -> PyScore {
    PyScore(Score::softcap(cap))
}

#[pyfunction]
#[pyo3(signature = (name="soft"))]
fn soft(name: &str) -> PyScore {
    PyScore(Score::soft(name))
}

#[pyfunction]
#[pyo3(signature = (name="sinks"))]
fn sinks(name: &str) -> PyScore {
    PyScore(Score::sinks(name))
}

macro_rules! add_all {
    ($module:expr, $($name:ident),*) => {$($module.add_function(wrap_pyfunction!($name, $module)?)?;)*};
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_all!(
        module,
        full,
        none,
        causal,
        window,
        sliding,
        chunk,
        stride,
        prefix,
        keys,
        queries,
        global_,
        padding,
        documents,
        spans,
        tree,
        clearance,
        neighborhood,
        random,
        random_blocks,
        dense,
        heads,
        batch,
        layers,
        bias,
        relative,
        alibi,
        softcap,
        soft,
        sinks
    );
    Ok(())
}
