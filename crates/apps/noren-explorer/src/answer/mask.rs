//! The answers for the mask view: the summary of a bound mask, tiles of its picture, the explanation of a cell, and the
//! difference of two masks.

use super::number::number;
use crate::request::call::{Call, Pair};
use crate::request::problem::{Problem, Result};
use crate::request::scene::Known;
use crate::request::state::{Answer, State, json};
use crate::request::store::identity;
use crate::request::wire::Frame;
use noren_mask::atoms::Documents;
use noren_mask::{BoundMask, Cover, SpanKind, Spec};
use noren_picture::Draw;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as object};
use std::collections::BTreeMap;

/// The maximum number of distinct patterns (groups of batch rows and heads with equal cells) that the summary of a mask
/// lists.
const MOST_PATTERNS: usize = 256;
/// The maximum number of pairs of batch row and head that are listed for one pattern.
const MOST_LISTED: usize = 64;
/// The number of parts into which each step of the search for a border divides the remaining range of positions.
const PARTS: usize = 256;
/// The maximum number of pixels along each side of a tile of the picture.
const SIDE: u64 = 256;
/// The maximum level of a tile of the picture. At this level, one pixel shows `2^22` queries by `2^22` keys, and a mask
/// has at most so many queries and keys.
const MOST_LEVEL: u32 = 22;

/// Reads the scene `body`, which is a mask with its shape and its facts (data that the mask needs, such as document
/// lengths). Stores the bound mask under the identity `id`, and returns its summary.
pub(crate) fn read(state: &mut State, body: &[u8]) -> Answer {
    let id = identity(body);
    let known = state.define(&id, body)?;
    json(&summary(&id, &known))
}

/// The pairs of batch row and head whose cells are equal, so that one picture shows all of them.
#[derive(Default, Serialize)]
struct Pattern {
    /// The first pairs `[batch row, head]` with this pattern, at most [`MOST_LISTED`] pairs.
    pairs: Vec<[usize; 2]>,
    caption: Option<String>,
}

/// Returns the summary of a mask for the page: sizes, assumed sizes, documents, labels, and patterns (groups of batch
/// rows and heads with equal cells).
pub(crate) fn summary(id: &str, known: &Known) -> Value {
    let (bound, shape) = (&known.bound, known.bound.shape());
    let facts = serde_json::to_value(bound.facts()).unwrap_or_default();
    let mut places: BTreeMap<usize, usize> = BTreeMap::new(); // the patterns in the order of their first pairs
    let mut patterns: Vec<Pattern> = Vec::new();
    let mut pattern_of: Vec<Option<usize>> = Vec::new();
    for (batch, head) in (0..shape.batch_len()).flat_map(|b| (0..shape.head_count()).map(move |h| (b, h))) {
        let index = bound.pattern_of(batch, head);
        let place = *places.entry(index).or_insert(patterns.len());
        if place == patterns.len() {
            patterns.push(Pattern { caption: bound.pattern_caption(index), ..Pattern::default() });
        }
        if patterns[place].pairs.len() < MOST_LISTED {
            patterns[place].pairs.push([batch, head]);
        }
        pattern_of.push((place < MOST_PATTERNS).then_some(place));
    }
    patterns.truncate(MOST_PATTERNS);
    object!({
        "id": id,
        "mask": bound.mask().to_string(),
        "q_len": shape.q_len(),
        "kv_len": shape.kv_len(),
        "batch": shape.batch_len(),
        "heads": shape.head_count(),
        "query_offsets": (0..shape.batch_len()).map(|b| shape.query_offset(b)).collect::<Vec<_>>(),
        "assumed": known.assumed,
        "scores": known.scores.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "patterns": patterns,
        "pattern_of": pattern_of,
        "pattern_count": bound.pattern_count(),
        "document_ends": document_ends(bound, &facts),
        "labels": labels(&facts),
        "lengths": facts.get("lengths"),
    })
}

/// Returns the positions at which documents end, one list for each batch row, or a single list if all batch rows are
/// equal. The ends come from the lengths of documents in the mask or in the facts. `None` if there are no such lengths.
fn document_ends(bound: &BoundMask, facts: &Value) -> Option<Vec<Vec<usize>>> {
    let written = bound.mask().atoms().into_iter().find_map(|atom| atom.downcast::<Documents>()?.lengths.clone());
    let rows: Vec<Vec<usize>> = match (written, facts.get("documents")) {
        (Some(lengths), _) => vec![lengths],
        (None, Some(rows)) if rows[0].is_array() => Vec::deserialize(rows).ok()?,
        (None, row) => vec![Vec::deserialize(row?).ok()?],
    };
    let sum = |end: &mut usize, len: usize| {
        *end += len;
        Some(*end)
    };
    Some(rows.into_iter().map(|lengths| lengths.into_iter().scan(0, sum).collect()).collect())
}

/// Returns the positions of each label as JSON, such as `{"pii": [[[3, 9]]]}`: for each batch row, a list of ranges
/// whose end is excluded. If the facts have one list of positions for all batch rows, there is only one list of ranges.
fn labels(facts: &Value) -> Value {
    let ranges = |row: &Value| -> Vec<[u64; 2]> { row.as_array().into_iter().flatten().filter_map(ends).collect() };
    let by_row = |spans: &Value| -> Vec<Vec<[u64; 2]>> {
        match spans.as_array() {
            Some(rows) if rows.iter().any(Value::is_array) => rows.iter().map(ranges).collect(),
            _ => vec![ranges(spans)],
        }
    };
    let labels = facts.get("labels").and_then(Value::as_object).into_iter().flatten();
    labels.map(|(name, spans)| (name.clone(), object!(by_row(spans)))).collect::<serde_json::Map<_, _>>().into()
}

/// Returns the start and the end (excluded) of one entry of a label (a named set of tokens): `3` is from 3 to 4,
/// `"3..9"` is from 3 to 9, and `"3.."` is from 3 to the maximum length. Returns `None` if the entry has another
/// format.
fn ends(span: &Value) -> Option<[u64; 2]> {
    if let Some(at) = span.as_u64() {
        return Some([at, at + 1]);
    }
    let (start, end) = span.as_str()?.split_once("..")?;
    Some([start.parse().unwrap_or(0), end.parse().unwrap_or(noren_mask::Shape::MAX_LEN as u64)])
}

/// Returns a tile of a mask's picture, with one byte for each pixel.
pub(crate) fn tile(state: &mut State, call: &Call) -> Answer {
    let (known, other) = state.masks(call)?;
    Ok(Frame::of("application/octet-stream", draw(&known, other.as_deref(), call)?))
}

/// Returns the bytes of a tile: four little-endian `u32` numbers (rows, columns, first query, first key), and then one
/// byte for each pixel. A pixel shows one or more cells of the mask. The bits of its byte are:
///
/// - bits 0 and 1: 0 if the mask allows none of the pixel's cells, 1 if some, 2 if all
/// - bits 2 and 3: 0 if the plan computes none of the pixel's cells, 1 if mixed spans compute some of them, 2 if only
///   full spans do
/// - bit 4, with a second mask: 1 if the first mask allows a cell of the pixel that the second mask denies
/// - bit 5, with a second mask: 1 if the second mask allows a cell of the pixel that the first mask denies
/// - bits 6 and 7, with a second mask: the value of bits 0 and 1 for the second mask
fn draw(known: &Known, other: Option<&Known>, call: &Call) -> Result<Vec<u8>> {
    let (bound, shape, Pair { batch, head }) = (&known.bound, known.bound.shape(), call.pair()?);
    let level = call.place(1, "level")?;
    let rows = borders("row", call.place(2, "row")?, level, shape.q_len())?;
    let cols = borders("column", call.place(3, "col")?, level, shape.kv_len())?;
    let mut out = Vec::new();
    for number in [rows.len() as u32 - 1, cols.len() as u32 - 1, rows[0], cols[0]] {
        out.extend(number.to_le_bytes());
    }
    let grid = bound.grid_between(batch, head, rows.clone(), cols.clone())?;
    let mut cells: Vec<u8> = grid.covers().iter().map(|cover| code(*cover)).collect();
    if call.query.flag("plan")? {
        let plan = known.plan_in_place();
        let kinds = grid.kinds(&plan.patterns()[plan.pattern_of(batch, head)]);
        for (cell, kind) in cells.iter_mut().zip(kinds) {
            *cell |= kind.map_or(0, |kind| if kind == SpanKind::Mixed { 1 } else { 2 }) << 2;
        }
    }
    if let Some(other) = other {
        let only = |a: &BoundMask, b| a.grid_minus_between(b, batch, head, rows.clone(), cols.clone());
        let (this, that) = (only(bound, &other.bound)?, only(&other.bound, bound)?);
        let covers = other.bound.grid_between(batch, head, rows.clone(), cols.clone())?;
        for (i, cell) in cells.iter_mut().enumerate() {
            let some = |grid: &noren_mask::Grid| u8::from(grid.covers()[i] != Cover::Empty);
            *cell |= some(&this) << 4 | some(&that) << 5 | code(covers.covers()[i]) << 6;
        }
    }
    out.extend(cells);
    Ok(out)
}

fn code(cover: Cover) -> u8 {
    match cover {
        Cover::Empty => 0,
        Cover::Mixed => 1,
        Cover::Full => 2,
    }
}

/// Returns the first position of each pixel of tile number `tile` along one axis, and then the position after the last
/// pixel. A pixel of level `level` shows `2^level` positions. `len` is the number of positions of the mask along the
/// axis, and `what` names the axis in the error message.
fn borders(what: &str, tile: u64, level: u32, len: usize) -> Result<Vec<u32>> {
    let len = len as u64;
    let step = 1u64 << level.min(MOST_LEVEL);
    let start = tile.checked_mul(SIDE * step).filter(|start| *start < len && level <= MOST_LEVEL);
    let Some(start) = start else {
        return Err(Problem::status(
            404,
            format!(
                "the picture of zoom level {level} has no tile in {what} {tile}: the mask has only {len} positions along this axis"
            ),
        ));
    };
    let end = len.min(start + SIDE * step);
    Ok((0..).map(|i| start + i * step).take_while(|at| *at < end).chain([end]).map(|at| at as u32).collect())
}

/// Returns why a cell is allowed or denied.
pub(crate) fn explain(state: &mut State, call: &Call) -> Answer {
    let (known, other) = state.masks(call)?;
    let (Pair { batch, head }, (q, k)) = (call.pair()?, call.cell()?);
    let explanation = known.bound.explain(batch, head, q, k)?;
    let mut value = serde_json::to_value(&explanation)?;
    value["text"] = Value::String(explanation.to_string());
    if let Some(other) = other {
        value["other_allowed"] = other.bound.explain(batch, head, q, k)?.allowed.into();
    }
    json(&value)
}

/// Returns the first cell behind the next border between allowed and denied cells. The search begins at a cell and
/// continues along its row or its column. `cell` in the answer is null if there is no border.
pub(crate) fn border(state: &mut State, call: &Call) -> Answer {
    let known = state.mask(call.id())?;
    let (bound, shape) = (&known.bound, known.bound.shape());
    let (Pair { batch, head }, (q, k)) = (call.pair()?, call.cell()?);
    let back = call.query.flag("back")?;
    let queries = match call.query.text("along").as_deref() {
        None | Some("keys") => false,
        Some("queries") => true,
        Some(other) => return Err(Problem::new(format!("along={other}: expected keys or queries")).into()),
    };
    let allowed = bound.explain(batch, head, q, k)?.allowed;
    let (from, len) = if queries { (q, shape.q_len()) } else { (k, shape.kv_len()) };
    let (mut start, mut end) = if back { (0, from) } else { (from + 1, len) };
    // Each step finds the part of the range that is nearest to the cell and not uniform, and continues in this part.
    let found = loop {
        if start >= end {
            break None;
        }
        let step = (end - start).div_ceil(PARTS);
        let cuts: Vec<u32> = (start..end).step_by(step).chain([end]).map(|at| at as u32).collect();
        let one = |at: usize| vec![at as u32, at as u32 + 1];
        let (rows, cols) = if queries { (cuts.clone(), one(k)) } else { (one(q), cuts.clone()) };
        let grid = bound.grid_between(batch, head, rows, cols)?;
        let same = if allowed { Cover::Full } else { Cover::Empty };
        let mut parts = grid.covers().iter().enumerate();
        let part = if back { parts.rfind(|(_, c)| **c != same) } else { parts.find(|(_, c)| **c != same) };
        let Some((part, _)) = part else { break None };
        (start, end) = (cuts[part] as usize, cuts[part + 1] as usize);
        if end - start == 1 {
            break Some(start);
        }
    };
    let cell = found.map(|at| if queries { object!({ "q": at, "k": k }) } else { object!({ "q": q, "k": at }) });
    json(&object!({ "cell": cell, "allowed": allowed }))
}

/// Returns the first cell in which two masks differ. Also returns for each mask the number of cells that only this mask
/// allows.
pub(crate) fn difference(state: &mut State, call: &Call) -> Answer {
    let other = call.need("other", "the second mask is missing: give the parameter `other`")?;
    let (known, other) = (state.mask(call.id())?, state.mask(&other)?);
    let (this, that) = (&known.bound, &other.bound);
    let first = this.first_difference(that)?;
    let first = first.map(|cell| {
        let allowed = this.allowed(cell.batch, cell.head, cell.q, cell.k);
        let by = if allowed { "this" } else { "other" };
        object!({ "batch": cell.batch, "head": cell.head, "q": cell.q, "k": cell.k, "allowed_by": by })
    });
    json(&object!({
        "same": first.is_none(),
        "first": first,
        "only_this": number(this.count_outside(that)?),
        "only_other": number(that.count_outside(this)?),
    }))
}

/// Returns the expression of a mask with its score modifiers, as text.
pub(crate) fn spec_text(known: &Known) -> String {
    let scores: String = known.scores.iter().map(|score| format!(" + {score}")).collect();
    let text = format!("{}{scores}", known.bound.mask());
    debug_assert!(text.parse::<Spec>().is_ok(), "{text}");
    text
}
