//! The files of the page, which are compiled into the program.

use crate::request::store::identity;
use crate::serve::http::{Head, Response};
use std::borrow::Cow;

// `FILES`: the paths of the files in `page/` with their bytes. The build script writes this list.
include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Returns the content of the page's file with the path `path`; `None` if the page has no such file. Debug builds read
/// the file from the source folder at each request, so that changes of the page need no new build.
fn content(path: &str) -> Option<Cow<'static, [u8]>> {
    let (_, bytes) = FILES.iter().find(|(name, _)| *name == path)?;
    if cfg!(debug_assertions) {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page").join(path);
        if let Ok(bytes) = std::fs::read(file) {
            return Some(bytes.into());
        }
    }
    Some((*bytes).into())
}

/// Returns the response with the file that the path of the request names. The path `/` means `index.html`.
pub(crate) fn file(head: &Head) -> Response {
    let path = if head.path == "/" { "index.html" } else { head.path.trim_start_matches('/') };
    let Some(bytes) = content(path) else {
        return Response::new(404, "text/plain; charset=utf-8", "this page does not exist\n");
    };
    let tag = format!("\"{}\"", identity(&bytes));
    let response = match head.all("if-none-match").any(|known| is_among(&tag, known)) {
        true => Response { status: 304, ..Response::default() },
        false => Response::new(200, content_type(path), bytes),
    };
    response.header("etag", tag).header("cache-control", "no-cache")
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
