//! A mask as one self-contained HTML file: picture, expression, facts, and the reason of each cell.
//!
//! The file needs no other file and no network. Its policy (CSP) permits one script and one style, by their hashes, and
//! nothing else. The cells and the reasons are data, compressed and in base64: [`cells`] and [`reasons`] define their
//! form, and `page.js` draws and evaluates them.

mod cells;
mod limit;
mod reasons;

use crate::picture::Picture;
use crate::scene::{Layout, about};
use crate::text::clean;
use limit::{MOST_CODE, MOST_FILE, MOST_PAIRS, MOST_TOKENS, too_large};
use noren_mask::sentence::Token;
use noren_mask::text::escape;
use noren_mask::{Error, Mask, Node, Reasons};
use reasons::{Axis, Book};
use serde_json::{Value, json};
use std::fmt::Write;

const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");
/// The level of compression, from 0 to 10. Level 10 is not used because it takes much more time.
const LEVEL: u8 = 9;
/// The maximum number of characters with which the page shows one fact.
const MOST_FACT: usize = 1_000;

/// Returns the picture as an HTML file.
pub(crate) fn draw(picture: &Picture<'_>) -> Result<String, Error> {
    let refused = |what: &str| {
        Err(Error::invalid(format!(
            "picture: a web page shows the cells of one mask, without {what}: save the picture as SVG or PNG"
        )))
    };
    if picture.other.is_some() {
        return refused("the differences from a second mask");
    }
    if picture.tiles.is_some() {
        return refused("the tiles of a plan");
    }
    let layout = Layout::new(picture)?;
    let packed = pack(picture, &layout)?;
    let expression = picture.expression.clone().unwrap_or_else(|| picture.bound.mask().to_string());
    let title = picture.title.as_ref().map_or("Attention mask".into(), |title| clean(title));
    let mut sections = String::new();
    let all = [("Expression", code(&expression)), ("Facts", facts(picture)), ("Code", snippets(picture))];
    for (heading, content) in all.into_iter().filter(|(_, content)| !content.is_empty()) {
        let _ = writeln!(sections, "<section><h2>{heading}</h2>{content}</section>");
    }
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{}'; style-src \
         'sha256-{}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"generator\" content=\"noren {}\">\n\
         <title>{title}: {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         <p class=\"soft\">{}</p>\n{BODY}{sections}</main>\n<script type=\"text/plain\" id=\"data\">{packed}</script>\n\
         <script type=\"module\">{SCRIPT}</script>\n</body>\n</html>\n",
        hash(SCRIPT),
        hash(STYLE),
        env!("CARGO_PKG_VERSION"),
        escape(&crate::text::fit(&clean(&expression), 80)),
        escape(&about(picture, &layout)),
        title = escape(&title),
    );
    match html.len() {
        len if len > MOST_FILE => {
            Err(too_large(format!("the page would have {len} bytes, and {MOST_FILE} bytes are the limit")))
        }
        _ => Ok(html),
    }
}

/// The HTML of the picture, its controls and the panel for reasons. The script fills these elements.
const BODY: &str = "\
<noscript><p>This page draws its picture with a script, which this browser does not run.</p></noscript>
<div class=\"columns\">
<section class=\"picture\" aria-label=\"Picture\">
<div class=\"bar\">
<span hidden><label for=\"batch\">Batch row</label> <select id=\"batch\"></select></span>
<span hidden><label for=\"head\">Head</label> <select id=\"head\"></select></span>
<span class=\"zoom\"><button type=\"button\" id=\"farther\" aria-label=\"Zoom out\">−</button>\
<button type=\"button\" id=\"nearer\" aria-label=\"Zoom in\">+</button>\
<button type=\"button\" id=\"fit\">Whole mask</button></span>
</div>
<canvas id=\"cells\" tabindex=\"0\" role=\"application\" aria-label=\"Cells of the mask: arrow keys move to a cell\" \
aria-describedby=\"keys\"></canvas>
<p class=\"legend\"><span class=\"swatch allowed\"></span>allowed <span class=\"swatch some\"></span>some cells allowed \
<span class=\"swatch denied\"></span>denied</p>
<p class=\"soft\" id=\"keys\">Queries run down, keys across. Point at a cell, or move with the arrow keys (with Shift, 16 \
cells). Enter or a click pins a cell, Escape releases it. + and − zoom, 0 shows the whole mask.</p>
</section>
<section class=\"why\" id=\"why\" aria-label=\"Reason\"><h2>Why?</h2>\
<p class=\"soft\">Point at a cell to see why its query may or may not read its key.</p></section>
</div>
<p class=\"announced\" id=\"announced\" aria-live=\"polite\"></p>
";

/// Returns a text as preformatted HTML.
fn code(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().split('\n').map(|line| escape(&clean(line))).collect();
    format!("<pre tabindex=\"0\"><code>{}</code></pre>", lines.join("\n"))
}

/// Returns the code of the picture as collapsed HTML sections, or an empty text if the picture has no code. A note
/// replaces code that is too long.
fn snippets(picture: &Picture<'_>) -> String {
    let mut out = String::new();
    for (title, text) in &picture.code {
        let content = match text.len() {
            bytes if bytes > MOST_CODE => {
                format!("<p class=\"soft\">The code has {bytes} bytes, and this page shows at most {MOST_CODE}.</p>")
            }
            _ => code(text),
        };
        let _ = writeln!(out, "<details><summary>{}</summary>{content}</details>", escape(&clean(title)));
    }
    out
}

/// Returns the facts of the mask as an HTML list. Facts with much data are cut off.
fn facts(picture: &Picture<'_>) -> String {
    let facts = picture.bound.facts();
    let mut entries: Vec<(String, String)> = Vec::new();
    if let Ok(Value::Object(values)) = serde_json::to_value(facts) {
        let given = values.into_iter().filter(|(name, value)| name != "arrays" && !value.is_null());
        entries.extend(given.map(|(name, value)| (name, value.to_string())));
    }
    entries.extend(facts.arrays().map(|(name, array)| (format!("array {name}"), format!("{:?}", array.shape()))));
    if entries.is_empty() {
        return "<p class=\"soft\">No facts are given.</p>".into();
    }
    let mut out = String::from("<dl>");
    for (name, value) in entries {
        let value = clean(&value);
        let shown: String = value.chars().take(MOST_FACT).collect();
        let rest = value.chars().count().saturating_sub(MOST_FACT);
        let more = if rest > 0 { format!(" … and {rest} characters more") } else { String::new() };
        let _ = write!(out, "<dt>{}</dt><dd>{}{more}</dd>", escape(&clean(&name)), escape(&shown));
    }
    out + "</dl>"
}

/// Returns the data of the page, compressed with zlib and then in base64. The data are the length of the JSON, the
/// JSON, and for each set of cells its length and its bytes. Lengths are in LEB128.
fn pack(picture: &Picture<'_>, layout: &Layout) -> Result<String, Error> {
    let (bound, shape) = (picture.bound, picture.bound.shape());
    for (count, what) in [(layout.queries.len(), "queries"), (layout.keys.len(), "keys")] {
        if count > MOST_TOKENS {
            return Err(too_large(format!("it has {count} {what}, and {MOST_TOKENS} are the limit")));
        }
    }
    let batch: Vec<usize> = picture.batch.map_or((0..shape.batch_len()).collect(), |row| vec![row]);
    let heads: Vec<usize> = picture.head.map_or((0..shape.head_count()).collect(), |head| vec![head]);
    let pairs = batch.len() * heads.len();
    if pairs > MOST_PAIRS {
        return Err(too_large(format!("it has {pairs} pairs of batch row and head, and {MOST_PAIRS} are the limit")));
    }
    let pairs = batch.iter().flat_map(|row| heads.iter().map(|head| (*row, *head))).collect();
    let mut book = Book::new(bound, pairs, layout.queries.clone(), layout.keys.clone());
    let roots = book.roots()?;
    let slot = book.sentence(&Reasons::empty_slot(), &Mask::new(Node::None), batch[0])?;
    let position = |token: Token| token.position.to_string();
    let mut rows = Vec::new();
    for &row in &batch {
        let mut tables = vec![book.table(Axis::Queries, row, &position)?, book.table(Axis::Keys, row, &position)?];
        if picture.labels.is_some() || picture.query_labels.is_some() || picture.key_labels.is_some() {
            let query = |token: Token| picture.query_label(row, token.index).unwrap_or_default().to_string();
            let key = |token: Token| picture.key_label(row, token.index).unwrap_or_default().to_string();
            tables.extend([book.table(Axis::Queries, row, &query)?, book.table(Axis::Keys, row, &key)?]);
        }
        rows.push(tables);
    }
    let (mut data, sets) = book.end();
    let more = json!({
        "queries": [layout.queries.start, layout.queries.end],
        "keys": [layout.keys.start, layout.keys.end],
        "batch": batch,
        "heads": heads,
        "roots": roots,
        "rows": rows,
        "slot": slot,
    });
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    let json = data.to_string();
    let mut bytes = Vec::new();
    for part in std::iter::once(json.as_bytes()).chain(sets.iter().map(Vec::as_slice)) {
        cells::write_number(&mut bytes, part.len() as u64);
        bytes.extend_from_slice(part);
    }
    Ok(base64(&miniz_oxide::deflate::compress_to_vec_zlib(&bytes, LEVEL)))
}

/// Returns the SHA-256 of a text in base64, as in a Content-Security-Policy.
fn hash(text: &str) -> String {
    base64(&hmac_sha256::Hash::hash(text.as_bytes()))
}

/// Returns bytes in base64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().enumerate().fold(0u32, |word, (i, byte)| word | u32::from(*byte) << (16 - 8 * i));
        for i in 0..4 {
            let digit = char::from(DIGITS[(word >> (18 - 6 * i) & 63) as usize]);
            out.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let words = ["", "a", "ab", "abc", "abcd", "abcde", "abcdef"];
        let coded = ["", "YQ==", "YWI=", "YWJj", "YWJjZA==", "YWJjZGU=", "YWJjZGVm"];
        assert_eq!(words.map(|word| base64(word.as_bytes())), coded);
    }
}
