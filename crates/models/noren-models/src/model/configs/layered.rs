//! [`layered_mask`]: one mask for all layers of a model in which layers have different windows.

use super::raw::Raw;
use crate::error::{Error, Result};
use noren::noren_mask::{Mask, Selector, atoms};
use serde_json::Value;

/// Returns the window of each of `layers` layers, as the list `layer_types` in the configuration defines it; `None`
/// without this list. `window` is the window of the layers that have one.
pub(crate) fn listed_windows(
    raw: &Raw<'_>,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Vec<Option<usize>>>> {
    let Some(list) = raw.get("layer_types") else { return Ok(None) };
    let kind = |value: &Value| match value.as_str() {
        Some("full_attention") => Ok(None),
        Some("sliding_attention") if window.is_some() => Ok(window),
        Some("sliding_attention") => {
            Err(Error::config("sliding_window", "missing", "layer_types uses a window: give its length in tokens"))
        }
        _ => Err(Error::config("layer_types", value, "give full_attention or sliding_attention")),
    };
    let list = list.as_array().map(|list| list.iter().map(kind).collect::<Result<Vec<_>>>()).transpose()?;
    match list {
        Some(windows) if windows.len() == layers => Ok(Some(windows)),
        _ => {
            let given = list.map_or("no list".to_owned(), |windows| format!("for {} layers", windows.len()));
            let expected = format!("the model has {layers} layers: give a list with a type for each layer");
            Err(Error::config("layer_types", given, expected))
        }
    }
}

/// Returns the mask of all layers as one expression. `windows` holds the window of each layer in tokens; `None` for a
/// layer without a window. `of` returns the mask of a layer for its window.
pub(crate) fn layered_mask(windows: &[Option<usize>], of: impl Fn(Option<usize>) -> Mask) -> Mask {
    let mut kinds = windows.iter().fold(Vec::new(), |mut kinds, window| {
        if !kinds.contains(window) {
            kinds.push(*window);
        }
        kinds
    });
    if let [one] = kinds[..] {
        return of(one);
    }
    // Rarer kinds are listed, and the most frequent one is `else`.
    kinds.sort_by_key(|kind| windows.iter().filter(|window| *window == kind).count());
    let rest = kinds.pop().flatten();
    let named: Vec<(Selector, Mask)> = kinds.into_iter().map(|kind| (layers_of(windows, kind), of(kind))).collect();
    atoms::layers(named.into_iter().chain([(Selector::Else, of(rest))]))
}

/// Returns the selector of all layers whose window is `kind`, for the expression `layers(...)`. `kind` is in tokens;
/// `None` stands for layers without a window. The selector is `every n` if every n-th layer has this window, from the
/// first such layer to the end of the model. Otherwise, the selector is a list of layers.
fn layers_of(windows: &[Option<usize>], kind: Option<usize>) -> Selector {
    let at: Vec<usize> = (0..).zip(windows).filter(|(_, window)| **window == kind).map(|(i, _)| i).collect();
    let step = if at.len() > 1 { at[1] - at[0] } else { windows.len() };
    let every = (at[0]..windows.len()).step_by(step);
    match at.len() > 1 && every.eq(at.iter().copied()) {
        true => Selector::Every { step, from: at[0] },
        false => Selector::Spans(at.into_iter().map(Into::into).collect()),
    }
}
