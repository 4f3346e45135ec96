//! Converts Python values to the values of mask expressions: numbers, sets of positions, and selectors of heads, batch
//! rows or layers.

use crate::error::{Error, raise, repr};
use crate::masks::classes::mask_of;
use noren::Mask;
use noren::noren_mask::atoms::Keys;
use noren::noren_mask::{Arm, Node, Positions, Rows, Selector, Span};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyRange, PyRangeMethods as _, PySlice, PyString, PyTuple};

/// Reads a whole number, which may be negative; `what` names the number in error messages. Returns an error for a bool.
pub(crate) fn whole(object: &Bound<'_, PyAny>, what: &str) -> PyResult<i64> {
    let is_bool = object.is_instance_of::<PyBool>();
    object.extract().ok().filter(|_| !is_bool).ok_or_else(|| {
        PyTypeError::new_err(format!("{what}: {} is not a whole number: give a whole number", repr(object)))
    })
}

/// Reads a whole number of at least 0; `what` names the number in error messages.
pub(crate) fn count(object: &Bound<'_, PyAny>, what: &str) -> PyResult<usize> {
    let n = whole(object, what)?;
    usize::try_from(n).map_err(|_| Error::new_err(format!("{what}: {n} is negative: give 0 or more")))
}

/// Reads a list, tuple, range or array of numbers of at least 0; `what` names the list in error messages.
pub(crate) fn counts(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<usize>> {
    listed(object, what)?.iter().map(|n| count(n, what)).collect()
}

/// Reads a list, tuple, range or array of whole numbers of any sign; `what` names the list in error messages.
pub(crate) fn wholes(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    short_enough(object, what)?;
    match object.extract::<Vec<i64>>() {
        Ok(list) => Ok(list),
        Err(_) => listed(object, what)?.iter().map(|n| whole(n, what)).collect(),
    }
}

/// The maximum number of entries of a Python list or range whose entries are read one by one.
const MOST_ITEMS: usize = 1 << 27;

/// Returns an error if a list has more than [`MOST_ITEMS`] entries. The entries are not read for this check.
fn short_enough(object: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    let too_long = match object.len() {
        Ok(n) => n > MOST_ITEMS,
        Err(error) => error.is_instance_of::<PyOverflowError>(object.py()),
    };
    if too_long {
        return Err(Error::new_err(format!(
            "{what}: {} has more than {MOST_ITEMS} entries: give consecutive numbers as ranges",
            repr(object)
        )));
    }
    Ok(())
}

/// Returns the items of an iterable as a list; items of an array become Python numbers. `what` is the name of the
/// iterable in error messages.
fn listed<'py>(object: &Bound<'py, PyAny>, what: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    short_enough(object, what)?;
    let list = match object.getattr(intern!(object.py(), "tolist")) {
        Ok(tolist) => tolist.call0()?,
        Err(_) => object.clone(),
    };
    list.try_iter()?.collect()
}

/// Reads one number, or one number for each batch row; `what` names the numbers in error messages.
pub(crate) fn per_row(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Rows<usize>> {
    if object.try_iter().is_ok() { Ok(Rows::Each(counts(object, what)?)) } else { Ok(count(object, what)?.into()) }
}

/// Reads a set of positions: `3`, `range(4)`, `slice(2, None)`, `"3.."`, or a list of these; `what` names the set in
/// error messages.
pub(crate) fn set(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Positions> {
    Ok(Positions::Spans(spans(object, what)?))
}

/// Reads a set of positions like `set` and returns its ranges; `what` names the set in error messages.
pub(crate) fn spans(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<Span>> {
    if let Ok(range) = object.cast::<PyRange>() {
        let (start, stop, step) = (range.start()?, range.stop()?, range.step()?);
        let from = |n: isize| {
            usize::try_from(n).map_err(|_| {
                Error::new_err(format!("{what}: {} has negative positions: give positions of 0 or more", repr(object)))
            })
        };
        return match step {
            _ if range.len()? == 0 => Ok(vec![(0..0).into()]),
            1 => Ok(vec![(from(start)?..from(stop)?).into()]),
            _ => counts(object, what).map(|list| list.into_iter().map(Span::from).collect()),
        };
    }
    if let Ok(slice) = object.cast::<PySlice>() {
        let part = |name| -> PyResult<Option<usize>> {
            let value = slice.getattr(name)?;
            if value.is_none() { Ok(None) } else { count(&value, what).map(Some) }
        };
        if part("step")?.is_some_and(|step| step != 1) {
            return Err(Error::new_err(format!("{what}: {} has a step other than 1: give step 1", repr(object))));
        }
        return Ok(vec![Span { start: part("start")?.unwrap_or(0), end: part("stop")? }]);
    }
    if let Ok(text) = object.cast::<PyString>() {
        let mask: Mask =
            format!("keys({})", text.to_str()?).parse().map_err(noren::noren_mask::Error::from).map_err(raise)?;
        return match mask.atom_as() {
            Some(Keys(Positions::Spans(spans))) => Ok(spans.clone()),
            _ => Err(Error::new_err(format!("{what}: {} is not a range: write \"3..9\" or give label=", repr(object)))),
        };
    }
    if let Ok(pair) = object.cast::<PyTuple>()
        && let Ok((start, end)) = pair.extract::<(i64, i64)>()
    {
        return Err(PyTypeError::new_err(format!(
            "{what}: ({start}, {end}) may be a range or two positions: give range({start}, {end}) or [{start}, {end}]"
        )));
    }
    if object.try_iter().is_ok() {
        let parts: PyResult<Vec<_>> = listed(object, what)?.iter().map(|part| spans(part, what)).collect();
        return Ok(parts?.concat());
    }
    Ok(vec![count(object, what)?.into()])
}

/// Reads the (selector, mask) pairs of `heads`, `batch` or `layers` from a dict or a list of pairs; `what` is the name
/// of the function in error messages.
pub(crate) fn arms(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<Arm>> {
    let pairs = match object.getattr(intern!(object.py(), "items")) {
        Ok(items) => items.call0()?,
        Err(_) => object.clone(),
    };
    let arm = |pair: PyResult<Bound<'_, PyAny>>| {
        let pair = pair?;
        let pair = pair.cast::<PyTuple>().map_err(|_| {
            PyTypeError::new_err(format!(
                "{what}: {} is not a pair (indices, mask): give a dict, or a list of pairs",
                repr(&pair)
            ))
        })?;
        let (indices, mask): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        Ok(Arm { selector: selector(&indices, what)?, mask: mask_of(&mask)? })
    };
    let arms: Vec<Arm> = pairs.try_iter()?.map(arm).collect::<PyResult<_>>()?;
    match first_without_mask(&arms) {
        Some(index) if !arms.is_empty() => Err(Error::new_err(format!(
            "{what}: index {index} has no mask and would read nothing: give a mask for all other indices, \"else\": mask, or \"else\": \"none\" \
             if they read nothing"
        ))),
        _ => Ok(arms),
    }
}

/// Returns the first index that no arm selects; `None` if there is an arm for every index.
fn first_without_mask(arms: &[Arm]) -> Option<usize> {
    let mut spans: Vec<Span> = Vec::new();
    for arm in arms {
        match &arm.selector {
            Selector::Else => return None,
            Selector::Spans(list) => spans.extend(list.iter().copied()),
            Selector::Every { .. } => {}
        }
    }
    spans.sort_by_key(|span| span.start);
    let mut next = 0;
    for span in spans.into_iter().filter(|span| span.end.is_none_or(|end| end > span.start)) {
        match span.end {
            _ if span.start > next => break,
            Some(end) => next = next.max(end),
            None => return None,
        }
    }
    // a cover of this many consecutive indices by at most 16 selectors `every` covers all
    (next..next.saturating_add(1 << 16)).find(|index| !arms.iter().any(|arm| arm.selector.names(*index)))
}

/// Reads a selector of heads, batch rows or layers: a set of indices, `"else"`, `"every 2"` or `"every 6 from 5"`.
fn selector(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Selector> {
    let Ok(text) = object.cast::<PyString>() else {
        return Ok(Selector::Spans(spans(object, what)?));
    };
    let mask: Mask =
        format!("{what}({}: full)", text.to_str()?).parse().map_err(noren::noren_mask::Error::from).map_err(raise)?;
    match mask.node() {
        Node::Heads(arms) | Node::Batch(arms) | Node::Layers(arms) if arms.len() == 1 => Ok(arms[0].selector.clone()),
        _ => Err(Error::new_err(format!(
            "{what}: {} does not select indices: give indices, \"else\" or \"every 6 from 5\"",
            repr(object)
        ))),
    }
}
