//! Compares attention probabilities with the cells of the mask, or with the padding of their keys.

use crate::companions::table::{Checked, tokens_of, used};
use crate::intent::Intent;
use crate::intent::held::Held;
use crate::intent::known::{Companions, Known, Sizes, declared};
use crate::read::context::Context;
use crate::read::kinds::Role;
use crate::report::wrong::{listed, of_rows};
use crate::report::{Certainty, Finding};
use noren_mask::Keep;
use noren_mask::bits::bit;
use std::collections::BTreeSet;

/// Names of arrays that hold attention probabilities.
pub(super) const PROBABILITIES: &[&str] =
    &["probabilities", "probs", "attn_probs", "attention_probs", "attention_weights", "attn_weights", "weights", "p"];

/// The class of probabilities above 0 in cells that a mask hides.
const IGNORED: &str = "mask_ignored_by_backend";

/// The probabilities of a query that has hidden and visible keys.
struct Row {
    /// True if a hidden key has a probability above 0.
    leaks: bool,
    /// True if all hidden keys have the same probability.
    even: bool,
    hidden: usize,
    sum: f64,
}

/// The cells with which probabilities are compared.
struct Cells {
    held: Held,
    /// The class of probabilities above 0 in hidden cells.
    class: &'static str,
    /// If padding hides the cells, and not a mask, the arrays that give it.
    padding: Vec<String>,
}

/// Returns a finding if the given attention probabilities are above 0 in hidden cells. Also returns a finding if the
/// probabilities of a query sum to less than 1 although the model has no sinks. The finding names the cause: scores
/// multiplied by the mask, an ignored mask, or a mask applied after the softmax. Without a mask `verdict` of the same keys, the hidden
/// cells are those of padding keys.
pub(crate) fn probabilities(beside: &Companions<'_>, context: &Context, verdict: Option<&Held>) -> Option<Checked> {
    let (name, given) = beside.named(PROBABILITIES)?;
    let [first @ .., q_len, kv_len] = given.shape() else { return None };
    let rows = verdict.map(|held| held.keep.dims()[0]).or(declared(beside, context).0);
    let batch = rows.or(first.first().copied()).unwrap_or(1).max(1);
    let (batch, heads) = match *first {
        [] if batch == 1 => (1, 1),
        [n] if n.is_multiple_of(batch) => (batch, n / batch),
        [n, heads] if n == batch || batch == 1 => (n, heads),
        _ => return None,
    };
    let sizes = Sizes { batch, q_len: *q_len, kv_len: *kv_len };
    let cells = verdict.and_then(|held| of_mask(held, beside, context, sizes));
    let cells = cells.filter(|cells| heads == 1 || [1, heads].contains(&cells.heads()));
    let cells = cells.or_else(|| of_padding(beside, context, sizes)).filter(|_| !given.is_empty())?;
    let (mut rows, mut keys, mut queries) = (Vec::new(), vec![BTreeSet::new(); batch], BTreeSet::new());
    for (b, h, i) in (0..batch * heads * q_len).map(|at| (at / (heads * q_len), at / q_len % heads, at % q_len)) {
        // The mean of all heads is 0 where every head hides the key.
        let of_heads = if heads == 1 { 0..cells.heads() } else { h..h + 1 };
        let shown = |k: usize| of_heads.clone().any(|h| cells.show([b, h, i, k]));
        let p = |k: usize| given.at(((b * heads + h) * q_len + i) * kv_len + k);
        let hidden: Vec<usize> = (0..*kv_len).filter(|&k| cells.held.cares(b, i) && !shown(k)).collect();
        if hidden.is_empty() || hidden.len() == *kv_len {
            continue;
        }
        let (one, leaking) = (p(hidden[0]), hidden.iter().filter(|&&k| p(k) > 1e-6));
        let leaking: BTreeSet<usize> = leaking.copied().collect();
        queries.extend((!leaking.is_empty()).then_some(i));
        rows.push(Row {
            leaks: !leaking.is_empty(),
            even: hidden.iter().all(|&k| (p(k) - one).abs() <= 1e-4 * one.abs().max(1e-6)),
            hidden: hidden.len(),
            sum: (0..*kv_len).map(p).sum(),
        });
        keys[b].extend(leaking);
    }
    let says = match rows.len() {
        0 => format!("`{name}` have no hidden cell"),
        n => format!("`{name}` give no probability to {}: {n} rows compared", cells.hidden()),
    };
    let place = || format!("{}, {}", listed("query", &queries), of_rows("key", &keys).unwrap_or_default());
    let findings = cells.finding(&rows, place, context).into_iter().collect();
    let mut arrays = cells.padding;
    arrays.push(name.to_string());
    Some(Checked { arrays, says, findings, open: Vec::new() })
}

/// Returns the cells of the mask `held`; `None` if it has other queries or keys. A mask whose queries all read the same keys holds for
/// any queries.
fn of_mask(held: &Held, beside: &Companions<'_>, context: &Context, sizes: Sizes) -> Option<Cells> {
    let [batch, heads, q_len, kv_len] = held.keep.dims();
    let mut pairs = (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h)));
    let equal = |(b, h)| (1..q_len).all(|i| held.keep.row(b, h, i) == held.keep.row(b, h, 0));
    // One row of a causal mask belongs to one query.
    let one_query = q_len == 1 && context.kind.is_some_and(|kind| kind.causal);
    let held = match () {
        () if kv_len != sizes.kv_len => return None,
        () if q_len == sizes.q_len => held.clone(),
        () if one_query || !pairs.all(equal) => return None,
        () => Held { intent: None, real: Known::new(beside, &of_encoder(context), sizes).q_valid, ..held.clone() },
    };
    Some(Cells { held, class: IGNORED, padding: Vec::new() })
}

/// Returns the cells that the padding of the keys hides; `None` if no array gives it.
fn of_padding(beside: &Companions<'_>, context: &Context, sizes: Sizes) -> Option<Cells> {
    let padded = |context: &Context| {
        let intent = Intent { segments: None, ..tokens_of(beside, context, sizes) };
        let class = if context.role == Role::Cross { "cross_attention_mask" } else { "padding_keys_visible" };
        let held = || Held { keep: intent.build(), intent: Some(intent.clone()), real: None, given: None };
        let cells = || Cells { held: held(), class, padding: used(beside, context, sizes) };
        intent.valid.is_some().then(cells)
    };
    padded(context).or_else(|| padded(&of_encoder(context)).filter(|_| sizes.q_len != sizes.kv_len))
}

/// Returns the declarations with the keys of an encoder.
fn of_encoder(context: &Context) -> Context {
    Context { role: Role::Cross, ..context.clone() }
}

impl Cells {
    fn masks(&self) -> impl Iterator<Item = &Keep> {
        self.held.given.iter().chain([&self.held.keep])
    }

    fn heads(&self) -> usize {
        self.masks().map(|keep| keep.dims()[1]).max().unwrap_or(1)
    }

    /// Returns true if the cell is visible in the given or in the correct mask.
    fn show(&self, [b, h, i, k]: [usize; 4]) -> bool {
        let in_mask = |keep: &Keep| {
            let [batch, heads, q_len, _] = keep.dims();
            bit(keep.row(b.min(batch - 1), h.min(heads - 1), i.min(q_len - 1)), k)
        };
        self.masks().any(in_mask)
    }

    fn hidden(&self) -> &'static str {
        if self.class == IGNORED { "hidden cells" } else { "padding keys" }
    }

    /// Returns the finding on the probabilities `rows`. `place` has the queries and hidden keys with probabilities above 0.
    fn finding(&self, rows: &[Row], place: impl Fn() -> String, context: &Context) -> Option<Finding> {
        let leaking = rows.iter().filter(|row| row.leaks).count();
        let multiplied = |row: &Row| row.leaks && row.even && (row.sum - 1.0).abs() < 2e-3;
        let (short, all) = (rows.iter().filter(|row| row.sum < 0.998).count(), rows.len());
        let (class, certainty, says) = match () {
            () if leaking == 0 && (short == 0 || context.sinks > 0 || context.slot.has_sinks()) => return None,
            () if leaking == 0 => (
                "mask_after_softmax",
                Certainty::Likely,
                format!(
                    "{} have probability 0, but in {short} of {all} rows the sum of all probabilities is below 1: the mask was applied after the softmax, and the probabilities were not normalised again",
                    self.hidden()
                ),
            ),
            () if rows.iter().all(multiplied) && rows.iter().any(|row| row.hidden > 1) => (
                "multiplied_before_softmax",
                Certainty::Likely,
                format!(
                    "all {} of a row have the same probability, the probability of a score of 0: scores were multiplied by the mask before the softmax",
                    self.hidden()
                ),
            ),
            () => {
                let ignored = "this backend ignored the mask";
                let why = if self.class == IGNORED { ignored } else { "the attention did not get this padding" };
                let (hidden, place) = (self.hidden(), place());
                let says = format!("{leaking} of {all} rows give probability to {hidden} ({place}): {why}");
                (self.class, Certainty::Certain, says)
            }
        };
        Some(Finding::of(class, certainty, says))
    }
}
