//! What is wrong beside the mask: positions, labels, pooled states, probabilities, packed lengths.

use super::context::Context;
use super::diagnose::Held;
use super::intent::{Intent, row};
use super::known::{Companions, IDS, POSITIONS};
use super::report::{Certainty, Finding, Severity};
use super::values::Values;
use super::words::Pooling;
use crate::keep::{Keep, bit};

const LABELS: &[&str] = &["labels", "targets", "target_ids_shifted"];
const PROBABILITIES: &[&str] =
    &["probabilities", "probs", "attn_probs", "attention_probs", "attention_weights", "attn_weights", "weights", "p"];
const STATES: &[&str] = &["hidden", "hidden_states", "last_hidden_state", "h"];
const POOLED: &[&str] = &["pooled", "embedding", "embeddings", "sentence_embedding", "pooler_output"];
const VALUES: &[&str] = &["v", "values", "value", "value_states", "kv_values"];

/// Names of further arrays that are read here.
pub(super) const NAMES: &[&str] = &[
    "labels",
    "targets",
    "target_ids_shifted",
    "probabilities",
    "probs",
    "attn_probs",
    "attention_probs",
    "attention_weights",
    "attn_weights",
    "weights",
    "p",
    "hidden",
    "hidden_states",
    "last_hidden_state",
    "h",
    "pooled",
    "embedding",
    "embeddings",
    "sentence_embedding",
    "pooler_output",
    "v",
    "values",
    "value",
    "value_states",
    "kv_values",
    "cu_seqlens",
    "cu_seqlens_q",
    "cu_seqlens_k",
    "cu_seq_lens",
    "max_seqlen",
    "max_seqlen_q",
    "kv_seq_ids",
    "slot_seq_ids",
    "slot_owners",
    "kv_owners",
    "key_seq_ids",
    "query_seq_ids",
    "q_seq_ids",
    "query_owners",
    "completion_ids",
    "completion_mask",
    "response_mask",
    "loss_mask",
    "action_mask",
];

/// Looks at every array beside the mask.
pub(crate) fn look(beside: &Companions<'_>, context: &Context, verdict: Option<&Held>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let intent = verdict.and_then(|v| v.intent.as_ref());
    findings.extend(padding_side(beside, context, intent));
    findings.extend(positions(beside, context, intent));
    findings.extend(packed_lengths(beside, context, verdict));
    findings.extend(flag(context));
    if let Some(verdict) = verdict {
        findings.extend(owners(beside, verdict));
    }
    let scene = Scene::new(beside, context, intent);
    if let Some(labels) = beside.rows(LABELS) {
        findings.extend(scene.labels(&labels));
    }
    findings.extend(scene.completion(beside));
    findings.extend(pooling(beside, context, &scene));
    if let Some(verdict) = verdict {
        findings.extend(probabilities(beside, context, verdict));
        findings.extend(poisoned_values(beside, verdict));
    }
    findings
}

fn error(class: &'static str, certainty: Certainty, says: impl Into<String>) -> Finding {
    Finding::of(class, certainty, says)
}

/// Padding at the end that generation continues from, or at another end than declared.
fn padding_side(beside: &Companions<'_>, context: &Context, intent: Option<&Intent>) -> Option<Finding> {
    let valid = intent?.valid.as_ref()?;
    let kv_len = intent?.kv_len;
    let padded = |b: &Vec<u64>, k: usize| !bit(b, k);
    let at_end = valid.iter().position(|r| padded(r, kv_len - 1))?;
    let declared_left = context.side == Some(crate::Side::Left);
    beside.get(IDS)?;
    let text = match () {
        () if context.generates => format!(
            "row {at_end} is padded on the right and the model continues the text: the last logits are those of padding"
        ),
        () if declared_left && valid.iter().all(|r| !padded(r, 0)) => {
            format!("left padding is declared, but row {at_end} is padded on the right")
        }
        () => return None,
    };
    Some(error("padding_side", Certainty::Likely, text))
}

/// Positions must count the real tokens of each document from 0, up to a shift that relative encodings do not see.
fn positions(beside: &Companions<'_>, context: &Context, intent: Option<&Intent>) -> Option<Finding> {
    let intent = intent?;
    let given = beside.get(POSITIONS).filter(|v| v.shape().len() <= 2)?.rows()?;
    if intent.k_positions.is_some() || intent.tree.is_some() || given.len() > intent.batch {
        return None;
    }
    let width = given[0].len();
    let slot0 = match width {
        w if w == intent.kv_len => 0,
        w if w == intent.q_len => super::intent::number(&intent.past, 0).max(0) as usize,
        _ => return None,
    };
    let (mut shifted, mut wrong) = (None, None);
    // By how much each text is shifted, and the slot in which it begins.
    let mut starts = Vec::new();
    for (b, row_given) in given.iter().enumerate() {
        let real = |k: usize| intent.valid.as_ref().is_none_or(|v| bit(row(v, b), k));
        let segment = |k: usize| intent.segments.as_ref().and_then(|g| row(&g.ids, b).get(k)).copied().unwrap_or(1);
        let (mut next, mut last, mut shift) = (0i64, None, None);
        for k in 0..(slot0 + width).min(intent.kv_len) {
            if !real(k) || segment(k) == 0 {
                continue;
            }
            if last != Some(segment(k)) {
                (next, last, shift) = (0, Some(segment(k)), None);
            }
            if k >= slot0 {
                let by = row_given[k - slot0] - next;
                if shift.is_none() {
                    starts.push((by, k as i64 - next));
                }
                if *shift.get_or_insert(by) != by {
                    wrong.get_or_insert((b, k, row_given[k - slot0], next));
                } else if by != 0 {
                    shifted.get_or_insert((b, k, row_given[k - slot0], next));
                }
            }
            next += 1;
        }
    }
    let relative = context.position_encoding.as_deref().is_some_and(super::words::counts_distances);
    let at = |(b, k, is, should): (usize, usize, i64, i64)| {
        format!("token {k} of batch row {b} has position {is} where its text has {should}")
    };
    // Every text counted from the same number, whatever slot it begins in, is a convention (some models begin with 2).
    let convention = starts.iter().all(|s| s.0 == starts[0].0) && starts.iter().any(|(by, slot)| by != slot);
    match (wrong, shifted) {
        (Some(place), _) => Some(error(
            "position_ids",
            Certainty::Certain,
            format!("positions do not count the real tokens: {}", at(place)),
        )),
        (None, Some(place)) => {
            let severity = if relative || convention { Severity::Note } else { Severity::Error };
            let text = format!("positions are shifted: {} (arange where cumsum(mask) - 1 was meant)", at(place));
            Some(error("position_ids", Certainty::Likely, text).severity(severity))
        }
        (None, None) => None,
    }
}

/// `cu_seqlens` must begin with 0, rise, and end with the number of tokens.
fn packed_lengths(beside: &Companions<'_>, context: &Context, verdict: Option<&Held>) -> Option<Finding> {
    let ends = beside.list(&["cu_seqlens", "cu_seqlens_q", "cu_seq_lens", "cu_seqlens_k"])?;
    let total = verdict.map(|v| v.keep.dims()).map(|[batch, _, _, kv_len]| (batch * kv_len) as i64);
    let total = total.or_else(|| beside.get(IDS).map(|ids| ids.len() as i64));
    let longest = ends.windows(2).map(|w| w[1] - w[0]).max();
    let told = beside.list(&["max_seqlen", "max_seqlen_q"]).and_then(|l| l.first().copied()).or(context.max_seqlen);
    let problem = match () {
        () if ends.first() != Some(&0) => format!("it begins with {:?} and not with 0", ends.first()),
        () if ends.windows(2).any(|w| w[1] <= w[0]) => "it does not rise: a document without tokens".into(),
        () if total.is_some_and(|t| ends.last() != Some(&t)) => {
            format!("it ends with {:?}, but there are {total:?} tokens", ends.last())
        }
        () if told.is_some() && told != longest => {
            format!("max_seqlen is {}, but the longest document has {} tokens", told.unwrap_or(0), longest.unwrap_or(0))
        }
        () => return borders(beside, &ends),
    };
    Some(error("document_boundary_off_by_one", Certainty::Certain, format!("cu_seqlens is malformed: {problem}")))
}

/// `cu_seqlens` beside segment numbers: both must change at the same tokens.
fn borders(beside: &Companions<'_>, ends: &[i64]) -> Option<Finding> {
    let segments = beside.list(super::known::SEGMENTS)?;
    let changes: Vec<i64> = (1..segments.len()).filter(|&k| segments[k] != segments[k - 1]).map(|k| k as i64).collect();
    let inner = ends.get(1..ends.len().saturating_sub(1))?;
    let wrong = changes.iter().find(|k| !inner.contains(k)).or_else(|| inner.iter().find(|k| !changes.contains(k)))?;
    (segments.len() as i64 == *ends.last()?).then(|| {
        let text = format!(
            "cu_seqlens and the segment numbers disagree at token {wrong}: only one of them has a border there"
        );
        error("document_boundary_off_by_one", Certainty::Certain, text)
    })
}

/// A causality flag where the mask is to be read both ways.
fn flag(context: &Context) -> Option<Finding> {
    let both_ways = context.kind.is_some_and(|k| !k.causal) || context.role == super::Role::Cross;
    (context.is_causal == Some(true) && both_ways).then(|| {
        let text = "is_causal is set beside a mask that should be read both ways: causality is added to it";
        error("implicit_causal", Certainty::Certain, text)
    })
}

/// Slots of a cache that belong to another sequence than the query.
fn owners(beside: &Companions<'_>, verdict: &Held) -> Option<Finding> {
    let keys = beside.list(&["kv_seq_ids", "slot_seq_ids", "slot_owners", "kv_owners", "key_seq_ids"])?;
    let queries = beside.list(&["query_seq_ids", "q_seq_ids", "query_owners"])?;
    let [batch, heads, q_len, kv_len] = verdict.keep.dims();
    if keys.len() != kv_len || queries.len() != q_len {
        return None;
    }
    let mut wrong = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            for (i, owner) in queries.iter().enumerate() {
                let row = verdict.keep.row(b, h, i);
                wrong.extend((0..kv_len).filter(|&k| bit(row, k) && keys[k] != *owner).map(|k| [b, h, i, k]));
            }
        }
    }
    let first = wrong.first()?;
    let text = format!(
        "query {} of sequence {} reads slot {} of sequence {}",
        first[2], queries[first[2]], first[3], keys[first[3]]
    );
    let mut finding = error("cross_request_contamination", Certainty::Certain, text);
    finding.wrong_cells = wrong.len() as u64;
    wrong.truncate(8);
    finding.first_cells = wrong;
    Some(finding)
}

/// Ids and which of them are real, for checks of labels and pooling.
struct Scene<'a> {
    context: &'a Context,
    intent: Option<&'a Intent>,
    ids: Option<Vec<Vec<i64>>>,
    ignore: i64,
}

impl<'a> Scene<'a> {
    fn new(beside: &Companions<'_>, context: &'a Context, intent: Option<&'a Intent>) -> Self {
        let ids = beside.rows(IDS).or_else(|| beside.rows(&["completion_ids"]));
        Scene { context, intent, ids, ignore: context.ignore_index.unwrap_or(-100) }
    }

    /// Whether token `k` of batch row `b` is real.
    fn real(&self, b: usize, k: usize) -> bool {
        if let Some(intent) = self.intent.filter(|i| i.valid.is_some() && i.kv_len > k) {
            return intent.valid.as_ref().is_none_or(|v| row(v, b).len() * 64 > k && bit(row(v, b), k));
        }
        match (&self.ids, self.context.pad_id) {
            (Some(ids), Some(pad)) if self.context.eos_id != Some(pad) => row(ids, b).get(k) != Some(&pad),
            _ => true,
        }
    }

    fn segment(&self, b: usize, k: usize) -> i64 {
        self.intent.and_then(|i| i.segments.as_ref()).and_then(|g| row(&g.ids, b).get(k)).copied().unwrap_or(1)
    }

    fn labels(&self, labels: &[Vec<i64>]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let Some(ids) = self.ids.as_ref().filter(|ids| ids.len() == labels.len() && ids[0].len() == labels[0].len())
        else {
            findings.extend(self.nothing_learned(labels));
            return findings;
        };
        let masked_lm = self.context.masked_fraction.is_some()
            || self.context.slot.masked_lm()
            || self.context.kind.is_some_and(|k| !k.causal && !k.cross) && self.sparse(labels);
        let shift = if masked_lm { None } else { self.shift(labels, ids) };
        // A label that was moved belongs to the token it came from.
        let of_padding = |b: usize, k: usize| match usize::try_from(k as i64 + shift.unwrap_or(0)) {
            Ok(from) if from < ids[b].len() => !self.real(b, from),
            _ => false,
        };
        let on_padding = self.cells(labels).filter(|&(b, k, label)| label != self.ignore && of_padding(b, k)).count();
        if on_padding > 0 {
            let class = if masked_lm { "MLM_masks_padding_or_special" } else { "loss_mask_missing" };
            findings.push(error(
                class,
                Certainty::Certain,
                format!("{on_padding} padding token(s) have a label: the loss counts padding"),
            ));
        }
        if masked_lm {
            findings.extend(self.special_labels(labels));
            return findings;
        }
        findings.extend(self.nothing_learned(labels));
        findings.extend(self.boundary_labels(labels, ids, shift));
        findings.extend(self.wrong_shift(shift, !findings.is_empty()));
        findings.extend(self.prompts(labels, ids));
        findings.extend(self.ends(labels, ids));
        findings
    }

    fn cells<'b>(&self, labels: &'b [Vec<i64>]) -> impl Iterator<Item = (usize, usize, i64)> + 'b {
        labels.iter().enumerate().flat_map(|(b, r)| r.iter().enumerate().map(move |(k, label)| (b, k, *label)))
    }

    fn nothing_learned(&self, labels: &[Vec<i64>]) -> Option<Finding> {
        let b = labels.iter().position(|r| r.iter().all(|l| *l == self.ignore))?;
        let text = format!("batch row {b} has no label at all: nothing is learned from it, and a mean over it is NaN");
        Some(error("loss_mask_missing", Certainty::Certain, text))
    }

    fn special_labels(&self, labels: &[Vec<i64>]) -> Option<Finding> {
        let context = self.context;
        let mut special = context.special_ids.clone();
        special.extend([context.pad_id, context.eos_id, context.bos_id].into_iter().flatten());
        let is = |b: usize, k: usize, label: i64| {
            label != self.ignore && self.real(b, k) && special.contains(&label)
        };
        let count = self.cells(labels).filter(|&(b, k, label)| is(b, k, label)).count();
        (count > 0).then(|| {
            error(
                "MLM_masks_padding_or_special",
                Certainty::Likely,
                format!("{count} special token(s) are to be predicted"),
            )
        })
    }

    /// Whether most real tokens have no label, as where a few of them are masked and predicted.
    fn sparse(&self, labels: &[Vec<i64>]) -> bool {
        let real = || self.cells(labels).filter(|&(b, k, _)| self.real(b, k));
        let supervised = real().filter(|(_, _, label)| *label != self.ignore).count();
        supervised * 10 < real().count() * 7
    }

    /// The k for which `labels[t] == ids[t + k]` holds most often.
    fn shift(&self, labels: &[Vec<i64>], ids: &[Vec<i64>]) -> Option<i64> {
        let score = |by: i64| -> (usize, usize) {
            let at = |b: usize, k: usize| usize::try_from(k as i64 + by).ok().and_then(|k| ids[b].get(k)).copied();
            let supervised = self
                .cells(labels)
                .filter(|&(b, k, label)| label != self.ignore && self.real(b, k) && at(b, k).is_some());
            supervised.fold((0, 0), |(hits, all), (b, k, label)| (hits + usize::from(at(b, k) == Some(label)), all + 1))
        };
        let best = [0, 1, 2, -1, -2].into_iter().max_by_key(|&by| {
            let (hits, all) = score(by);
            (hits * 1000 / all.max(1), -(by.abs() * 2 - by.signum()))
        })?;
        let (hits, all) = score(best);
        (all >= 2 && hits * 10 >= all * 7).then_some(best)
    }

    fn boundary_labels(&self, labels: &[Vec<i64>], ids: &[Vec<i64>], shift: Option<i64>) -> Option<Finding> {
        if shift == Some(0) && self.context.shifts_labels != Some(false) {
            return self.first_labels(labels);
        }
        if shift != Some(1) {
            return None;
        }
        let crosses = |&(b, k, label): &(usize, usize, i64)| {
            let next =
                k + 1 < ids[b].len() && self.segment(b, k) != self.segment(b, k + 1) && self.segment(b, k + 1) != 0;
            next && self.segment(b, k) != 0 && label != self.ignore && label == ids[b][k + 1]
        };
        let crossing: Vec<_> = self.cells(labels).filter(crosses).collect();
        let &(b, k, label) = crossing.first()?;
        let text = format!(
            "{} document(s) end with a label from the next one, the first at token {k} of batch row {b} (label {label}): set it to {}",
            crossing.len(),
            self.ignore
        );
        Some(error("boundary_label", Certainty::Certain, text))
    }

    /// Where the model shifts labels, that of a document's first token is what the token before it learns.
    fn first_labels(&self, labels: &[Vec<i64>]) -> Option<Finding> {
        let first = |&(b, k, label): &(usize, usize, i64)| {
            let segment = self.segment(b, k);
            k > 0
                && segment != 0
                && self.segment(b, k - 1) != 0
                && self.segment(b, k - 1) != segment
                && label != self.ignore
        };
        let (b, k, label) = self.cells(labels).find(first)?;
        let text = format!(
            "token {k} of batch row {b} opens a document and has label {label}: the model shifts labels, so the end of the document before learns to begin this one; set it to {}",
            self.ignore
        );
        let severity = if self.context.shifts_labels == Some(true) { Severity::Warning } else { Severity::Note };
        Some(error("boundary_label", Certainty::Likely, text).severity(severity))
    }

    fn wrong_shift(&self, shift: Option<i64>, explained: bool) -> Option<Finding> {
        let packed = self.intent.is_some_and(|i| i.segments.is_some());
        let text = match (shift?, self.context.shifts_labels) {
            (0, Some(false)) => {
                "labels are the tokens themselves, but the model does not shift them: it learns to copy its input and the loss falls to 0"
            }
            (0, _) | (1, Some(false)) => return None,
            (1, None) if packed || explained => return None,
            (1, _) => {
                "labels are shifted by one already, and the model shifts them again: it learns the token after the next"
            }
            (-1, _) => "labels are shifted the wrong way: the model learns the token it has just read",
            _ => "labels are shifted by more than one token",
        };
        Some(error(
            "label_shift",
            if self.context.shifts_labels.is_some() { Certainty::Certain } else { Certainty::Likely },
            text,
        ))
    }

    fn prompts(&self, labels: &[Vec<i64>], ids: &[Vec<i64>]) -> Option<Finding> {
        if self.context.prompt.is_empty() {
            return None;
        }
        let in_prompt = |&(b, k, label): &(usize, usize, i64)| {
            let start = (0..ids[b].len()).find(|&k| self.real(b, k)).unwrap_or(0);
            let end = start + super::intent::number(&self.context.prompt, b).max(0) as usize;
            k + 1 < end && label != self.ignore && self.real(b, k)
        };
        let count = self.cells(labels).filter(in_prompt).count();
        let text = format!("{count} token(s) of the prompt have a label although only the answer is to be learned");
        (count > 0).then(|| error("loss_mask_missing", Certainty::Certain, text))
    }

    /// Texts that end with eos while no label says so.
    fn ends(&self, labels: &[Vec<i64>], ids: &[Vec<i64>]) -> Option<Finding> {
        let eos = self.context.eos_id?;
        let real_eos = (0..ids.len()).any(|b| (0..ids[b].len()).any(|k| ids[b][k] == eos && self.real(b, k)));
        let supervised = self.cells(labels).any(|(_, _, l)| l != self.ignore);
        let learned = self.cells(labels).any(|(_, _, l)| l == eos);
        (real_eos && supervised && !learned).then(|| {
            let text = format!("texts end with id {eos}, but no label is {eos}: the model never learns to stop (a mask on ids == pad with pad = eos)");
            error("EOS_never_learned", Certainty::Certain, text)
        })
    }

    /// A completion mask must end with the first eos after the prompt.
    fn completion(&self, beside: &Companions<'_>) -> Option<Finding> {
        let mask = beside.rows(&["completion_mask", "response_mask", "loss_mask", "action_mask"])?;
        let eos = self.context.eos_id?;
        let ids = beside.rows(&["completion_ids"]).or_else(|| self.ids.clone())?;
        if ids.len() != mask.len() || ids[0].len() != mask[0].len() {
            return None;
        }
        let own = beside.get(&["completion_ids"]).is_some();
        let mut wrong = None;
        for (b, r) in ids.iter().enumerate() {
            let start = if own { 0 } else { super::intent::number(&self.context.prompt, b).max(0) as usize };
            let end = (start..r.len()).find(|&k| r[k] == eos).map_or(r.len(), |k| k + 1);
            for (k, &m) in mask[b].iter().enumerate() {
                if (m != 0) != (k >= start && k < end) && (own || k >= start) {
                    wrong.get_or_insert((b, k, m));
                }
            }
        }
        let (b, k, m) = wrong?;
        let text = format!(
            "token {k} of batch row {b} is {} the completion: it should hold what stands up to and with the first {eos} after the prompt",
            if m != 0 { "in" } else { "left out of" }
        );
        Some(error("RL_completion_mask", Certainty::Certain, text))
    }
}

/// Which formula makes the pooled state from the hidden ones.
fn pooling(beside: &Companions<'_>, context: &Context, scene: &Scene<'_>) -> Option<Finding> {
    let (hidden, pooled) = (beside.get(STATES)?, beside.get(POOLED)?);
    let (&[batch, len, width], &[pooled_batch, pooled_width]) = (hidden.shape(), pooled.shape()) else { return None };
    if (batch, width) != (pooled_batch, pooled_width) || len == 0 {
        return None;
    }
    let at = |b: usize, k: usize, d: usize| hidden.at((b * len + k) * width + d);
    let normal = |v: Vec<f64>| -> Vec<f64> {
        let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-30);
        v.iter().map(|x| x / norm).collect()
    };
    let close = |a: &[f64], b: &[f64]| {
        let largest = b.iter().fold(1e-6f64, |m, x| m.max(x.abs()));
        a.iter().zip(b).all(|(x, y)| (x - y).abs() <= 2e-3 * largest)
    };
    // Each formula, and whether it is right for padded rows.
    let formula = |name: &str, b: usize| -> Vec<f64> {
        let real: Vec<usize> = (0..len).filter(|&k| scene.real(b, k)).collect();
        let pick = |k: usize| (0..width).map(|d| at(b, k, d)).collect();
        let mean = |keys: &[usize]| {
            (0..width).map(|d| keys.iter().map(|&k| at(b, k, d)).sum::<f64>() / keys.len().max(1) as f64).collect()
        };
        let max = |keys: &[usize]| {
            (0..width).map(|d| keys.iter().map(|&k| at(b, k, d)).fold(f64::NEG_INFINITY, f64::max)).collect()
        };
        let all: Vec<usize> = (0..len).collect();
        match name {
            "mean of real tokens" => mean(&real),
            "mean of all tokens, padding included" => mean(&all),
            "sum of real tokens over the padded length" => {
                (0..width).map(|d| real.iter().map(|&k| at(b, k, d)).sum::<f64>() / len as f64).collect()
            }
            "first real token" => pick(real.first().copied().unwrap_or(0)),
            "token 0" => pick(0),
            "last real token" => pick(real.last().copied().unwrap_or(len - 1)),
            "token -1" => pick(len - 1),
            "maximum of real tokens" => max(&real),
            _ => max(&all),
        }
    };
    let fits = |name: &str| {
        (0..batch).all(|b| {
            let found: Vec<f64> = (0..width).map(|d| pooled.at(b * width + d)).collect();
            let made = formula(name, b);
            close(&made, &found) || close(&normal(made), &found)
        })
    };
    let right: &[&str] = match context.pooling {
        Some(Pooling::First) => &["first real token"],
        Some(Pooling::Last) => &["last real token"],
        Some(Pooling::Max) => &["maximum of real tokens"],
        Some(Pooling::Mean) => &["mean of real tokens"],
        Some(Pooling::Other) | None => {
            &["mean of real tokens", "first real token", "last real token", "maximum of real tokens"]
        }
    };
    if right.iter().any(|name| fits(name)) {
        return None;
    }
    let wrong = [
        "mean of all tokens, padding included",
        "sum of real tokens over the padded length",
        "token 0",
        "token -1",
        "maximum of all tokens",
        "mean of real tokens",
        "first real token",
        "last real token",
    ];
    match wrong.iter().find(|name| fits(name)) {
        Some(name) => {
            let text = format!("the pooled state is the {name}; it should be the {}", right[0]);
            Some(error("pooling_includes_padding", Certainty::Certain, text))
        }
        None => Some(
            error(
                "pooling_includes_padding",
                Certainty::Possible,
                "no known formula makes the pooled state from the hidden ones",
            )
            .severity(Severity::Note),
        ),
    }
}

/// Probabilities in hidden cells, and what they tell of where the mask went.
fn probabilities(beside: &Companions<'_>, context: &Context, verdict: &Held) -> Option<Finding> {
    let given = beside.get(PROBABILITIES)?;
    let [batch, heads, q_len, kv_len] = verdict.keep.dims();
    let shape = match *given.shape() {
        [q, k] => [1, 1, q, k],
        [n, q, k] if n == batch => [n, 1, q, k],
        [n, q, k] => [1, n, q, k],
        [b, h, q, k] => [b, h, q, k],
        _ => return None,
    };
    if shape[2] != q_len || shape[3] != kv_len {
        return None;
    }
    let keep: Keep = verdict.keep.clone();
    let (mut leaking, mut uneven, mut short, mut rows, mut full_rows, mut several) =
        (0u64, 0u64, 0u64, 0u64, 0u64, false);
    for b in 0..shape[0] {
        for h in 0..shape[1] {
            for i in 0..q_len {
                if verdict.intent.as_ref().is_some_and(|t| !t.cares(b, i)) {
                    continue;
                }
                let row = keep.row(b.min(batch - 1), h.min(heads - 1), i);
                let p = |k: usize| given.at(((b * shape[1] + h) * q_len + i) * kv_len + k);
                let hidden: Vec<f64> = (0..kv_len).filter(|&k| !bit(row, k)).map(p).collect();
                let sum: f64 = (0..kv_len).map(p).sum();
                if hidden.is_empty() || hidden.len() == kv_len {
                    continue;
                }
                rows += 1;
                several |= hidden.len() > 1;
                leaking += u64::from(hidden.iter().any(|x| *x > 1e-6));
                uneven += u64::from(hidden.iter().any(|x| (x - hidden[0]).abs() > 1e-4 * hidden[0].abs().max(1e-6)));
                short += u64::from(sum < 0.998);
                full_rows += u64::from((sum - 1.0).abs() < 2e-3);
            }
        }
    }
    if rows == 0 {
        return None;
    }
    let sinks = context.sinks > 0 || context.slot.has_sinks();
    match () {
        () if leaking > 0 && uneven == 0 && several && full_rows == rows && leaking == rows => Some(error(
            "multiplied_before_softmax",
            Certainty::Likely,
            "all hidden cells of a row have the same probability, that of a score of 0: scores were multiplied by the mask before the softmax",
        )),
        () if leaking > 0 => Some(error(
            "mask_ignored_by_backend",
            Certainty::Certain,
            format!("{leaking} of {rows} rows give probability to hidden cells: this backend did not take the mask"),
        )),
        () if short > 0 && !sinks => Some(error(
            "mask_after_softmax",
            Certainty::Likely,
            format!(
                "hidden cells are 0, but {short} of {rows} rows sum to less than 1: the mask came after the softmax, without renormalising"
            ),
        )),
        () => None,
    }
}

/// NaN in values that nobody may read: 0 * NaN is NaN.
fn poisoned_values(beside: &Companions<'_>, verdict: &Held) -> Option<Finding> {
    let values: &Values = beside.get(VALUES)?;
    let [batch, heads, q_len, kv_len] = verdict.keep.dims();
    let (rows, width) = match *values.shape() {
        [k, d] if k == kv_len => (1, d),
        [b, k, d] if k == kv_len => (b, d),
        [b, h, k, d] if k == kv_len => (b * h, d),
        _ => return None,
    };
    let per_batch = (rows / batch).max(1);
    let read = |b: usize, k: usize| (0..heads).any(|h| (0..q_len).any(|i| bit(verdict.keep.row(b, h, i), k)));
    for r in 0..rows {
        for k in 0..kv_len {
            let nan = (0..width).any(|d| values.at((r * kv_len + k) * width + d).is_nan());
            if nan && !read((r / per_batch).min(batch - 1), k) {
                let text = format!(
                    "the value of key {k} is NaN and no query may read it: a dense softmax times V still makes NaN of it (0 * NaN)"
                );
                return Some(error("NaN_through_masked_KV", Certainty::Certain, text).severity(Severity::Warning));
            }
        }
    }
    None
}
