//! Finds the known mask (such as a causal mask or a window) that an array without declared kind resembles, and the
//! number of differing cells.

use crate::candidates::expect::{Hypothesis, assumed_padding};
use crate::candidates::target::Target;
use crate::intent::Intent;
use crate::intent::families::{families, with_documents};
use noren_mask::Keep;
use noren_mask::bits::{count, ends};

/// Maximum number of known masks (such as windows) from which one search for mistakes starts.
const MOST_FAMILIES: usize = 8;
/// The cost of the hypothesis that the nearest known mask is the intended mask; nearest means that the fewest cells
/// differ. The cost increases by 0.01 for each next known mask. A hypothesis with a lower cost is more likely.
const OF_A_FAMILY: f64 = 0.15;

/// A known mask, such as a causal mask, and the number of cells in which the given mask differs from the known mask.
pub(crate) struct Resemblance {
    pub(crate) intent: Intent,
    /// A description of the known mask, for reports.
    pub(crate) name: String,
    /// Number of cells in which the known mask and the given mask differ, in rows of non-padding queries.
    pub(crate) off: u64,
}

/// Returns the known mask that differs from `given` in the fewest cells. Sizes of known masks, such as a window width,
/// are read from most rows of the array, so a few wrong cells do not change them.
pub(crate) fn nearest(given: &Keep, hypotheses: &[Hypothesis]) -> Resemblance {
    let target = Target::new(given);
    let mut best: Option<Resemblance> = None;
    for base in hypotheses.iter().flat_map(|h| std::iter::once(h.intent.clone()).chain(padded(given, &h.intent))) {
        for intent in families(given, &base).into_iter().chain(with_documents(given, &base)) {
            let off = target.wrong(&intent).count;
            if best.as_ref().is_none_or(|b| off < b.off) {
                best = Some(Resemblance { name: in_words(&intent), intent, off });
            }
        }
    }
    best.unwrap_or_else(|| {
        let [batch, _, q_len, kv_len] = given.dims();
        let intent = Intent::new(batch, q_len, kv_len, vec![kv_len as i64 - q_len as i64]);
        let off = target.wrong(&intent).count;
        Resemblance { name: in_words(&intent), intent, off }
    })
}

/// Returns the first known mask that equals `given` in all rows of non-padding queries; `None` if there is no such
/// mask. Masks with assumed padding are compared last.
pub(crate) fn exact(given: &Keep, hypotheses: &[Hypothesis]) -> Option<Intent> {
    let target = Target::new(given);
    let bases = hypotheses.iter().map(|h| h.intent.clone());
    let assumed = hypotheses.iter().flat_map(|h| padded(given, &h.intent));
    bases.chain(assumed).flat_map(|base| families(given, &base)).find(|intent| target.is(intent))
}

/// Returns `intent` with the padding that `given` may show; nothing if `intent` has padding.
fn padded<'a>(given: &'a Keep, intent: &'a Intent) -> impl Iterator<Item = Intent> + 'a {
    assumed_padding(given, intent, (false, false)).filter(|_| intent.valid.is_none())
}

/// Returns at most `MOST_FAMILIES` known masks from which a search for mistakes may start. The masks with the fewest
/// differing cells are first. Masks of `hypotheses` are left out.
pub(crate) fn near(given: &Keep, hypotheses: &[Hypothesis]) -> Vec<Hypothesis> {
    let target = Target::new(given);
    let mut out: Vec<(u64, Hypothesis)> = Vec::new();
    let mut made: Vec<Keep> = hypotheses.iter().map(|h| h.intent.build()).collect();
    for hypothesis in hypotheses {
        for intent in families(given, &hypothesis.intent) {
            let built = intent.build();
            if made.contains(&built) {
                continue;
            }
            let off = target.wrong(&intent).count;
            out.push((off, Hypothesis { intent, doubt: 0.0, open: hypothesis.open.clone() }));
            made.push(built);
        }
    }
    out.sort_by_key(|(off, _)| *off);
    out.truncate(MOST_FAMILIES);
    let doubt = |n: usize| OF_A_FAMILY + 0.01 * n as f64;
    out.into_iter().enumerate().map(|(n, (_, h))| Hypothesis { doubt: doubt(n), ..h }).collect()
}

/// Describes an intended mask: its kind, its sizes and its redactions.
pub(crate) fn in_words(intent: &Intent) -> String {
    let mut parts = Vec::new();
    parts.push(match (intent.causal, intent.left, intent.right) {
        _ if intent.tree.is_some() => "a tree of draft tokens".to_string(),
        (Some(0), None, _) => "causal".to_string(),
        (Some(by), None, _) => format!("causal, shifted by {by:+} keys"),
        (Some(_), Some(left), _) => format!("causal, a window of {} keys including the query itself", left + 1),
        (None, Some(left), Some(right)) => format!("a window of {left} keys before and {right} after each query"),
        (None, Some(left), None) => format!("a window of {left} keys before each query"),
        (None, None, _) => "every query reads every key".to_string(),
    });
    if let Some((size, _)) = &intent.chunk {
        parts.push(format!("chunks of {size} keys"));
    }
    if let Some(lengths) = &intent.prefix {
        parts.push(format!("a prefix of {} keys that every query reads", listed(lengths)));
    }
    if intent.blocks.is_some() {
        parts.push("blocks whose tokens all read each other".to_string());
    }
    if intent.sinks > 0 {
        parts.push(format!("the first {} keys visible to every query", intent.sinks));
    }
    if intent.segments.is_some() {
        parts.push("documents apart".to_string());
    }
    if intent.k_positions.is_some() {
        parts.push("the position of each key is its declared position, not its index in the cache".to_string());
    }
    if intent.past.iter().any(|past| *past != 0) {
        parts.push(format!("query 0 at position {}", listed(&intent.past)));
    }
    if !intent.redactions.is_empty() {
        parts.push(format!("{} redaction(s)", intent.redactions.len()));
    }
    parts.push(if intent.valid.is_some() { "padding hidden" } else { "no padding" }.to_string());
    parts.join(", ")
}

/// Returns the first four numbers of a list as text; the text ends with `...` if the list is longer.
fn listed(numbers: &[i64]) -> String {
    let shown: Vec<String> = numbers.iter().take(4).map(i64::to_string).collect();
    let more = if numbers.len() > 4 { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Describes the padding that rows of `kv_len` keys show: its side, and the number of tokens of each row.
pub(crate) fn padding_in_words(rows: &[Vec<u64>], kv_len: usize) -> String {
    let all = |test: &dyn Fn(usize, usize, u64) -> bool| {
        rows.iter().all(|row| ends(row).is_none_or(|(first, last)| test(first, last, count(row))))
    };
    let side = match () {
        () if rows.iter().all(|row| count(row) == kv_len as u64) => return "no padding".to_string(),
        () if all(&|first, last, n| first == 0 && n == last as u64 + 1) => "padding on the right",
        () if all(&|first, last, n| last + 1 == kv_len && n == (kv_len - first) as u64) => "padding on the left",
        () => "hidden keys between visible keys",
    };
    let counts: Vec<i64> = rows.iter().map(|row| count(row) as i64).collect();
    format!("{side}, {} visible keys", listed(&counts))
}

/// Returns the rows of `keep` for head 0, one after another.
pub(crate) fn rows_of(keep: &Keep) -> Vec<Vec<u64>> {
    let [batch, _, q_len, _] = keep.dims();
    (0..batch * q_len).map(|n| keep.row(n / q_len, 0, n % q_len).to_vec()).collect()
}
