//! Checks the arrays given with a mask: positions, labels, pooled states, probabilities, packed lengths.

pub(crate) mod borders;
pub(crate) mod packed;
pub(crate) mod positions;
pub(crate) mod tensors;

use crate::companions::packed::{LONGEST, packed_lengths, restarts};
use crate::companions::positions::positions;
use crate::intent::held::Held;
use crate::intent::known::{self, Companions, ENDS, IDS, Known, POSITIONS, Sizes};
use crate::intent::{Intent, row};
use crate::read::context::Context;
use crate::read::input::Input;
use crate::read::kinds::{Convention, Role};
use crate::read::values::Values;
use crate::read::words::counted;
use crate::report::{Certainty, Finding, Report, SHOWN, Severity};
use noren_mask::Error;
use noren_mask::bits::bit;

const LABELS: &[&str] = &["labels", "targets", "target_ids_shifted"];
const KEY_OWNERS: &[&str] = &["kv_seq_ids", "slot_seq_ids", "slot_owners", "kv_owners", "key_seq_ids"];
const QUERY_OWNERS: &[&str] = &["query_seq_ids", "q_seq_ids", "query_owners"];
const COMPLETION_IDS: &[&str] = &["completion_ids"];
const COMPLETIONS: &[&str] = &["completion_mask", "response_mask", "loss_mask", "action_mask"];

/// Names of the arrays that only the checks of this module read. Each entry of the list has all accepted names of one
/// array.
pub(super) const NAMES: &[&[&str]] = &[LABELS, ENDS, LONGEST, KEY_OWNERS, QUERY_OWNERS, COMPLETION_IDS, COMPLETIONS];

/// Returns one message for each given array that no check reads, because its name is unknown. Returns an error if such a
/// name looks like a misspelled known name.
pub(super) fn unread(beside: &Companions<'_>) -> Result<Vec<String>, Error> {
    let known = || [known::NAMES, NAMES, tensors::NAMES].concat().into_iter().flatten().copied();
    let unread = beside.0.keys().filter(|name| !known().any(|k| k == name.as_str()));
    let says = |name: &String| match noren_mask::nearest(name, known()) {
        Some(near) => Err(Error::invalid(format!("the array `{name}` has an unknown name: did you mean `{near}`?"))),
        None => Ok(format!("the array `{name}`: no check reads an array of this name")),
    };
    unread.map(says).collect()
}

/// Checks every array given with the mask, and returns the findings. `verdict` holds the cells of the mask; `None` if
/// no mask is given. `intent` has the padding and the documents of the tokens; `None` if they are unknown.
pub(crate) fn look(
    beside: &Companions<'_>,
    context: &Context,
    intent: Option<&Intent>,
    verdict: Option<&Held>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(padding_side(beside, context, intent));
    match restarts(beside) {
        Some(finding) => findings.push(finding),
        None => findings.extend(positions(beside, context, intent)),
    }
    let mut others = beside.0.clone();
    others.retain(|name, _| !ENDS.contains(&name.as_str()));
    let others = tokens(&Companions(&others), context);
    findings.extend(packed_lengths(beside, context, verdict, others.as_ref()));
    findings.extend(flag(context));
    if let Some(verdict) = verdict {
        findings.extend(owners(beside, verdict));
    }
    let scene = Scene::new(beside, context, intent);
    if let Some(labels) = beside.rows(LABELS) {
        findings.extend(scene.labels(&labels));
    }
    findings.extend(scene.completion(beside));
    findings.extend(tensors::pooling(beside, context, &|b, k| scene.real(b, k)));
    if let Some(verdict) = verdict {
        findings.extend(tensors::probabilities(beside, context, verdict));
        findings.extend(tensors::poisoned_values(beside, verdict));
    }
    findings
}

/// Returns the padding and the documents of the tokens from the given arrays, as a mask that allows all other cells; `None` if the
/// arrays do not give the number of batch rows and tokens.
pub(super) fn tokens(beside: &Companions<'_>, context: &Context) -> Option<Intent> {
    let (batch, len) = known::declared(beside, context);
    let width = |names| beside.get(names).filter(|v| v.shape().len() == 2).and_then(|v| v.shape().last().copied());
    let batch = batch.or(len.map(|_| 1));
    let kv_len = len.max(width(known::PADDING)).or_else(|| tensors::tokens(beside))?;
    // Positions and ids may be given for the new tokens only.
    let q_len = width(POSITIONS).filter(|width| *width < kv_len && *width > 0).unwrap_or(kv_len);
    let known = Known::new(beside, context, Sizes { batch: batch?, q_len, kv_len });
    let all = Intent::new(known.batch, q_len, kv_len, known.past.clone());
    Some(Intent { valid: known.valid, q_valid: known.q_valid, segments: known.segments, ..all })
}

/// Returns the padding that an array or the declared lengths give to the tokens, with its name, as a mask to check against the padding that
/// the other arrays give; `None` if nothing else gives it.
pub(super) fn padding(input: &Input) -> Option<(String, Input)> {
    let own = &input.context;
    let (pad_id, eos_id, bos_id, side) = (own.pad_id, own.eos_id, own.bos_id, own.side);
    let context = Context { pad_id, eos_id, bos_id, side, convention: Some(Convention::Keep), ..Context::default() };
    let lengths = Context { lengths: own.lengths.clone(), ..context.clone() };
    let mut arrays = input.companions.clone();
    arrays.retain(|name, _| [IDS, known::LENGTHS, known::PADDING].concat().contains(&name.as_str()));
    let given = known::PADDING.iter().find_map(|name| arrays.remove_entry(*name));
    // Ids of the new tokens do not give the padding of cached keys.
    let width = |values: &Values| values.shape().last().copied();
    arrays.retain(|name, ids| {
        !IDS.contains(&name.as_str()) || given.as_ref().is_none_or(|(_, mask)| width(mask) == width(ids))
    });
    let counted = !own.lengths.is_empty() || known::LENGTHS.iter().any(|name| arrays.contains_key(*name));
    let by_ids = own.pad_id.is_some() && IDS.iter().any(|name| arrays.contains_key(*name));
    let (name, mask, context) = match given {
        Some((name, mask)) if counted || by_ids => (name, mask, lengths),
        None if counted && by_ids => {
            let valid = tokens(&Companions(&arrays), &lengths)?;
            arrays.retain(|name, _| IDS.contains(&name.as_str()));
            let rows = valid.valid.as_ref()?.iter().map(|row| (0..valid.kv_len).map(|k| i64::from(bit(row, k))));
            let mask = Values::ints(&[rows.len(), valid.kv_len], rows.flatten().collect()).ok()?;
            ("lengths".to_string(), mask, context)
        }
        _ => return None,
    };
    let role = (own.role != Role::Cross && !own.kind.is_some_and(|kind| kind.cross)).then_some(Role::KeyPadding)?;
    let alone = Input::new(mask).context(Context { role, role_declared: true, ..context });
    Some((name, Input { companions: arrays, ..alone }))
}

/// Returns the findings of the report on the padding that the array `name` gives.
pub(super) fn of_padding(name: &str, report: &Report) -> Vec<Finding> {
    let faults = report.findings.iter().filter(|finding| finding.severity > Severity::Note);
    faults.map(|f| Finding { says: format!("`{name}`: {}", f.says), repair: None, ..f.clone() }).collect()
}

/// Returns a finding if a batch row is padded on the right, but left padding is declared or the model generates text;
/// otherwise `None`.
fn padding_side(beside: &Companions<'_>, context: &Context, intent: Option<&Intent>) -> Option<Finding> {
    let valid = intent?.valid.as_ref()?;
    let kv_len = intent?.kv_len;
    let padded = |b: &Vec<u64>, k: usize| !bit(b, k);
    let at_end = valid.iter().position(|r| padded(r, kv_len - 1))?;
    let declared_left = context.side == Some(noren_mask::Side::Left);
    beside.get(IDS)?;
    let text = match () {
        () if context.generates => format!(
            "batch row {at_end} is padded on the right, but the model continues the text: the last logits belong to a padding token; pad on the left"
        ),
        () if declared_left && valid.iter().all(|r| !padded(r, 0)) => {
            format!("left padding is declared, but batch row {at_end} is padded on the right")
        }
        () => return None,
    };
    Some(Finding::of("padding_side", Certainty::Likely, text))
}

/// Returns a finding if `is_causal` is true, but the declared mask is not causal; otherwise `None`.
fn flag(context: &Context) -> Option<Finding> {
    let both_ways = context.kind.is_some_and(|k| !k.causal) || context.role == Role::Cross;
    (context.is_causal == Some(true) && both_ways).then(|| {
        let text = "is_causal is true, but the declared mask is not causal: the attention function adds causality to the mask; pass is_causal=False";
        Finding::of("implicit_causal", Certainty::Certain, text)
    })
}

/// Returns a finding if a query reads a cache slot of another sequence; otherwise `None`. The given arrays name the
/// sequence of each query and of each slot.
fn owners(beside: &Companions<'_>, verdict: &Held) -> Option<Finding> {
    let keys = beside.list(KEY_OWNERS)?;
    let queries = beside.list(QUERY_OWNERS)?;
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
        "query {} of sequence {} reads cache slot {} of sequence {}",
        first[2], queries[first[2]], first[3], keys[first[3]]
    );
    let mut finding = Finding::of("cross_request_contamination", Certainty::Certain, text);
    finding.wrong_cells = wrong.len() as u64;
    wrong.truncate(8);
    finding.first_cells = wrong;
    Some(finding)
}

/// The token ids, declarations and intended mask that the checks of labels and completions read.
struct Scene<'a> {
    context: &'a Context,
    intent: Option<&'a Intent>,
    ids: Option<Vec<Vec<i64>>>,
    ignore: i64,
}

impl<'a> Scene<'a> {
    fn new(beside: &Companions<'_>, context: &'a Context, intent: Option<&'a Intent>) -> Self {
        let ids = beside.rows(IDS).or_else(|| beside.rows(COMPLETION_IDS));
        Scene { context, intent, ids, ignore: context.ignore_index.unwrap_or(-100) }
    }

    /// Returns whether token `k` of batch row `b` is a non-padding token.
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
        self.intent.and_then(|i| i.segments.as_ref()).and_then(|g| row(g, b).get(k)).copied().unwrap_or(1)
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
        // A shifted label belongs to the token from which it was copied. The label of the last token may be a token after the text.
        let of_padding = |b: usize, k: usize, label: i64| match usize::try_from(k as i64 + shift.unwrap_or(0)) {
            Ok(from) if from < ids[b].len() => !self.real(b, from) && (label == ids[b][from] || !self.real(b, k)),
            _ => false,
        };
        let is_padding = |&(b, k, label): &(usize, usize, i64)| label != self.ignore && of_padding(b, k, label);
        let on_padding = self.cells(labels).filter(is_padding).count();
        if on_padding > 0 {
            let class = if masked_lm { "MLM_masks_padding_or_special" } else { "loss_mask_missing" };
            let text = format!("labels of {}: the loss counts padding", counted(on_padding as u64, "padding token"));
            let finding = Finding::of(class, Certainty::Certain, text);
            findings.push(if shift == Some(0) { finding.because(0) } else { finding });
        }
        if masked_lm {
            findings.extend(self.special_labels(labels));
            return findings;
        }
        findings.extend(self.nothing_learned(labels));
        findings.extend(self.boundary_labels(labels, ids, shift));
        findings.extend(self.wrong_shift(shift, !findings.is_empty()));
        findings.extend(self.prompts(labels, ids));
        findings.extend(self.first_answers(labels, ids, shift));
        findings.extend(self.ends(labels, ids));
        findings
    }

    fn cells<'b>(&self, labels: &'b [Vec<i64>]) -> impl Iterator<Item = (usize, usize, i64)> + 'b {
        labels.iter().enumerate().flat_map(|(b, r)| r.iter().enumerate().map(move |(k, label)| (b, k, *label)))
    }

    fn nothing_learned(&self, labels: &[Vec<i64>]) -> Option<Finding> {
        let b = labels.iter().position(|r| r.iter().all(|l| *l == self.ignore))?;
        let text = format!(
            "batch row {b} has no label: the model learns nothing from this row, and a mean over its labels is NaN"
        );
        Some(Finding::of("loss_mask_missing", Certainty::Certain, text).because(1))
    }

    fn special_labels(&self, labels: &[Vec<i64>]) -> Option<Finding> {
        let context = self.context;
        let mut special = context.special_ids.clone();
        special.extend([context.pad_id, context.eos_id, context.bos_id].into_iter().flatten());
        let is = |b: usize, k: usize, label: i64| label != self.ignore && self.real(b, k) && special.contains(&label);
        let count = self.cells(labels).filter(|&(b, k, label)| is(b, k, label)).count();
        (count > 0).then(|| {
            Finding::of(
                "MLM_masks_padding_or_special",
                Certainty::Likely,
                format!(
                    "labels of {}: the model learns to predict special tokens",
                    counted(count as u64, "special token")
                ),
            )
        })
    }

    /// Returns true if fewer than 70 % of the non-padding tokens have a label, as in masked-language training. Tokens
    /// with the end-of-text id are not counted.
    fn sparse(&self, labels: &[Vec<i64>]) -> bool {
        // Tokens with the eos id are not counted, because their missing labels belong to another class of mistake.
        let ends = |b: usize, k: usize| {
            let id = self.ids.as_ref().and_then(|ids| row(ids, b).get(k));
            self.context.eos_id.is_some_and(|eos| id == Some(&eos))
        };
        let real = || self.cells(labels).filter(|&(b, k, _)| self.real(b, k) && !ends(b, k));
        let supervised = real().filter(|(_, _, label)| *label != self.ignore).count();
        supervised * 10 < real().count() * 7
    }

    /// Returns the shift `k` from -2 to 2 for which `labels[t] == ids[t + k]` holds for the most tokens. Returns `None`
    /// if the equation holds for fewer than 70 % of the tokens with labels, or if fewer than two tokens have a label.
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

    /// Checks that the first token of each document, except the first document, has no training label: otherwise the last token of the
    /// previous document learns to predict this token.
    fn boundary_labels(&self, labels: &[Vec<i64>], ids: &[Vec<i64>], shift: Option<i64>) -> Option<Finding> {
        let shifts = self.context.shifts_labels;
        let by = usize::try_from(shift?).ok().filter(|by| *by == 1 || *by == 0 && shifts != Some(false))?;
        let begins = |b: usize, k: usize| {
            let at = |k: usize| self.segment(b, k);
            k > 0 && k < ids[b].len() && at(k) != at(k - 1) && at(k) != 0 && at(k - 1) != 0
        };
        let crosses = |&(b, k, label): &(usize, usize, i64)| {
            label != self.ignore && begins(b, k + by) && (by == 0 || label == ids[b][k + by])
        };
        let crossing: Vec<_> = self.cells(labels).filter(crosses).collect();
        let &(b, k, label) = crossing.first()?;
        if by == 0 {
            let text = format!(
                "token {k} of batch row {b} begins a document and has label {label}: the model shifts labels, so the last token of the previous document learns to predict this token; set the label to {}",
                self.ignore
            );
            let severity = if shifts == Some(true) { Severity::Warning } else { Severity::Note };
            return Some(Finding::of("boundary_label", Certainty::Likely, text).severity(severity));
        }
        let text = format!(
            "the last label of {} is from the next document, the first at token {k} of batch row {b} (label {label}): set each of these labels to {}",
            counted(crossing.len() as u64, "document"),
            self.ignore
        );
        Some(Finding::of("boundary_label", Certainty::Certain, text))
    }

    fn wrong_shift(&self, shift: Option<i64>, explained: bool) -> Option<Finding> {
        let packed = self.intent.is_some_and(|i| i.segments.is_some());
        let (text, cause) = match (shift?, self.context.shifts_labels) {
            (0, Some(false)) => (
                "labels equal the input tokens, but the model does not shift labels: the model learns to copy its input and the loss falls to 0",
                Some(1),
            ),
            (0, _) | (1, Some(false)) => return None,
            (1, None) if packed || explained => return None,
            (1, _) => (
                "labels are already shifted by one, and the model shifts them again: the model learns to predict the token after the next",
                Some(0),
            ),
            (-1, _) => {
                ("labels are shifted in the wrong direction: the model learns to predict the token just read", None)
            }
            _ => ("labels are shifted by more than one token", None),
        };
        let certainty = if self.context.shifts_labels.is_some() { Certainty::Certain } else { Certainty::Likely };
        let finding = Finding::of("label_shift", certainty, text);
        Some(cause.map_or_else(|| finding.clone(), |cause| finding.clone().because(cause)))
    }

    fn prompts(&self, labels: &[Vec<i64>], ids: &[Vec<i64>]) -> Option<Finding> {
        if self.context.prompt.is_empty() {
            return None;
        }
        let in_prompt = |&(b, k, label): &(usize, usize, i64)| {
            k + 1 < self.answer(b, &ids[b]) && label != self.ignore && self.real(b, k)
        };
        let count = self.cells(labels).filter(in_prompt).count();
        let text = format!(
            "labels of {} of the prompt, although the model should learn only the answer",
            counted(count as u64, "token")
        );
        (count > 0).then(|| Finding::of("loss_mask_missing", Certainty::Certain, text))
    }

    /// Returns the index of the first token of batch row `b` after the prompt.
    fn answer(&self, b: usize, ids: &[i64]) -> usize {
        let start = (0..ids.len()).find(|&k| self.real(b, k)).unwrap_or(0);
        start + crate::intent::number(&self.context.prompt, b).max(0) as usize
    }

    /// Returns a finding if only the first token of the answers has no label: the ignored prompt is then one label too long.
    fn first_answers(&self, labels: &[Vec<i64>], ids: &[Vec<i64>], shift: Option<i64>) -> Option<Finding> {
        let declared = self.context.shifts_labels.map(|shifts| i64::from(!shifts));
        let by = usize::try_from(shift.or(declared)?).ok().filter(|by| *by < 2 && !self.context.prompt.is_empty())?;
        let has = |b: usize, k: usize| labels[b].get(k).is_some_and(|label| *label != self.ignore);
        // The index of the label of the first token of the answer, and this token.
        let first = |b: usize| Some((self.answer(b, &ids[b]).checked_sub(by)?, *ids[b].get(self.answer(b, &ids[b]))?));
        let lost = |b: usize| first(b).filter(|(k, _)| !has(b, *k) && has(b, k + 1) && self.real(b, k + by));
        let lost: Vec<(usize, usize, i64)> = (0..ids.len()).filter_map(|b| lost(b).map(|(k, id)| (b, k, id))).collect();
        let &(b, k, id) = lost.first()?;
        let text = format!(
            "the first token of the answer has no label in {} of {}, the first is label {k} of batch row {b}, which should be {id}: the ignored prompt \
             is one label too long{}",
            lost.len(),
            counted(ids.len() as u64, "batch row"),
            if by == 1 { " (in shifted labels, the prompt has prompt_len - 1 labels)" } else { "" }
        );
        let repair = lost.iter().take(SHOWN).map(|(b, k, id)| format!("labels[{b}, {k}] = {id}")).collect::<Vec<_>>();
        let finding = Finding::of("loss_mask_missing", Certainty::Likely, text);
        Some(Finding { repair: Some(repair.join(", ")), ..finding })
    }

    /// Returns a finding if texts contain the end-of-text token (eos), but no label is eos; otherwise `None`.
    fn ends(&self, labels: &[Vec<i64>], ids: &[Vec<i64>]) -> Option<Finding> {
        let eos = self.context.eos_id?;
        let real_eos = (0..ids.len()).any(|b| (0..ids[b].len()).any(|k| ids[b][k] == eos && self.real(b, k)));
        let supervised = self.cells(labels).any(|(_, _, l)| l != self.ignore);
        let learned = self.cells(labels).any(|(_, _, l)| l == eos);
        (real_eos && supervised && !learned).then(|| {
            let text = format!("texts end with id {eos}, but no label is {eos}: the model never learns to stop");
            let finding = Finding::of("EOS_never_learned", Certainty::Certain, text);
            if self.context.pad_id.is_none_or(|pad| pad == eos) { finding.because(0) } else { finding }
        })
    }

    /// Checks that the completion mask of each batch row marks the tokens after the prompt, up to and including the
    /// first end-of-text token (eos). Returns a finding for the first wrong token, or `None`.
    fn completion(&self, beside: &Companions<'_>) -> Option<Finding> {
        let mask = beside.rows(COMPLETIONS)?;
        let eos = self.context.eos_id?;
        let ids = beside.rows(COMPLETION_IDS).or_else(|| self.ids.clone())?;
        if ids.len() != mask.len() || ids[0].len() != mask[0].len() {
            return None;
        }
        let own = beside.get(COMPLETION_IDS).is_some();
        let mut wrong = None;
        for (b, r) in ids.iter().enumerate() {
            let start = if own { 0 } else { crate::intent::number(&self.context.prompt, b).max(0) as usize };
            let end = (start..r.len()).find(|&k| r[k] == eos).map_or(r.len(), |k| k + 1);
            for (k, &m) in mask[b].iter().enumerate() {
                if (m != 0) != (k >= start && k < end) && (own || k >= start) {
                    wrong.get_or_insert((b, k, m));
                }
            }
        }
        let (b, k, m) = wrong?;
        let text = match m != 0 {
            true => format!(
                "the completion mask includes token {k} of batch row {b}, but the completion must end with the first eos token ({eos}) after the prompt"
            ),
            false => format!(
                "the completion mask leaves out token {k} of batch row {b}, but the completion must include all tokens after the prompt up to and including the first eos token ({eos})"
            ),
        };
        Some(Finding::of("RL_completion_mask", Certainty::Certain, text))
    }
}
