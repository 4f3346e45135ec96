//! The question where packed documents end, and the tokens at the borders between the documents that a mask shows.

use crate::intent::known::Known;
use crate::intent::{Intent, row};
use crate::report::Open;

pub(crate) const DOCUMENTS: &str =
    "where do the documents end? declare segment_ids, cu_seqlens, position_ids, or input_ids with eos_token_id";

/// Returns the question where the documents end. `shown` has the documents of the mask, if they are known, and `eos` is the declared id
/// of the end of a text. The readings name the token ids at the borders.
pub(crate) fn where_documents_end(known: &Known, shown: Option<&Intent>, eos: Option<i64>) -> Open {
    let (same, other) = shown.map_or_else(Default::default, |shown| at_borders(known, shown, eos));
    let same = format!("the intended documents end at the same tokens as the documents in the mask{same}");
    let other = format!(
        "the intended documents end at other tokens than the documents in the mask, and the mask is wrong{other}"
    );
    Open::new(&[&same, &other], DOCUMENTS)
}

/// Returns what the given token ids state for the documents of the mask, and against them.
fn at_borders(known: &Known, shown: &Intent, eos: Option<i64>) -> (String, String) {
    let Some(ids) = known.ids.as_ref().filter(|ids| known.fits(ids)) else { return Default::default() };
    let mut pairs: Vec<(i64, i64)> = Vec::new();
    for (b, ids) in ids.iter().enumerate() {
        let document = |k: usize| shown.segments.as_ref().map_or(1, |rows| row(rows, b)[k]);
        let is_border = |k: &usize| document(*k) != document(k - 1) && document(*k) > 0 && document(k - 1) > 0;
        pairs.extend((1..ids.len()).filter(is_border).map(|k| (ids[k - 1], ids[k])));
    }
    let one = |of: fn(&(i64, i64)) -> i64| pairs.first().map(of).filter(|id| pairs.iter().all(|pair| of(pair) == *id));
    let end = |id: i64| format!("if it ends texts, declare eos_token_id={id}");
    match (one(|pair| pair.0), one(|pair| pair.1)) {
        (Some(last), _) => (format!(" (token id {last} is before each border: {})", end(last)), String::new()),
        (_, Some(first)) => {
            let early =
                format!(" (token id {first} is after each border, which is one token too early {})", end(first));
            (String::new(), early)
        }
        _ if !pairs.is_empty() => Default::default(),
        _ => {
            let missing = eos.filter(|eos| !ids.iter().flatten().any(|id| id == eos));
            let why = match missing {
                Some(eos) => {
                    format!("eos_token_id={eos} is not in input_ids, so a mask that is made of it has no border")
                }
                None => "for example because the token that ends texts, of which the mask is made, is not in input_ids"
                    .to_string(),
            };
            (": each batch row is one document".to_string(), format!(" ({why})"))
        }
    }
}
