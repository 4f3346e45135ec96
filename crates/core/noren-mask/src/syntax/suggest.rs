//! Suggestions for error messages: the known name that is most similar to an unknown name.

/// Returns the candidate with the smallest edit distance to `word`. Returns `None` if this distance is too large for a
/// misspelling.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No known name is near a longer one; the limit also bounds the cost of hostile names.
    if word.len() > 64 {
        return None;
    }
    let word: Vec<char> = word.to_lowercase().chars().collect();
    let allowed = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.chars().collect::<Vec<_>>()), candidate))
        .filter(|(far, candidate)| *far <= allowed && *far < candidate.len())
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance of two words: the number of insertions, deletions, replacements and swaps of neighbours
/// (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Returns the expression of the mask language that has the meaning of `word`, a name in other systems: `causal` for
/// `tril`. Returns `None` if the name is unknown.
pub(crate) fn synonym(word: &str) -> Option<&'static str> {
    let word = if word.len() <= 32 { word.to_lowercase() } else { return None };
    Some(match word.as_str() {
        "all" | "true" | "bidirectional" | "dense_full" | "noop" | "everything" | "any" => "full",
        "false" | "empty" | "nothing" | "null" => "none",
        "tril" | "lower_triangular" | "autoregressive" | "lower" => "causal",
        "local" | "swa" | "local_attention" | "sliding_attention" => "sliding(W)",
        "band" | "banded" => "window(left=L, right=R)",
        "block" | "blocks" | "block_diagonal" | "chunked" => "chunk(C)",
        "dilated" | "strided" => "stride(S)",
        "prefix_lm" | "prefixlm" => "causal | prefix(n)",
        "pad" | "pad_mask" | "attention_mask" | "key_padding_mask" | "lengths" => "padding",
        "doc" | "segment" | "segments" | "packed" | "varlen" | "cu_seqlens" => "documents",
        "image" | "images" => "spans([a..b])",
        "natten" | "na1d" | "na2d" | "na3d" => "neighborhood(grid=[..], size=[..])",
        "array" | "mask" | "keep" | "bool" | "function" | "lambda" | "closure" | "mask_mod" => "dense(name)",
        "level" | "levels" => "clearance",
        "label" | "labels" => "keys(label=\"name\")",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_nothing_else() {
        let names = ["causal", "sliding", "chunk", "keys", "full"];
        assert_eq!(nearest("cuasal", names), Some("causal"));
        assert_eq!(nearest("Causal", names), Some("causal"));
        assert_eq!(nearest("slidng", names), Some("sliding"));
        assert_eq!(nearest("key", names), Some("keys"));
        assert_eq!(nearest("banana", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"causal".repeat(100_000), names), None);
    }
}
