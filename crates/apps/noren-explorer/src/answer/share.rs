//! A mask as text to paste elsewhere: as Markdown for a message or an issue, and as a cell of a notebook.

use super::mask::spec_text;
use super::parts::{facts, one, picture, quoted};
use crate::request::call::{Call, Pair};
use crate::request::problem::Result;
use crate::request::scene::Known;
use noren_mask::{PlanOptions, Shape};
use noren_picture::TerminalOptions;

/// The maximum size of facts that are written into a command, in bytes. For larger facts, the command has the name of a
/// file instead.
const MOST_FACTS: usize = 4_000;

/// Returns a mask as Markdown: its picture in characters, and the command that shows the same picture.
pub(super) fn markdown(known: &Known, other: Option<&Known>, call: &Call) -> Result<String> {
    let drawn = picture(known, other, call)?.to_terminal(&TerminalOptions::default())?;
    let (command, left_out) = command(known, other, call)?;
    let note = match left_out {
        Some(bytes) => format!("\nThe facts have {bytes} bytes and are not part of this text.\n"),
        None => String::new(),
    };
    Ok(format!("{}\n{}{note}", fenced("text", &drawn), fenced("sh", &command)))
}

/// Returns a text as a code block of Markdown. The fence is longer than every run of backticks in the text.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end())
}

/// Returns the `noren` command that shows the same picture. The second result is the size of the facts in bytes if the
/// facts are too large for a command, otherwise `None`.
fn command(known: &Known, other: Option<&Known>, call: &Call) -> Result<(String, Option<usize>)> {
    let shape = known.bound.shape();
    let mut words = match other {
        Some(other) => vec!["noren".into(), "diff".into(), word(&spec_text(known)), word(&spec_text(other))],
        None => vec!["noren".into(), "show".into(), word(&spec_text(known))],
    };
    sizes(shape, &mut words);
    let mut left_out = None;
    if let Some(facts) = facts(known)? {
        let source = match facts.len() <= MOST_FACTS {
            true => format!("<(echo {})", word(&facts)),
            false => {
                left_out = Some(facts.len());
                "facts.json".into()
            }
        };
        words.extend(["--facts".into(), source]);
    }
    if other.is_some() {
        return Ok((words.join(" "), left_out)); // `noren diff` shows all batch rows, heads, queries and keys
    }
    if let Some(Pair { batch, head }) = one(call)? {
        let several = [(shape.batch_len(), "--batch-row", batch), (shape.head_count(), "--head", head)];
        let given = several.into_iter().filter(|(count, ..)| *count > 1);
        words.extend(given.flat_map(|(_, name, value)| [name.into(), value.to_string()]));
    }
    for (name, range) in [("--rows", call.query.text("rows")), ("--keys", call.query.text("keys"))] {
        words.extend(range.iter().flat_map(|range| [name.into(), word(range)]));
    }
    if call.query.flag("plan")? {
        let PlanOptions { block_q, block_kv, .. } = PlanOptions::default();
        words.push(format!("--tiles --block-q {block_q} --block-kv {block_kv}"));
    }
    Ok((words.join(" "), left_out))
}

/// Appends the sizes of a shape as options of a command.
fn sizes(shape: &Shape, words: &mut Vec<String>) {
    let offsets: Vec<i64> = (0..shape.batch_len()).map(|row| shape.query_offset(row)).collect();
    // A value that begins with a dash would be read as an option.
    let mut give = |name: &str, value: String| match value.starts_with('-') {
        true => words.push(format!("{name}={value}")),
        false => words.extend([name.to_string(), value]),
    };
    if shape.q_len() == shape.kv_len() && offsets.iter().all(|offset| *offset == 0) {
        give("--len", shape.kv_len().to_string());
    } else {
        give("--q", shape.q_len().to_string());
        give("--kv", shape.kv_len().to_string());
        let equal = offsets.windows(2).all(|pair| pair[0] == pair[1]);
        let given = if equal { &offsets[..1.min(offsets.len())] } else { &offsets[..] };
        give("--query-offset", given.iter().map(i64::to_string).collect::<Vec<_>>().join(","));
    }
    let counts = [("--batch", shape.batch_len()), ("--heads", shape.head_count())];
    counts.into_iter().filter(|(_, count)| *count > 1).for_each(|(name, count)| give(name, count.to_string()));
    if shape.kv_head_count() != shape.head_count() {
        give("--kv-heads", shape.kv_head_count().to_string());
    }
}

/// Returns a text as one word of a shell command, with quotes if necessary.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+:,./-".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Returns a cell of a notebook: Python whose last expression is the mask, which the notebook shows as a picture.
pub(super) fn notebook(known: &Known) -> Result<String> {
    let shape = known.bound.shape();
    let offsets: Vec<String> = (0..shape.batch_len()).map(|row| shape.query_offset(row).to_string()).collect();
    let mut sizes = vec![shape.q_len().to_string(), shape.kv_len().to_string()];
    if shape.q_len() != shape.kv_len() || offsets.iter().any(|offset| offset != "0") {
        let equal = offsets.windows(2).all(|pair| pair[0] == pair[1]);
        let given = if equal { offsets[0].clone() } else { format!("[{}]", offsets.join(", ")) };
        sizes.push(format!("query_offset={given}"));
    }
    let counts = [("batch", shape.batch_len()), ("heads", shape.head_count())];
    sizes.extend(counts.iter().filter(|(_, count)| *count > 1).map(|(name, count)| format!("{name}={count}")));
    if shape.kv_head_count() != shape.head_count() {
        sizes.push(format!("kv_heads={}", shape.kv_head_count()));
    }
    let facts = match facts(known)? {
        Some(json) => format!(", nr.Facts.from_json({})", literal(&json)),
        None => String::new(),
    };
    Ok(format!(
        "import noren as nr\n\nspec = nr.Spec({})\nbound = spec.mask.bind(nr.Shape({}){facts})\nbound\n",
        literal(&spec_text(known)),
        sizes.join(", ")
    ))
}

/// Returns a text as a string of Python. Text with double quotes is written between single quotes where this is possible.
fn literal(text: &str) -> String {
    match text.contains('"') && !text.contains(['\'', '\\']) && !text.chars().any(char::is_control) {
        true => format!("'{text}'"),
        false => quoted(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_fences_keep_the_text() {
        assert_eq!(
            [word("causal"), word("a b"), word("it's"), word("-5"), word("")].join(" "),
            r"causal 'a b' 'it'\''s' '-5' ''"
        );
        assert_eq!(fenced("sh", "a ``` b\n"), "````sh\na ``` b\n````\n");
        assert_eq!(literal("a"), "\"a\"");
        assert_eq!(literal("{\"a\": 1}"), "'{\"a\": 1}'");
        assert_eq!(literal("'\"\\"), "\"'\\\"\\\\\"");
    }
}
