//! The files of the page, which are compiled into the program.

use crate::request::store::identity;
use crate::serve::http::{Response, response};
use hyper::body::Bytes;
use hyper::http::request::Parts;

// `FILES`: the paths of the files in `page/` with their bytes. The build script writes this list.
include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Returns the content of the page's file with the path `path`; `None` if the page has no such file. Debug builds read
/// the file from the source folder at each request, so that changes of the page need no new build.
fn content(path: &str) -> Option<Bytes> {
    let (_, bytes) = FILES.iter().find(|(name, _)| *name == path)?;
    if cfg!(debug_assertions) {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page").join(path);
        if let Ok(bytes) = std::fs::read(file) {
            return Some(bytes.into());
        }
    }
    Some(Bytes::from_static(bytes))
}

/// Returns the response with the file that the path of the request names. The path `/` means `index.html`.
pub(crate) fn file(head: &Parts) -> Response {
    let path = if head.uri.path() == "/" { "index.html" } else { head.uri.path().trim_start_matches('/') };
    let Some(bytes) = content(path) else {
        return response(404, &[("content-type", "text/plain; charset=utf-8")], "this page does not exist\n");
    };
    let tag = format!("\"{}\"", identity(&bytes));
    let headers = [("etag", &*tag), ("cache-control", "no-cache"), ("content-type", content_type(path))];
    match head.headers.get_all("if-none-match").iter().any(|known| is_among(&tag, known.as_bytes())) {
        true => response(304, &headers[..2], Bytes::new()),
        false => response(200, &headers, bytes),
    }
}

/// Returns whether the header value `list` contains the entity tag `tag`. The list is `*`, which contains every tag, or
/// has the form `"a", W/"b"`; the mark `W/` is ignored (RFC 9110, section 13.1.2).
fn is_among(tag: &str, list: &[u8]) -> bool {
    let mut tags = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tags.any(|known| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag.as_bytes())
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
