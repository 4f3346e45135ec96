//! The answers for downloads: a mask as a picture, an expression, code, or an array of its cells.

use super::mask::spec_text;
use crate::call::{ExportRequest, Pair};
use crate::message::{JSON, Reply};
use crate::problem::{Problem, Result};
use crate::scene::Known;
use crate::state::{Answer, State};
use crate::wire::Frame;
use noren_input::npy::write_npy;
use noren_mask::{Facts, Keep, PlanOptions};
use noren_picture::{Draw, TerminalOptions};
use serde_json::json as object;

/// The maximum number of cells of a downloaded array.
const MOST_CELLS: u128 = 1 << 28;

/// Returns the mask `id` as a file in the format that the request names: a picture, an expression, code, or an array of
/// its cells.
pub(crate) fn export(state: &mut State, id: &str, request: &ExportRequest) -> Answer {
    let known = state.mask(id)?;
    let other = request.other.as_deref().map(|id| state.mask(id)).transpose()?;
    let (content_type, ending, bytes) = match request.form.as_str() {
        "svg" => ("image/svg+xml", "svg", picture(&known, other.as_deref(), request)?.to_svg()?.into_bytes()),
        "png" => ("image/png", "png", picture(&known, other.as_deref(), request)?.to_png()?),
        "txt" => {
            let text = picture(&known, other.as_deref(), request)?.to_terminal(&TerminalOptions::default())?;
            (TEXT, "txt", text.into_bytes())
        }
        "expression" => (TEXT, "txt", format!("{}\n", spec_text(&known)).into_bytes()),
        "rust" => (TEXT, "rs", rust(&known)?.into_bytes()),
        "python" => (TEXT, "py", python(&known)?.into_bytes()),
        "json" => (JSON, "json", scene(&known)?.into_bytes()),
        "npy" => ("application/octet-stream", "npy", npy(&known)?),
        other => {
            let forms = "svg, png, txt, expression, rust, python, json or npy";
            return Err(Problem::new(format!("as={other}: expected {forms}")).into());
        }
    };
    let head = Reply { file_name: Some(format!("mask.{ending}")), ..Reply::of(content_type) };
    Ok(Frame { head, blobs: vec![bytes] })
}

const TEXT: &str = "text/plain; charset=utf-8";

fn picture<'a>(
    known: &'a Known,
    other: Option<&'a Known>,
    request: &ExportRequest,
) -> Result<noren_picture::Picture<'a>> {
    let bound = &known.bound;
    let mut picture = match other {
        Some(other) => bound.picture_of_difference(&other.bound),
        None => bound.picture(),
    };
    if let Some(Pair { batch, head }) = request.pair {
        picture = picture.batch(batch).head(head);
    }
    if let Some(rows) = &request.rows {
        picture = picture.queries(range(rows, "rows", bound.shape().q_len())?);
    }
    if let Some(keys) = &request.keys {
        picture = picture.keys(range(keys, "keys", bound.shape().kv_len())?);
    }
    Ok(if request.plan && other.is_none() { picture.tiles(PlanOptions::default()) } else { picture })
}

fn npy(known: &Known) -> Result<Vec<u8>> {
    let cells = known.bound.shape().cells();
    if cells > MOST_CELLS {
        let problem = Problem::new(format!("the mask has {cells} cells: an array may have up to {MOST_CELLS}"));
        return Err(problem.hint("download the expression instead, which defines the same mask in one line"));
    }
    let mut out = Vec::new();
    write_npy(&mut out, &Keep::of(&known.bound)).map_err(|e| Problem::status(500, e.to_string()))?;
    Ok(out)
}

/// Returns the facts of a mask as JSON; `None` if the mask has no facts.
fn facts(known: &Known) -> Result<Option<String>> {
    let facts = known.bound.facts();
    Ok(if *facts == Facts::new() { None } else { Some(facts.to_json()?) })
}

/// Returns the mask with its complete shape and facts, in the format of a request body for `POST /api/masks`.
fn scene(known: &Known) -> Result<String> {
    let facts: Option<serde_json::Value> = facts(known)?.map(|json| serde_json::from_str(&json)).transpose()?;
    let own = known.bound.shape();
    let offsets: Vec<i64> = (0..own.batch_len()).map(|b| own.query_offset(b)).collect();
    let shape = object!({
        "q": own.q_len(),
        "kv": own.kv_len(),
        "query_offset": offsets,
        "batch": own.batch_len(),
        "heads": own.head_count(),
        "kv_heads": own.kv_head_count(),
    });
    let value = object!({ "mask": spec_text(known), "shape": shape, "facts": facts.unwrap_or_else(|| object!({})) });
    Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
}

/// Returns a program in Rust that builds this mask.
fn rust(known: &Known) -> Result<String> {
    let shape = known.bound.shape().to_json()?;
    let facts = match facts(known)? {
        Some(json) => format!("Facts::from_json({})?", raw(&json)),
        None => "Facts::new()".to_string(),
    };
    let text = raw(&spec_text(known));
    let shape = raw(&shape);
    Ok(format!(
        "use noren_mask::{{Error, Facts, Shape, Spec}};\n\n\
         pub fn main() -> Result<(), Error> {{\n    \
             let spec: Spec = {text}.parse()?;\n    \
             let shape = Shape::from_json({shape})?;\n    \
             let facts = {facts};\n    \
             let bound = spec.mask.bind(&shape, &facts)?;\n    \
             println!(\"{{}}\", bound.plan().stats());\n    \
             Ok(())\n\
         }}\n"
    ))
}

/// Returns a text as a raw string literal of Rust.
fn raw(text: &str) -> String {
    let mut signs = String::from("#");
    while text.contains(&format!("\"{signs}")) {
        signs.push('#');
    }
    format!("r{signs}\"{text}\"{signs}")
}

/// Returns a program in Python that builds this mask.
fn python(known: &Known) -> Result<String> {
    let facts = facts(known)?.map_or(String::new(), |json| format!(", noren.Facts.from_json({})", quoted(&json)));
    let shape = quoted(&known.bound.shape().to_json()?);
    let text = quoted(&spec_text(known));
    Ok(format!(
        "import noren\n\nspec = noren.Spec({text})\nshape = noren.Shape.from_json({shape})\n\
         bound = spec.mask.bind(shape{facts})\nprint(bound.plan().stats())\n"
    ))
}

/// Returns a text as a quoted string, which is valid in Python and in JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Parses the range `a..b` in the parameter `what` of a query string. Without `a`, the range begins at 0; without `b`,
/// the range ends at `len`.
fn range(text: &str, what: &str, len: usize) -> Result<std::ops::Range<usize>> {
    let ends = text.split_once("..").map(|(a, b)| {
        let number = |text: &str, default| if text.is_empty() { Ok(default) } else { text.parse::<usize>() };
        Ok::<_, std::num::ParseIntError>((number(a, 0)?, number(b, len)?))
    });
    match ends {
        Some(Ok((start, end))) if start <= end => Ok(start..end),
        _ => Err(Problem::new(format!(
            "{what}={text}: expected a range such as 0..32, 100.. or ..8; its start must not be after its end"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_a_start_that_is_not_after_the_end() {
        assert_eq!(
            [range("2..5", "rows", 9), range("7..", "rows", 9), range("..", "rows", 9)],
            [Ok(2..5), Ok(7..9), Ok(0..9)]
        );
        for text in ["8..3", "12..", "3", "a..b", ""] {
            assert!(range(text, "rows", 9).is_err(), "{text}");
        }
    }

    #[test]
    fn raw_strings_hold_anything() {
        assert_eq!(raw("causal"), "r#\"causal\"#");
        assert_eq!(raw("a\"#b"), "r##\"a\"#b\"##");
    }
}
