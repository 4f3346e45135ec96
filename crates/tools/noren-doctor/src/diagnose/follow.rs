//! Checks that apply to correct and faulty masks: query rows that read no key, paths around a redaction over several
//! layers, numbers in hidden cells that are not low enough for the possible scores, and the memory that a mask array takes.

use crate::array::decode::Fill;
use crate::diagnose::Case;
use crate::intent::known::{Companions, SCORES};
use crate::intent::{Intent, row};
use crate::report::wrong::of_rows;
use crate::report::{Certainty, Finding, Report, SHOWN, Severity};
use noren_mask::Keep;
use noren_mask::bits::{bit, set_bit};

/// Minimum size in bytes of an array that gets a note about its memory.
const LARGE: u64 = 16 << 20;

impl Case<'_> {
    /// Reports query rows that read no key. The output of such a query depends on the number in hidden cells (-inf or a
    /// finite number). The row of a query that is padding, or that may be padding, is a note, except for declared padding
    /// with rows of -inf. `intent` is the intended mask, whose rows may be empty too.
    pub(crate) fn empty_rows(&self, intent: Option<&Intent>, report: &mut Report) {
        let own = self.decoded.keep.expand(self.dims());
        // Numbers that hide no cell leave no row without keys.
        let effective = self.as_read(&own);
        let [batch, heads, q_len, kv_len] = own.dims();
        let declared = self.known.q_valid.clone();
        let rows = intent.map_or_else(|| declared.clone(), |intent| intent.q_valid.clone());
        // Without known padding, queries at one end of a row whose own keys no query reads may be padding.
        let read = |b: usize, i: usize| (0..heads).any(|h| (0..q_len).any(|other| bit(own.row(b, h, other), i)));
        let plain = |b: usize| (1..q_len).filter(|&i| read(b, i) != read(b, i - 1)).count() < 2;
        let unread = |b: usize, i: usize| q_len == kv_len && !read(b, i) && plain(b);
        let (mut real, mut padding) = (Vec::new(), Vec::new());
        let mut meant = 0;
        let mut words = intent.map(|i| vec![0; i.words()]).unwrap_or_default();
        for b in 0..batch {
            for i in 0..q_len {
                let empty =
                    (0..heads).find(|&h| own.row(b, h, i).iter().chain(effective.row(b, h, i)).all(|w| *w == 0));
                let Some(h) = empty else { continue };
                let cares = match &rows {
                    Some(rows) => row(rows, b).get(i).copied().unwrap_or(true),
                    None => !unread(b, i),
                };
                if let Some(intent) = intent.filter(|_| cares) {
                    intent.fill(b, i, &mut words);
                    meant += usize::from(words.iter().all(|w| *w == 0) && self.known.valid.is_some());
                }
                if cares { &mut real } else { &mut padding }.push([b, h, i, 0]);
            }
        }
        // The search may have reported these rows.
        let reported = report.findings.iter().any(|f| f.class == "fully_masked_row");
        let becomes = match self.decoded.fill {
            Fill::Infinite => "-inf in a whole row gives NaN, which spreads through the values into the next layer",
            Fill::Mixed => {
                "a row of -inf gives NaN, and a row that also holds the finite fill an average over the keys with this fill"
            }
            Fill::Finite => {
                "with a finite fill in every cell of a row, the output is an average over all keys, padding and later keys included"
            }
            Fill::Logical => "the output depends on the backend: 0, NaN, or an even average over all keys",
        };
        let place = |rows: &[[usize; 4]]| {
            let of = |b: usize| rows.iter().filter(|row| row[0] == b).map(|row| row[2]).collect();
            of_rows("query", &(0..batch).map(of).collect::<Vec<_>>()).unwrap_or_default()
        };
        let mut found = |rows: &[[usize; 4]], says: String, severity: Severity| {
            let finding = Finding::of("fully_masked_row", Certainty::Certain, says).severity(severity);
            report.findings.push(Finding { first_cells: rows.iter().copied().take(SHOWN).collect(), ..finding });
        };
        if real.len() > meant && !reported {
            let text =
                format!("{} row(s) of non-padding queries can read no key ({}): {becomes}", real.len(), place(&real));
            found(&real, text, Severity::Error);
        }
        if !padding.is_empty() {
            let harmful = self.decoded.fill == Fill::Infinite && declared.is_some() && !self.alignment.keys_only;
            let severity = if harmful { Severity::Error } else { Severity::Note };
            let whose = if declared.is_some() { "padding queries" } else { "queries that look like padding" };
            let text = format!(
                "{} row(s) of {whose} can read no key ({}): {becomes}; let each padding query read its own key",
                padding.len(),
                place(&padding)
            );
            found(&padding, text, severity);
        }
    }

    /// Returns the correct cells `cells` with a key in each row of a padding query that would be -inf in every cell: the keys that
    /// `intent` allows, or else the query's own key.
    pub(crate) fn settled(&self, mut cells: Keep, intent: &Intent) -> Keep {
        let [batch, heads, q_len, kv_len] = cells.dims();
        if !self.decoded.fill.is_infinite() || self.alignment.keys_only {
            return cells;
        }
        for (b, i) in (0..batch).flat_map(|b| (0..q_len).map(move |i| (b, i))).filter(|&(b, i)| !intent.cares(b, i)) {
            for h in 0..heads {
                let row = cells.row_mut(b, h, i);
                if row.iter().all(|w| *w == 0) {
                    intent.fill(b, i, row);
                }
                let own = usize::try_from(intent.slot(b, i)).ok().filter(|own| *own < kv_len);
                if let (Some(own), true) = (own, row.iter().all(|w| *w == 0)) {
                    set_bit(row, own);
                }
            }
        }
        cells
    }

    /// Reports each redacted key that still influences a query from which it is hidden, over several layers and through
    /// other queries. In `fixed`, such a key is then hidden from all queries except its own.
    pub(crate) fn layered_leaks(&self, keep: &Keep, fixed: &mut Keep, report: &mut Report) {
        let layers = self.context.layers.unwrap_or(2);
        let [batch, heads, q_len, kv_len] = keep.dims();
        if layers < 2 || q_len != kv_len {
            return;
        }
        for redaction in self.context.redactions.iter().filter(|r| !r.queries.is_empty()) {
            for b in (0..batch).filter(|b| redaction.batch.is_empty() || redaction.batch.contains(b)) {
                for &key in redaction.keys.iter().filter(|&&k| k < kv_len) {
                    let Some(path) = shortest_path(keep, b, key, &redaction.queries, layers) else { continue };
                    let steps: Vec<String> = path.iter().map(usize::to_string).collect();
                    let text = format!(
                        "key {key} is hidden from query {}, but influences this query over {} layers: {}",
                        path.last().copied().unwrap_or(0),
                        path.len() - 1,
                        steps.join(" -> ")
                    );
                    report.findings.push(Finding::of("multi_hop_leak", Certainty::Certain, text));
                    for h in 0..heads {
                        for q in (0..q_len).filter(|&q| q != key) {
                            fixed.row_mut(b, h, q)[key / 64] &= !(1 << (key % 64));
                        }
                    }
                }
            }
        }
    }

    /// Checks two conditions: the number in hidden cells hides them at every possible score, and the sum of this number
    /// and a score does not overflow in float16. Returns `None` if both are true, or if the maximum score or the number
    /// is unknown.
    pub(crate) fn against_scores(&self, beside: &Companions<'_>) -> Option<Finding> {
        let measured = || {
            let scores = beside.get(SCORES)?;
            Some((0..scores.len()).map(|i| scores.at(i).abs()).filter(|x| x.is_finite()).fold(0.0, f64::max))
        };
        let bound = self.context.score_bound.or_else(measured)?;
        let fill = self.decoded.weakest?;
        let compute = self.context.compute_dtype.unwrap_or(self.mask.dtype());
        let needed = -(2.0 * bound + 40.0);
        match () {
            () if fill > needed => Some(Finding::of(
                "fill_value_wrong",
                Certainty::Certain,
                format!("hidden cells hold {fill}, but scores reach {bound:.1}: to hide a cell reliably, use {needed:.0} or less"),
            )),
            () if compute == crate::Dtype::F16 && fill < -65504.0 + bound => Some(
                Finding::of(
                    "double_mask_overflow",
                    Certainty::Likely,
                    format!("in float16 the fill {fill} and a score of -{bound:.1} have a sum below -65504: the sum is -inf, and a row without any key becomes NaN"),
                )
                .severity(Severity::Warning),
            ),
            () => None,
        }
    }

    /// Returns a note about the memory of a large array: if all heads have equal cells, the note states this; otherwise it states
    /// that a mask expression takes only a few bytes. Returns `None` for a small array and for an array with a bias.
    pub(crate) fn memory(&self) -> Option<Finding> {
        let bytes = self.mask.bytes();
        let [batch, heads, ..] = self.alignment.dims;
        if bytes < LARGE || self.decoded.bias {
            return None;
        }
        let keep = &self.decoded.keep;
        let repeated = if heads > 1 && keep.heads_equal() { heads } else { 1 };
        let text = match repeated {
            1 => format!(
                "the array takes {} of memory for {batch} x {heads} matrices of cells (batch rows x heads): a mask expression takes only a few bytes",
                noren_mask::short_bytes(bytes.into())
            ),
            n => format!(
                "the array takes {} of memory and holds {n} equal matrices of cells: store one matrix and broadcast it, or use a mask expression",
                noren_mask::short_bytes(bytes.into())
            ),
        };
        Some(Finding::of("memory_quadratic", Certainty::Certain, text).severity(Severity::Note))
    }
}

/// Returns the shortest path on which `key` influences one of `queries` in batch row `b`, over at most `layers` layers,
/// as tokens from the key to the query; `None` if no such path exists.
fn shortest_path(keep: &Keep, b: usize, key: usize, queries: &[usize], layers: usize) -> Option<Vec<usize>> {
    let [_, heads, q_len, _] = keep.dims();
    let reads = |q: usize, k: usize| (0..heads).any(|h| bit(keep.row(b, h, q), k));
    let mut from: Vec<Option<usize>> = vec![None; q_len];
    let mut front = vec![key];
    for _ in 0..layers {
        let mut next = Vec::new();
        let unreached: Vec<usize> = (0..q_len).filter(|&q| q != key && from[q].is_none()).collect();
        for q in unreached {
            if let Some(&via) = front.iter().find(|&&k| reads(q, k)) {
                from[q] = Some(via);
                next.push(q);
            }
        }
        if let Some(&hit) = next.iter().find(|q| queries.contains(q)) {
            let mut path = vec![hit];
            while let Some(via) = from[path[path.len() - 1]] {
                path.push(via);
            }
            path.reverse();
            return Some(path);
        }
        front = next;
    }
    None
}
