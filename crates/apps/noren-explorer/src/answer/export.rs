//! The answers for downloads: a mask as a picture, an expression, code, or an array of its cells.

use super::mask::spec_text;
use super::parts::{facts, part, picture};
use super::share;
use crate::request::call::Call;
use crate::request::cause::Cause;
use crate::request::message::JSON;
use crate::request::problem::{Problem, Result};
use crate::request::scene::Known;
use crate::request::state::{Answer, State};
use crate::request::wire::Frame;
use noren_input::npy::write_npy;
use noren_mask::Keep;
use noren_picture::{Draw, TerminalOptions};
use serde_json::json as object;

/// The maximum number of cells of a downloaded array.
const MOST_CELLS: u128 = 1 << 28;

/// Returns the mask `id` as a file in the format that the request names: a picture, an expression, code, or an array of
/// its cells.
pub(crate) fn export(state: &mut State, call: &Call) -> Answer {
    let form = call.need("as", "the format of the download is missing: give for example as=svg")?;
    let (known, other) = state.masks(call)?;
    let (content_type, ending, bytes) = match form.as_str() {
        "svg" => ("image/svg+xml", "svg", picture(&known, other.as_deref(), call)?.to_svg()?.into_bytes()),
        "png" => ("image/png", "png", picture(&known, other.as_deref(), call)?.to_png()?),
        "txt" => {
            let text = picture(&known, other.as_deref(), call)?.to_terminal(&TerminalOptions::default())?;
            (TEXT, "txt", text.into_bytes())
        }
        "html" => {
            // a page has every reason, so it shows all batch rows and heads of the first mask, without tiles
            let page = part(known.bound.picture(), &known, call)?.expression(spec_text(&known));
            let all = noren_code::all(&known.spec(), known.bound.shape(), known.bound.facts());
            let page = all.into_iter().fold(page, |page, code| page.code(code.target.title(), code.text));
            let html = page.to_html()?;
            ("text/html; charset=utf-8", "html", html.into_bytes())
        }
        "expression" => (TEXT, "txt", format!("{}\n", spec_text(&known)).into_bytes()),
        "markdown" => {
            ("text/markdown; charset=utf-8", "md", share::markdown(&known, other.as_deref(), call)?.into_bytes())
        }
        "notebook" => (TEXT, "py", share::notebook(&known)?.into_bytes()),
        "json" => (JSON, "json", scene(&known)?.into_bytes()),
        "npy" => ("application/octet-stream", "npy", npy(&known)?),
        other => {
            let forms = "svg, png, txt, html, expression, markdown, notebook, json or npy";
            return Err(Problem::new(format!("as={other}: expected {forms}")).into());
        }
    };
    Ok(Frame::file(format!("mask.{ending}"), content_type, bytes))
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
