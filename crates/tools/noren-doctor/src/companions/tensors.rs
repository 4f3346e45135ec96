//! Checks intermediate tensors given with the mask: pooled states and values.

use crate::companions::labels::Scene;
use crate::companions::table::Checked;
use crate::intent::held::Held;
use crate::intent::known::Companions;
use crate::intent::number;
use crate::read::context::Context;
use crate::read::words::Pooling;
use crate::read::words::counted;
use crate::report::wrong::{listed, of_rows};
use crate::report::{Certainty, Finding, Severity};
use noren_mask::bits::bit;
use std::collections::BTreeSet;

/// Names of arrays that hold hidden states of tokens.
pub(super) const STATES: &[&str] = &["hidden", "hidden_states", "last_hidden_state", "h"];
/// Names of arrays that hold pooled states: one vector for each batch row.
pub(super) const POOLED: &[&str] = &["pooled", "embedding", "embeddings", "sentence_embedding", "pooler_output"];
/// Names of arrays that hold the values (V) of attention.
pub(super) const VALUES: &[&str] = &["v", "values", "value", "value_states", "kv_values"];

/// Returns the number of tokens in the hidden states.
pub(crate) fn tokens(beside: &Companions<'_>) -> Option<usize> {
    beside.get(STATES).filter(|states| states.shape().len() == 3).map(|states| states.shape()[1])
}

/// A formula that pools the hidden states of a batch row, as (name, name of the correct formula, index of the cause in the
/// catalogue, how the states of tokens are combined, the tokens of a batch row). The index is `None` for a formula that includes no padding.
type Formula = (&'static str, &'static str, Option<usize>, How, fn(&Texts, usize) -> Vec<usize>);

enum How {
    Mean,
    /// The sum divided by the number of all tokens.
    PaddedMean,
    Max,
}

/// The non-padding tokens of each batch row, the number of all tokens of a row, and the lengths of the prompts.
struct Texts {
    real: Vec<Vec<usize>>,
    len: usize,
    prompts: Vec<i64>,
}

impl Texts {
    fn last(&self, b: usize) -> usize {
        self.real[b].last().copied().unwrap_or(self.len - 1)
    }

    fn prompt(&self, b: usize) -> usize {
        number(&self.prompts, b).max(0) as usize
    }

    /// Returns the non-padding tokens of the batch row that is `by` rows after row `b`.
    fn other(&self, b: usize, by: usize) -> Vec<usize> {
        self.real[(b + by) % self.real.len()].clone()
    }
}

const MEAN: &str = "mean of non-padding tokens";
const TEXT: &str = "mean of non-padding tokens after the prompt";
const FIRST: &str = "first non-padding token";
const LAST: &str = "last non-padding token";
const MAX: &str = "maximum of non-padding tokens";

/// The formulas in the order in which they are tried.
const FORMULAS: &[Formula] = &[
    ("mean of all tokens, padding included", MEAN, Some(0), How::Mean, |t, _| (0..t.len).collect()),
    ("sum of non-padding tokens divided by the padded length", MEAN, None, How::PaddedMean, |t, b| t.real[b].clone()),
    ("token at index 0", FIRST, Some(2), How::Mean, |_, _| vec![0]),
    ("token at index -1", LAST, Some(1), How::Mean, |t, _| vec![t.len - 1]),
    // In PyTorch, the index -1 is the last token.
    ("token at index `mask.sum() - 1`", LAST, Some(3), How::Mean, |t, b| vec![(t.real[b].len() + t.len - 1) % t.len]),
    ("token at index `mask.sum()`", LAST, None, How::Mean, |t, b| vec![t.real[b].len().min(t.len - 1)]),
    ("token before the last non-padding token", LAST, None, How::Mean, |t, b| vec![t.last(b).saturating_sub(1)]),
    ("maximum of all tokens, padding included", MAX, None, How::Max, |t, _| (0..t.len).collect()),
    ("mean of the tokens that are non-padding in batch row 0", MEAN, Some(4), How::Mean, |t, _| t.real[0].clone()),
    ("mean of the tokens that are non-padding in the next batch row", MEAN, Some(4), How::Mean, |t, b| t.other(b, 1)),
    ("mean of the tokens that are non-padding in the batch row before", MEAN, Some(4), How::Mean, |t, b| {
        t.other(b, t.real.len() - 1)
    }),
    (
        "mean of non-padding tokens from index prompt_len on, although padding is before the prompt",
        TEXT,
        None,
        How::Mean,
        |t, b| t.real[b].iter().copied().filter(|k| *k >= t.prompt(b)).collect(),
    ),
    (MEAN, MEAN, None, How::Mean, |t, b| t.real[b].clone()),
    (FIRST, FIRST, None, How::Mean, |t, b| vec![t.real[b].first().copied().unwrap_or(0)]),
    (LAST, LAST, None, How::Mean, |t, b| vec![t.last(b)]),
    (MAX, MAX, None, How::Max, |t, b| t.real[b].clone()),
    (TEXT, TEXT, None, How::Mean, |t, b| t.real[b].iter().copied().skip(t.prompt(b)).collect()),
];

/// Compares the given pooled states with those computed from the given hidden states. The pooled states are computed with the declared
/// pooling; without a declaration, the results of all correct formulas are accepted. If a known wrong formula gives the pooled states, the
/// finding names this formula. `scene` has the non-padding tokens.
pub(super) fn pooling(beside: &Companions<'_>, context: &Context, scene: &Scene<'_>) -> Option<Checked> {
    let ((states, hidden), (name, pooled)) = (beside.named(STATES)?, beside.named(POOLED)?);
    let is_real = |b: usize, k: usize| scene.real(b, k);
    let (&[batch, len, width], &[pooled_batch, pooled_width]) = (hidden.shape(), pooled.shape()) else { return None };
    if (batch, width) != (pooled_batch, pooled_width) || len == 0 {
        return None;
    }
    let normal = |v: Vec<f64>| -> Vec<f64> {
        let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-30);
        v.iter().map(|x| x / norm).collect()
    };
    let close = |a: &[f64], b: &[f64]| {
        let largest = b.iter().fold(1e-6f64, |m, x| m.max(x.abs()));
        a.iter().zip(b).all(|(x, y)| (x - y).abs() <= 2e-3 * largest)
    };
    let real = (0..batch).map(|b| (0..len).filter(|&k| is_real(b, k)).collect()).collect();
    let texts = Texts { real, len, prompts: context.prompt.clone() };
    let fits_row = |name: &str, b: usize| {
        let found: Vec<f64> = (0..width).map(|d| pooled.at(b * width + d)).collect();
        let Some((.., how, tokens)) = FORMULAS.iter().find(|formula| formula.0 == name) else { return false };
        let tokens = tokens(&texts, b);
        let of = |d: usize| {
            let states = tokens.iter().map(|&k| hidden.at((b * len + k) * width + d));
            match how {
                How::Mean => states.sum::<f64>() / tokens.len().max(1) as f64,
                How::PaddedMean => states.sum::<f64>() / len as f64,
                How::Max => states.fold(f64::NEG_INFINITY, f64::max),
            }
        };
        let made: Vec<f64> = (0..width).map(of).collect();
        close(&made, &found) || close(&normal(made), &found)
    };
    let fits = |name: &str| (0..batch).all(|b| fits_row(name, b));
    let right: &[&str] = match context.pooling {
        Some(Pooling::First) => &[FIRST],
        Some(Pooling::Last) => &[LAST],
        Some(Pooling::Max) => &[MAX],
        // A prompt may belong to the mean or not.
        Some(Pooling::Mean) if !context.prompt.is_empty() => &[TEXT, MEAN],
        Some(Pooling::Mean) => &[MEAN],
        Some(Pooling::Other) | None => &[MEAN, FIRST, LAST, MAX, TEXT],
    };
    let fitting = right.iter().find(|name| fits(name));
    let says = format!("`{name}` is the {} of `{states}`: {batch} rows compared", fitting.unwrap_or(&right[0]));
    let finding = match FORMULAS.iter().find(|(name, ..)| fits(name)) {
        Some((name, meant, cause, ..)) => {
            let meant = if let [declared] = right { declared } else { meant };
            let wrong: BTreeSet<usize> = (0..batch).filter(|&b| !fits_row(meant, b)).collect();
            let place = if wrong.len() < batch {
                format!(" (wrong in {})", listed("batch row", &wrong))
            } else {
                String::new()
            };
            let text = format!("the pooled state is the {name}{place}; the pooled state should be the {meant}");
            let finding = Finding::of("pooling_includes_padding", Certainty::Certain, text);
            // The code of a cause is wrong only on one side of the padding.
            let padded = |at: usize| (0..batch).any(|b| !is_real(b, at));
            match cause.filter(|cause| match cause {
                1 => padded(len - 1),
                2 | 3 => padded(0),
                _ => true,
            }) {
                Some(cause) => finding.because(cause),
                None => finding,
            }
        }
        None if let Some(text) = other_rows(right, batch, &fits_row).filter(|_| right.len() == 1) => {
            Finding::of("pooling_includes_padding", Certainty::Certain, text)
        }
        None => Finding::of(
            "pooling_includes_padding",
            Certainty::Possible,
            "no known formula computes the pooled state from the hidden states",
        )
        .note(),
    };
    let mut open = Vec::from_iter(scene.unknown_padding());
    if context.pooling.is_none() {
        open.push("the pooling: declare pooling".to_string());
    }
    let (findings, says) = if fitting.is_some() { (Vec::new(), says) } else { (vec![finding], String::new()) };
    Some(Checked { arrays: vec![states.to_string(), name.to_string()], says, findings, open })
}

/// If the formula `right` gives the pooled states of some batch rows and wrong formulas those of all others, returns a sentence with
/// these rows.
fn other_rows(right: &[&str], batch: usize, fits: &dyn Fn(&str, usize) -> bool) -> Option<String> {
    let declared = right.first()?;
    let wrong: Vec<usize> = (0..batch).filter(|&b| !fits(declared, b)).collect();
    let name = |b: usize| FORMULAS.iter().map(|(name, ..)| *name).find(|name| name != declared && fits(name, b));
    let names = wrong.iter().map(|&b| name(b)).collect::<Option<Vec<_>>>()?;
    let of = |name: &&str| {
        let rows = wrong.iter().zip(&names).filter(|(_, other)| *other == name).map(|(b, _)| *b);
        let rows: BTreeSet<usize> = rows.collect();
        let states = if rows.len() > 1 { "states" } else { "state" };
        format!(
            "the pooled {states} of {} {} the {name}",
            listed("batch row", &rows),
            if rows.len() > 1 { "are" } else { "is" }
        )
    };
    let formulas: BTreeSet<&str> = names.iter().copied().collect();
    let parts: Vec<String> = formulas.iter().map(of).collect();
    (!parts.is_empty()).then(|| {
        let n = wrong.len();
        format!(
            "{}; it should be the {declared}, as in the other batch rows ({n} of {batch} rows are wrong)",
            parts.join(", ")
        )
    })
}

/// Checks that the value of a key that no query may read is not NaN. A dense product of probabilities and values is then NaN, because 0 * NaN is
/// NaN.
pub(super) fn poisoned_values(beside: &Companions<'_>, verdict: &Held) -> Option<Checked> {
    let (name, values) = beside.named(VALUES)?;
    let [batch, heads, q_len, kv_len] = verdict.keep.dims();
    let (rows, width) = match *values.shape() {
        [k, d] if k == kv_len => (1, d),
        [b, k, d] if k == kv_len => (b, d),
        [b, h, k, d] if k == kv_len => (b * h, d),
        _ => return None,
    };
    let per_batch = (rows / batch).max(1);
    // A padding query may read a key whose value is NaN, because the output of a padding query reaches no other token.
    let real = |b: usize, i: usize| verdict.cares(b, i);
    let read = |b: usize, k: usize| {
        (0..q_len).filter(|&i| real(b, i)).any(|i| (0..heads).any(|h| bit(verdict.keep.row(b, h, i), k)))
    };
    let mut wrong = vec![BTreeSet::new(); batch];
    for (r, k) in (0..rows).flat_map(|r| (0..kv_len).map(move |k| (r, k))) {
        let (b, nan) =
            ((r / per_batch).min(batch - 1), (0..width).any(|d| values.at((r * kv_len + k) * width + d).is_nan()));
        if nan && !read(b, k) {
            wrong[b].insert(k);
        }
    }
    let text = |keys: String| {
        let text = format!(
            "the values of {keys} are NaN and no non-padding query may read them: a dense product of probabilities and V still becomes NaN (0 * NaN)"
        );
        Finding::of("NaN_through_masked_KV", Certainty::Certain, text).severity(Severity::Warning)
    };
    let says = format!("`{name}` has no NaN in hidden keys: {} compared", counted(kv_len as u64, "key"));
    let findings = of_rows("key", &wrong).map(text).into_iter().collect();
    Some(Checked { arrays: vec![name.to_string()], says, findings, open: Vec::new() })
}
