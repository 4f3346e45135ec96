//! The files of the page, which are part of the program.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

/// Debug builds read the folder at every request, so that a page can be worked on without building the program.
#[derive(RustEmbed)]
#[folder = "page/"]
#[exclude = "*.md"]
struct Page;

/// The file of this path, `index.html` for the page itself.
pub(super) fn file(path: &str, headers: &HeaderMap) -> Response {
    let path = if path == "/" { "index.html" } else { path.trim_start_matches('/') };
    let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b)) && !path.contains("..");
    let Some(file) = plain.then(|| Page::get(path)).flatten() else {
        return (StatusCode::NOT_FOUND, "there is no such page\n").into_response();
    };
    let hash: String = file.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{hash}\"");
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let headers =
        [(CONTENT_TYPE, content_type(path).to_string()), (ETAG, tag), (CACHE_CONTROL, "no-cache".to_string())];
    (headers, file.data.into_owned()).into_response()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}
