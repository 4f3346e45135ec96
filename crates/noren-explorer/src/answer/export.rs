//! The answers for downloads: a mask as a picture, an expression, code, or an array of its cells.

use super::mask::spec_text;
use super::parts::{facts, picture, quoted};
use super::share;
use crate::call::ExportRequest;
use crate::cause::Cause;
use crate::message::{JSON, Reply};
use crate::problem::{Problem, Result};
use crate::scene::Known;
use crate::state::{Answer, State};
use crate::wire::Frame;
use noren_input::npy::write_npy;
use noren_mask::Keep;
use noren_picture::TerminalOptions;
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
        "html" => {
            // a page has every reason, so it shows all batch rows and heads of the first mask, without tiles
            let request = ExportRequest { pair: None, plan: false, ..request.clone() };
            let page = picture(&known, None, &request)?.expression(spec_text(&known));
            let all = noren_code::all(&known.spec(), known.bound.shape(), known.bound.facts());
            let page = all.into_iter().fold(page, |page, code| page.code(code.target.title(), code.text));
            let html = page.to_html()?;
            ("text/html; charset=utf-8", "html", html.into_bytes())
        }
        "expression" => (TEXT, "txt", format!("{}\n", spec_text(&known)).into_bytes()),
        "rust" => (TEXT, "rs", rust(&known)?.into_bytes()),
        "python" => (TEXT, "py", python(&known)?.into_bytes()),
        "markdown" => {
            ("text/markdown; charset=utf-8", "md", share::markdown(&known, other.as_deref(), request)?.into_bytes())
        }
        "notebook" => (TEXT, "py", share::notebook(&known)?.into_bytes()),
        "json" => (JSON, "json", scene(&known)?.into_bytes()),
        "npy" => ("application/octet-stream", "npy", npy(&known)?),
        other => {
            let forms = "svg, png, txt, html, expression, rust, python, markdown, notebook, json or npy";
            return Err(Problem::new(format!("as={other}: expected {forms}")).into());
        }
    };
    let head = Reply { file_name: Some(format!("mask.{ending}")), ..Reply::of(content_type) };
    Ok(Frame { head, blobs: vec![bytes] })
}

const TEXT: &str = "text/plain; charset=utf-8";

fn npy(known: &Known) -> Result<Vec<u8>> {
    let cells = known.bound.shape().cells();
    if cells > MOST_CELLS {
        let problem = Problem::new(format!("the mask has {cells} cells: an array may have up to {MOST_CELLS}"))
            .cause(Cause::ExportTooLarge);
        return Err(problem.hint("download the expression instead, which defines the same mask in one line"));
    }
    let mut out = Vec::new();
    write_npy(&mut out, &Keep::of(&known.bound)).map_err(|e| Problem::status(500, e.to_string()))?;
    Ok(out)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_strings_hold_anything() {
        assert_eq!(raw("causal"), "r#\"causal\"#");
        assert_eq!(raw("a\"#b"), "r##\"a\"#b\"##");
    }
}
