//! Python functions that make elementary masks (atoms). `noren_mask::atoms` documents each of them with a picture.

use crate::error::{Error, raise};
use crate::masks::classes::{PyMask, PyScore};
use crate::masks::values::{arms, count, counts, per_row, set, spans as spans_of, wholes};
use noren::noren_mask::{Padding, Positions, Selector};
use noren::{Mask, Score, Side, atoms};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

type Given<'a, 'py> = &'a Bound<'py, PyAny>;

/// Returns a mask for Python. Returns an error for wrong parameters, as for a mask that is given as text.
fn made(mask: Mask) -> PyResult<PyMask> {
    mask.check().map_err(raise)?;
    Ok(PyMask(mask))
}

fn scored(score: Score) -> PyResult<PyScore> {
    (atoms::full() + score.clone()).check().map_err(raise)?;
    Ok(PyScore(score))
}

/// Returns the mask in which every query may read every key.
#[pyfunction]
pub(crate) fn full() -> PyResult<PyMask> {
    made(atoms::full())
}

/// Returns the mask that allows no cell.
#[pyfunction]
pub(crate) fn none() -> PyResult<PyMask> {
    made(atoms::none())
}

/// Allows keys up to the query's own position, shifted by `offset` (look-ahead mask): `k <= q + offset`, where `q` and
/// `k` are positions.
#[pyfunction]
#[pyo3(signature = (offset=0))]
pub(crate) fn causal(offset: i64) -> PyResult<PyMask> {
    made(atoms::causal_offset(offset))
}

/// Allows `q - left <= k <= q + right`, both ends included. `left=None` or `right=None` means no limit on that side;
/// both numbers may be negative.
#[pyfunction]
#[pyo3(signature = (left=None, right=None))]
pub(crate) fn window(left: Option<i64>, right: Option<i64>) -> PyResult<PyMask> {
    made(atoms::window(left, right))
}

/// Allows `q - window < k <= q`: the last `window` keys, the query's own key included, as Mistral and transformers
/// define `sliding_window`.
#[pyfunction]
pub(crate) fn sliding(window: Given<'_, '_>) -> PyResult<PyMask> {
    made(atoms::sliding(count(window, "sliding")?))
}

/// Allows keys in the query's own chunk of `size` positions: `q // size == k // size`.
#[pyfunction]
pub(crate) fn chunk(size: Given<'_, '_>) -> PyResult<PyMask> {
    made(atoms::chunk(count(size, "chunk")?))
}

/// Allows keys whose distance from the query is a multiple of `step`: `(q - k) mod step == 0`.
#[pyfunction]
pub(crate) fn stride(step: Given<'_, '_>) -> PyResult<PyMask> {
    made(atoms::stride(count(step, "stride")?))
}

/// Allows the first `n` keys: `k < n`. `lengths` is one `n` for all batch rows, or one for each batch row.
#[pyfunction]
pub(crate) fn prefix(lengths: Given<'_, '_>) -> PyResult<PyMask> {
    made(atoms::prefix(per_row(lengths, "prefix")?))
}

fn set_or_label(given: Option<Given<'_, '_>>, label: Option<String>, what: &str) -> PyResult<Positions> {
    match (given, label) {
        (Some(given), None) => set(given, what),
        (None, Some(label)) => Ok(Positions::label(label)),
        _ => Err(PyTypeError::new_err(format!(
            "{what} needs either positions or label=, but not both: give one of them"
        ))),
    }
}

/// Allows every query to read the given keys: a position, a range, a list of these, or all positions that have the
/// label `label` in the facts, the data given when the mask is bound.
#[pyfunction]
#[pyo3(signature = (positions=None, *, label=None))]
pub(crate) fn keys(positions: Option<Given<'_, '_>>, label: Option<String>) -> PyResult<PyMask> {
    made(atoms::keys(set_or_label(positions, label, "keys")?))
}

/// Allows the given queries to read every key; the arguments are those of `keys`.
#[pyfunction]
#[pyo3(signature = (positions=None, *, label=None))]
pub(crate) fn queries(positions: Option<Given<'_, '_>>, label: Option<String>) -> PyResult<PyMask> {
    made(atoms::queries(set_or_label(positions, label, "queries")?))
}

/// Allows cells whose query or key is at one of the given positions (global tokens); the arguments are those of `keys`.
#[pyfunction]
#[pyo3(signature = (positions=None, *, label=None))]
pub(crate) fn global_(positions: Option<Given<'_, '_>>, label: Option<String>) -> PyResult<PyMask> {
    made(atoms::global(set_or_label(positions, label, "global_")?))
}

/// Returns the side for the name `"left"` or `"right"`. Returns an error for another name.
fn side_of(name: &str) -> PyResult<Side> {
    match name {
        "left" => Ok(Side::Left),
        "right" => Ok(Side::Right),
        _ => Err(Error::new_err(format!("side is {name:?}: give \"left\" or \"right\""))),
    }
}

/// Allows keys that are not padding (padding mask).
///
/// `lengths` has the number of non-padding tokens of each batch row, and `side` is the side of the padding [default:
/// both are read from the facts, the data given when the mask is bound]. With `on="both"`, queries that are padding read nothing.
#[pyfunction]
#[pyo3(signature = (*, side=None, lengths=None, on="keys"))]
pub(crate) fn padding(side: Option<&str>, lengths: Option<Given<'_, '_>>, on: &str) -> PyResult<PyMask> {
    let both = match on {
        "keys" => false,
        "both" => true,
        _ => return Err(Error::new_err(format!("on is {on:?}: give \"keys\" or \"both\""))),
    };
    let lengths = lengths.map(|list| counts(list, "padding lengths")).transpose()?;
    made(atoms::padding_with(Padding { side: side.map(side_of).transpose()?, lengths, both }))
}

/// Allows keys in the query's own document (packed sequences). `lengths` has the length of each document [default: the
/// lengths in the facts, the data given when the mask is bound].
#[pyfunction]
#[pyo3(signature = (lengths=None))]
pub(crate) fn documents(lengths: Option<Given<'_, '_>>) -> PyResult<PyMask> {
    made(match lengths {
        Some(lengths) => atoms::documents_of(counts(lengths, "documents")?),
        None => atoms::documents(),
    })
}

/// Allows a query to read the keys in its own range of positions, for example the tokens of one image in a text;
/// `spans` is a list of these ranges.
#[pyfunction]
pub(crate) fn spans(spans: Given<'_, '_>) -> PyResult<PyMask> {
    made(atoms::spans(spans_of(spans, "spans")?))
}

/// Allows each node of a tree to read itself and its ancestors (draft trees of speculative decoding).
///
/// Node `i` is at position `start + i`; `parents[i]` is the index of its parent, or -1 for a root. With `runs`, the
/// tree is given as runs: chains of consecutive nodes, each the parent of the next. `runs[i]` is the number of nodes of
/// run `i`. `parents[i]` is then the index of another run, whose last node is the parent of the first node of run `i`,
/// or -1. `window` and `chunk` limit the keys along each path from a root, as `sliding` and `chunk` do in a sequence.
#[pyfunction]
#[pyo3(signature = (parents, start=0, *, runs=None, window=None, chunk=None))]
pub(crate) fn tree(
    parents: Given<'_, '_>,
    start: usize,
    runs: Option<Given<'_, '_>>,
    window: Option<usize>,
    chunk: Option<usize>,
) -> PyResult<PyMask> {
    let mut tree = atoms::Tree::new(wholes(parents, "tree parents")?).start(start);
    if let Some(runs) = runs {
        tree = tree.runs(counts(runs, "tree runs")?);
    }
    (tree.window, tree.chunk) = (window, chunk);
    made(tree.mask())
}

/// Allows keys whose distance `q - k` from the query is in the list. The distance 0 is the query's own key; earlier
/// keys have positive distances (LogSparse).
#[pyfunction]
pub(crate) fn distances(distances: Given<'_, '_>) -> PyResult<PyMask> {
    made(atoms::distances(wholes(distances, "distances")?))
}

/// Allows keys whose clearance level is at most that of the query: `level(q) >= level(k)`. The levels are given as
/// facts when the mask is bound.
#[pyfunction]
pub(crate) fn clearance() -> PyResult<PyMask> {
    made(atoms::clearance())
}

/// Allows the keys in a window of grid cells around the query; at the edges, the window shifts inward (NATTEN).
///
/// Each argument has one number for each of the 1 to 3 dimensions: `grid`, the size of the grid, whose cells are
/// numbered row by row; `size`, the number of keys in the window; `dilation`, the distance between neighbouring keys of
/// the window [default: 1].
#[pyfunction]
#[pyo3(signature = (grid, size, dilation=None))]
pub(crate) fn neighborhood(
    grid: Given<'_, '_>,
    size: Given<'_, '_>,
    dilation: Option<Given<'_, '_>>,
) -> PyResult<PyMask> {
    let (grid, size) = (counts(grid, "neighborhood grid")?, counts(size, "neighborhood size")?);
    made(match dilation {
        Some(dilation) => atoms::neighborhood_dilated(grid, size, counts(dilation, "neighborhood dilation")?),
        None => atoms::neighborhood(grid, size),
    })
}

/// Allows each cell with probability `p`; the cells depend on `seed` and the positions, and are equal on every machine.
#[pyfunction]
pub(crate) fn random(p: f64, seed: u64) -> PyResult<PyMask> {
    made(atoms::random(p, seed))
}

/// Splits queries and keys into groups of `block` consecutive positions, and allows each group of queries to read
/// `count` random groups of keys.
///
/// The random groups depend on `seed`, the positions and the number of keys, and are equal on every machine.
#[pyfunction]
pub(crate) fn random_blocks(block: usize, count: usize, seed: u64) -> PyResult<PyMask> {
    made(atoms::random_blocks(block, count, seed))
}

/// Allows the cells of the mask array called `name`, which is given as a fact (`arrays`) when the mask is bound.
#[pyfunction]
pub(crate) fn dense(name: String) -> PyResult<PyMask> {
    made(atoms::dense(name))
}

fn by<'py>(
    what: &str,
    given: &Bound<'py, PyAny>,
    make: impl FnOnce(Vec<(Selector, Mask)>) -> Mask,
) -> PyResult<PyMask> {
    let pairs = arms(given, what)?.into_iter().map(|arm| (arm.selector, arm.mask));
    made(make(pairs.collect()))
}

/// Selects a mask for each query head. `arms` is a dict, or a list of pairs, from a head, a range of heads, or "else"
/// (all others) to a mask. Raises `Error` if a head has no mask: give "else".
#[pyfunction]
pub(crate) fn heads(arms: Given<'_, '_>) -> PyResult<PyMask> {
    by("heads", arms, atoms::heads)
}

/// Selects a mask for each batch row. `arms` is a dict, or a list of pairs, from a batch row, a range of batch rows, or
/// "else" (all others) to a mask. Raises `Error` if a batch row has no mask: give "else".
#[pyfunction]
pub(crate) fn batch(arms: Given<'_, '_>) -> PyResult<PyMask> {
    by("batch", arms, atoms::batch)
}

/// Selects a mask for each layer. `arms` is a dict, or a list of pairs, from a layer, a range of layers, "every 2"
/// (layers 0, 2, 4, ...) or "else" (all others) to a mask. Raises `Error` if a layer has no mask: give "else".
#[pyfunction]
pub(crate) fn layers(arms: Given<'_, '_>) -> PyResult<PyMask> {
    by("layers", arms, atoms::layers)
}

/// Adds the array called `name`, which broadcasts to `[batch, heads, q_len, kv_len]`, to the scores.
#[pyfunction]
#[pyo3(signature = (name="bias"))]
pub(crate) fn bias(name: &str) -> PyResult<PyScore> {
    scored(Score::bias(name))
}

/// Adds a bias by distance to the scores. The table called `name`, `[heads, 2 * reach + 1]`, has an entry for each
/// distance from query to key, from `-reach` to `reach`. A distance above `reach` uses the entry of `reach`, a distance
/// below `-reach` the entry of `-reach`.
#[pyfunction]
#[pyo3(signature = (name="relative"))]
pub(crate) fn relative(name: &str) -> PyResult<PyScore> {
    scored(Score::relative(name))
}

/// Adds `-slope * distance` to the scores; `slopes` has one slope for each head [default: `2^(-8 (h + 1) / heads)` for
/// head `h`, counted from 0].
#[pyfunction]
#[pyo3(signature = (slopes=None))]
pub(crate) fn alibi(slopes: Option<Vec<f64>>) -> PyResult<PyScore> {
    scored(Score::Alibi { slopes: slopes.map(|list| list.into_iter().map(Into::into).collect()) })
}

/// Replaces each score by `cap * tanh(score / cap)`.
#[pyfunction]
pub(crate) fn softcap(cap: f64) -> PyResult<PyScore> {
    scored(Score::softcap(cap))
}

/// Multiplies `exp(score)` by the array called `name`, weights from 0 to 1 (a continuous mask). A weight of 0 denies
/// the cell.
#[pyfunction]
#[pyo3(signature = (name="soft"))]
pub(crate) fn soft(name: &str) -> PyResult<PyScore> {
    scored(Score::soft(name))
}

/// Adds the array called `name`, one logit for each head, to the denominator of the softmax only.
#[pyfunction]
#[pyo3(signature = (name="sinks"))]
pub(crate) fn sinks(name: &str) -> PyResult<PyScore> {
    scored(Score::sinks(name))
}
