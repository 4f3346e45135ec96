//! Checks which tokens a model learns: labels and completion masks.

use crate::companions::table::{Checked, Entry, PADDING_UNKNOWN, Table, sources};
use crate::intent::known::{Companions, IDS};
use crate::intent::{Intent, number, row};
use crate::read::context::Context;
use crate::read::words::counted;
use crate::report::wrong::listed;
use crate::report::{Certainty, Finding, Severity};
use noren_mask::bits::bit;
use std::collections::BTreeSet;
use std::ops::Range;

pub(super) const LABELS: &[&str] = &["labels", "targets", "target_ids_shifted"];
pub(super) const COMPLETION_IDS: &[&str] = &["completion_ids"];
pub(crate) const COMPLETIONS: &[&str] = &["completion_mask", "response_mask", "loss_mask", "action_mask"];

/// A mistake in labels, and the labels that it makes wrong.
type Fault = (Finding, Vec<Entry>);

/// Returns the finding with the text `says`, unless `wrong` is empty.
fn fault(
    class: &'static str,
    certainty: Certainty,
    wrong: Vec<Entry>,
    says: impl FnOnce(u64) -> String,
) -> Option<Fault> {
    (!wrong.is_empty()).then(|| (Finding::of(class, certainty, says(wrong.len() as u64)), wrong))
}

/// The tokens of a batch row that a completion mask marks.
struct Completion {
    /// The first token after the prompt.
    from: usize,
    text: Range<usize>,
    /// The last tokens of the text, if they may be padding.
    open: Range<usize>,
    /// True if the text ends with eos.
    ends: bool,
}

/// The token ids, declarations and intended mask that the checks of labels and completions read.
pub(super) struct Scene<'a> {
    context: &'a Context,
    intent: Option<&'a Intent>,
    ids: Option<Table<'a>>,
    ignore: i64,
}

impl<'a> Scene<'a> {
    pub(super) fn new(beside: &Companions<'a>, context: &'a Context, intent: Option<&'a Intent>) -> Self {
        let ids = Table::of(beside, IDS).or_else(|| Table::of(beside, COMPLETION_IDS));
        Scene { context, intent, ids, ignore: context.ignore_index.unwrap_or(-100) }
    }

    /// Returns whether token `k` of batch row `b` is a non-padding token.
    pub(super) fn real(&self, b: usize, k: usize) -> bool {
        if let Some(valid) = self.intent.filter(|i| i.kv_len > k).and_then(|i| i.valid.as_ref()) {
            return row(valid, b).len() * 64 > k && bit(row(valid, b), k);
        }
        match (&self.ids, self.context.pad_id) {
            (Some(ids), Some(pad)) if self.context.eos_id != Some(pad) => row(&ids.rows, b).get(k) != Some(&pad),
            _ => true,
        }
    }

    /// Returns a text for the report if the padding of the tokens is unknown.
    pub(super) fn unknown_padding(&self) -> Option<String> {
        let known = self.intent.is_some_and(|i| i.valid.is_some() || i.segments.is_some());
        let by_ids = self.ids.is_some() && self.context.pad_id.is_some() && self.context.eos_id != self.context.pad_id;
        (!known && !by_ids).then(|| PADDING_UNKNOWN.to_string())
    }

    fn segment(&self, b: usize, k: usize) -> i64 {
        self.intent.and_then(|i| i.segments.as_ref()).and_then(|g| row(g, b).get(k)).copied().unwrap_or(1)
    }

    /// Returns true if token `k` of batch row `b` is the first token of a document after another document.
    fn begins(&self, b: usize, k: usize) -> bool {
        let at = |k: usize| self.segment(b, k);
        k > 0 && at(k) != at(k - 1) && at(k) != 0 && at(k - 1) != 0
    }

    pub(super) fn labels(&self, beside: &Companions<'_>) -> Option<Checked> {
        let labels = Table::of(beside, LABELS)?;
        let Some(ids) = self.ids.as_ref().filter(|ids| labels.fits(&ids.rows)) else {
            let alone = self.nothing_learned(&labels, None)?;
            return Some(Checked { findings: vec![alone.0], ..Checked::default() });
        };
        let masked_lm = self.context.masked_lm
            || self.context.slot.masked_lm()
            || self.context.kind.is_some_and(|k| !k.causal && !k.cross) && self.sparse(&labels);
        let shift = if masked_lm { None } else { self.shift(&labels, &ids.rows) };
        let by = shift.or(self.context.shifts_labels.map(|shifts| i64::from(!shifts)));
        let mut faults: Vec<Fault> = self.padding(&labels, ids, shift, masked_lm).into_iter().collect();
        let mut moved = 0;
        if masked_lm {
            faults.extend(self.special_labels(&labels));
        } else {
            faults.extend(self.nothing_learned(&labels, by.map(|by| (ids, by))));
            faults.extend(self.boundary_labels(&labels, &ids.rows, shift));
            if let Some((finding, by)) = self.wrong_shift(shift, !faults.is_empty()) {
                moved = by;
                faults.push((finding, Vec::new()));
            }
            faults.extend(self.prompts(&labels, &ids.rows, by));
            faults.extend(self.first_answers(&labels, &ids.rows, by));
            faults.extend(self.ends(&labels, &ids.rows, by));
        }
        let mut right = labels.with(faults.iter().flat_map(|fault| &fault.1));
        if moved != 0 {
            let from = |r: &[i64], k: usize| usize::try_from(k as i64 - moved).ok().and_then(|k| r.get(k)).copied();
            let move_row = |r: &Vec<i64>| (0..r.len()).map(|k| from(r, k).unwrap_or(self.ignore)).collect();
            right = right.iter().map(move_row).collect();
        }
        let (mut open, compared) = (Vec::from_iter(self.unknown_padding()), labels.entries().count());
        if masked_lm && self.context.special_ids.is_empty() {
            open.push("which other tokens are special: declare special_token_ids".to_string());
        }
        let says = match masked_lm {
            true => format!("no padding or special token has a label: {}", counted(compared as u64, "label")),
            false => {
                open.extend(faults.is_empty().then(|| self.open_labels(&labels, ids, shift)).into_iter().flatten());
                let by = if shift == Some(0) { "" } else { " shifted by one token" };
                format!("`{}` are `{}`{by}: {} compared", labels.name, ids.name, counted(compared as u64, "label"))
            }
        };
        let repaired = |(finding, wrong): Fault| match finding.class {
            class if class == "label_shift" && moved != 0 || !wrong.is_empty() => labels.repaired(finding, &right),
            _ => finding,
        };
        let arrays = vec![labels.name.to_string(), ids.name.to_string()];
        Some(Checked { arrays, says, findings: faults.into_iter().map(repaired).collect(), open })
    }

    /// Returns texts for the report on the labels that the declarations do not decide.
    fn open_labels(&self, labels: &Table<'_>, ids: &Table<'_>, shift: Option<i64>) -> Vec<String> {
        let mut open = Vec::new();
        if self.context.shifts_labels.is_none() {
            open.push("whether the model shifts the labels: declare model_shifts_labels".to_string());
        }
        let Some(by) = shift else {
            open.push(format!("the shift of `{}`: too few of them equal a token of `{}`", labels.name, ids.name));
            return open;
        };
        let differs = |&(b, k, label): &Entry| self.expected(&ids.rows, b, k, by).is_some_and(|right| right != label);
        let differing: Vec<Entry> = labels.entries().filter(differs).collect();
        if !differing.is_empty() {
            open.push(format!(
                "whether {} right, which are not the token ids ({}): declare prompt_len if they belong to the prompt",
                if differing.len() == 1 { "1 label is".to_string() } else { format!("{} labels are", differing.len()) },
                labels.places("label", &differing)
            ));
        }
        open
    }

    /// Returns the correct label `k` of batch row `b`, if labels are shifted by `by` tokens; `None` if several are correct.
    fn expected(&self, ids: &[Vec<i64>], b: usize, k: usize, by: i64) -> Option<i64> {
        let from = usize::try_from(k as i64 + by).ok()?;
        let id = *ids[b].get(from)?;
        match () {
            // The label of the last token may be a token after the text.
            () if !self.real(b, from) => (from == k || !self.real(b, k)).then_some(self.ignore),
            () if !self.context.prompt.is_empty() && from < self.answer(b, &ids[b]) => Some(self.ignore),
            () if self.begins(b, from) => (by > 0).then_some(self.ignore),
            // No token predicts the first token.
            () => (0..from).any(|k| self.real(b, k)).then_some(id),
        }
    }

    fn padding(&self, labels: &Table<'_>, ids: &Table<'_>, shift: Option<i64>, masked_lm: bool) -> Option<Fault> {
        // A shifted label belongs to the token from which it was copied. The label of the last token may be a token after the text.
        let of_padding = |b: usize, k: usize, label: i64| match usize::try_from(k as i64 + shift.unwrap_or(0)) {
            Ok(from) if from < ids.rows[b].len() => {
                !self.real(b, from) && (label == ids.rows[b][from] || !self.real(b, k))
            }
            _ => false,
        };
        let wrong = self.ignored(labels, &of_padding);
        let class = if masked_lm { "MLM_masks_padding_or_special" } else { "loss_mask_missing" };
        let places = labels.places("label", &wrong);
        let (finding, wrong) = fault(class, Certainty::Certain, wrong, |n| {
            format!("labels of {} ({places}): the loss counts padding", counted(n, "padding token"))
        })?;
        Some((if shift == Some(0) { finding.because(0) } else { finding }, wrong))
    }

    /// Returns the labels for which `wrong(batch row, token, label)` is true, to be ignored.
    fn ignored(&self, labels: &Table<'_>, wrong: &dyn Fn(usize, usize, i64) -> bool) -> Vec<Entry> {
        let is = |&(b, k, label): &Entry| label != self.ignore && wrong(b, k, label);
        labels.entries().filter(is).map(|(b, k, _)| (b, k, self.ignore)).collect()
    }

    /// Returns a finding on the batch rows without a label. `ids` has the token ids, and the shift of the labels.
    fn nothing_learned(&self, labels: &Table<'_>, ids: Option<(&Table<'_>, i64)>) -> Option<Fault> {
        let empty = |b: &usize| labels.rows[*b].iter().all(|l| *l == self.ignore);
        let rows: BTreeSet<usize> = (0..labels.rows.len()).filter(empty).collect();
        let (have, these, their) =
            if rows.len() > 1 { ("have", "these rows", "their") } else { ("has", "this row", "its") };
        let text = format!(
            "{} {have} no label: the model learns nothing from {these}, and a mean over {their} labels is NaN",
            listed("batch row", &rows)
        );
        // Only a declared prompt states which tokens the model should learn.
        let ids = ids.filter(|_| !self.context.prompt.is_empty());
        let of_row = |(ids, by): (&Table<'_>, i64)| {
            let all = labels.entries().filter(|entry| rows.contains(&entry.0));
            let right =
                |(b, k, label): Entry| Some((b, k, self.expected(&ids.rows, b, k, by).filter(|x| *x != label)?));
            all.filter_map(right).collect()
        };
        let finding = Finding::of("loss_mask_missing", Certainty::Certain, text).because(1);
        (!rows.is_empty()).then(|| (finding, ids.map(of_row).unwrap_or_default()))
    }

    fn special_labels(&self, labels: &Table<'_>) -> Option<Fault> {
        let context = self.context;
        let mut special = context.special_ids.clone();
        special.extend([context.pad_id, context.eos_id, context.bos_id].into_iter().flatten());
        let wrong = self.ignored(labels, &|b, k, label| self.real(b, k) && special.contains(&label));
        let places = labels.places("label", &wrong);
        fault("MLM_masks_padding_or_special", Certainty::Likely, wrong, |n| {
            format!("labels of {} ({places}): the model learns to predict special tokens", counted(n, "special token"))
        })
    }

    /// Returns true if fewer than 70 % of the non-padding tokens have a label, as in masked-language training. Tokens
    /// with the end-of-text id are not counted.
    fn sparse(&self, labels: &Table<'_>) -> bool {
        // Tokens with the eos id are not counted, because their missing labels belong to another class of mistake.
        let ends = |b: usize, k: usize| {
            let id = self.ids.as_ref().and_then(|ids| row(&ids.rows, b).get(k));
            self.context.eos_id.is_some_and(|eos| id == Some(&eos))
        };
        let real = || labels.entries().filter(|&(b, k, _)| self.real(b, k) && !ends(b, k));
        let supervised = real().filter(|(_, _, label)| *label != self.ignore).count();
        supervised * 10 < real().count() * 7
    }

    /// Returns the shift `k` from -2 to 2 for which `labels[t] == ids[t + k]` holds for the most tokens. Returns `None`
    /// if the equation holds for fewer than 70 % of the tokens with labels, or if fewer than two tokens have a label.
    fn shift(&self, labels: &Table<'_>, ids: &[Vec<i64>]) -> Option<i64> {
        let score = |by: i64| -> (usize, usize) {
            let at = |b: usize, k: usize| usize::try_from(k as i64 + by).ok().and_then(|k| ids[b].get(k)).copied();
            let supervised =
                labels.entries().filter(|&(b, k, label)| label != self.ignore && self.real(b, k) && at(b, k).is_some());
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
    fn boundary_labels(&self, labels: &Table<'_>, ids: &[Vec<i64>], shift: Option<i64>) -> Option<Fault> {
        let shifts = self.context.shifts_labels;
        let by = usize::try_from(shift?).ok().filter(|by| *by == 1 || *by == 0 && shifts != Some(false))?;
        let wrong = self.ignored(labels, &|b, k, label| {
            k + by < ids[b].len() && self.begins(b, k + by) && (by == 0 || label == ids[b][k + by])
        });
        let places = labels.places("label", &wrong);
        if by == 1 {
            return fault("boundary_label", Certainty::Certain, wrong, |n| {
                let of = counted(n, "document");
                let ignore = self.ignore;
                format!(
                    "the last label of {of} is from the next document ({places}): set each of these labels to {ignore}"
                )
            });
        }
        let (finding, wrong) = fault("boundary_label", Certainty::Likely, wrong, |n| {
            format!(
                "{} at the first token of a document ({places}): the model shifts labels, so the last token of the previous document learns to \
                 predict this token; set these labels to {}",
                counted(n, "label"),
                self.ignore
            )
        })?;
        Some((finding.severity(if shifts == Some(true) { Severity::Warning } else { Severity::Note }), wrong))
    }

    /// Returns a finding on the shift of all labels, and the number of tokens by which the repair moves them.
    fn wrong_shift(&self, shift: Option<i64>, explained: bool) -> Option<(Finding, i64)> {
        let packed = self.intent.is_some_and(|i| i.segments.is_some());
        let shifts = self.context.shifts_labels;
        let (text, cause) = match (shift?, shifts) {
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
        let certainty = if shifts.is_some() { Certainty::Certain } else { Certainty::Likely };
        let finding = Finding::of("label_shift", certainty, text);
        let by = shift? - i64::from(shifts == Some(false));
        Some((cause.map_or_else(|| finding.clone(), |cause| finding.clone().because(cause)), by))
    }

    /// Returns a finding on the labels of prompts. `by` is the shift of the labels; if it is unknown, only tokens that belong to a prompt
    /// with every shift are counted.
    fn prompts(&self, labels: &Table<'_>, ids: &[Vec<i64>], by: Option<i64>) -> Option<Fault> {
        if self.context.prompt.is_empty() {
            return None;
        }
        let in_prompt = |b: usize, k: usize| {
            let from = usize::try_from(k as i64 + by.unwrap_or(1)).ok().filter(|from| *from < ids[b].len());
            from.is_some_and(|from| from < self.answer(b, &ids[b]) && self.real(b, from))
        };
        let wrong = self.ignored(labels, &|b, k, _| in_prompt(b, k));
        let places = labels.places("label", &wrong);
        fault("loss_mask_missing", Certainty::Certain, wrong, |n| {
            format!(
                "labels of {} of the prompt ({places}), although the model should learn only the answer",
                counted(n, "token")
            )
        })
    }

    /// Returns the index of the first token of batch row `b` after the prompt.
    fn answer(&self, b: usize, ids: &[i64]) -> usize {
        let start = (0..ids.len()).find(|&k| self.real(b, k)).unwrap_or(0);
        start + number(&self.context.prompt, b).max(0) as usize
    }

    /// Returns a finding if the first tokens of the answers have no label, but later tokens have: the ignored prompt is then too long.
    fn first_answers(&self, labels: &Table<'_>, ids: &[Vec<i64>], by: Option<i64>) -> Option<Fault> {
        let by = usize::try_from(by?).ok().filter(|by| *by < 2 && !self.context.prompt.is_empty())?;
        let has = |b: usize, k: usize| labels.rows[b].get(k).is_some_and(|label| *label != self.ignore);
        // The labels from that of the first token of the answer to the first given label.
        let lost = |b: usize| {
            let first = self.answer(b, &ids[b]).checked_sub(by)?;
            let end = (first..ids[b].len()).find(|&k| has(b, k)).filter(|_| self.real(b, first + by))?;
            Some((first..end).map(move |k| (b, k, ids[b][k + by])))
        };
        let lost: Vec<Entry> = (0..ids.len()).filter_map(lost).flatten().collect();
        let rows: BTreeSet<usize> = lost.iter().map(|entry| entry.0).collect();
        let (what, long) = match lost.len() == rows.len() {
            true => ("the first token of the answer has no label", "one label"),
            false => ("the first tokens of the answer have no label", "several labels"),
        };
        let (places, all) = (labels.places("label", &lost), counted(ids.len() as u64, "batch row"));
        let hint = if by == 1 { " (in shifted labels, the prompt has prompt_len - 1 labels)" } else { "" };
        fault("loss_mask_missing", Certainty::Likely, lost, |_| {
            format!("{what} in {} of {all} ({places}): the ignored prompt is {long} too long{hint}", rows.len())
        })
    }

    /// Returns a finding if texts contain the end-of-text token (eos), but no label is eos; otherwise `None`.
    fn ends(&self, labels: &Table<'_>, ids: &[Vec<i64>], by: Option<i64>) -> Option<Fault> {
        let eos = self.context.eos_id?;
        let at =
            |b: usize| (0..ids[b].len()).filter(move |&k| ids[b][k] == eos && self.real(b, k)).map(move |k| (b, k));
        let ends: Vec<(usize, usize)> = (0..ids.len()).flat_map(at).collect();
        let supervised = labels.entries().any(|(_, _, label)| label != self.ignore);
        if ends.is_empty() || !supervised || labels.entries().any(|(_, _, label)| label == eos) {
            return None;
        }
        // The end of a text has a label if the token before it has one.
        let own = |&(b, k): &(usize, usize)| {
            let at = usize::try_from(k as i64 - by?).ok().filter(|at| *at < ids[b].len())?;
            (at > 0 && labels.rows[b][at - 1] != self.ignore).then_some((b, at, eos))
        };
        let wrong: Vec<Entry> = ends.iter().filter_map(own).collect();
        let places = if wrong.is_empty() { String::new() } else { format!(" ({})", labels.places("label", &wrong)) };
        let text = format!("texts end with id {eos}, but no label is {eos}{places}: the model never learns to stop");
        let finding = Finding::of("EOS_never_learned", Certainty::Certain, text);
        Some((if self.context.pad_id.is_none_or(|pad| pad == eos) { finding.because(0) } else { finding }, wrong))
    }

    /// Checks that the completion mask of each batch row marks the tokens after the prompt, up to and including the first end-of-text
    /// token (eos), or up to the padding in a row without eos.
    pub(super) fn completion(&self, beside: &Companions<'_>) -> Option<Checked> {
        let mask = Table::of(beside, COMPLETIONS)?;
        let eos = self.context.eos_id?;
        let own = Table::of(beside, COMPLETION_IDS);
        let alone = own.is_some();
        let ids = own.or_else(|| Table::of(beside, IDS)).filter(|ids| mask.fits(&ids.rows))?;
        // The padding of other tokens, such as those of the prompts, is not that of the completions.
        let of_others = alone && beside.rows(IDS).is_some_and(|rows| rows != ids.rows);
        let intent = self.intent.filter(|intent| !of_others && intent.kv_len == ids.rows[0].len());
        let arrays = vec![mask.name.to_string(), ids.name.to_string()];
        let scene = Scene { intent, ids: Some(ids), ..*self };
        let texts = scene.completions(eos, alone)?;
        let right = |&(b, k, m): &Entry| {
            let Completion { from, text, open, .. } = &texts[b];
            // A padding id inside of a text may be a token of the text.
            let unknown = open.contains(&k) || text.contains(&k) && k + 1 < text.end && !scene.real(b, k);
            let inside = i64::from(text.contains(&k));
            (i64::from(m != 0) != inside && !unknown && k >= *from).then_some((b, k, inside))
        };
        let wrong: Vec<Entry> = mask.entries().filter_map(|entry| right(&entry)).collect();
        let (lost, extra): (Vec<Entry>, Vec<Entry>) = wrong.iter().copied().partition(|entry| entry.2 != 0);
        let says = |does: &str, part: &[Entry]| {
            (!part.is_empty())
                .then(|| format!("{does} {} ({})", counted(part.len() as u64, "token"), mask.places("token", part)))
        };
        let parts: Vec<String> = [says("includes", &extra), says("leaves out", &lost)].into_iter().flatten().collect();
        let text = format!(
            "`{}` {}, but must include the tokens after the prompt up to and including the first eos token ({eos}), or up to the padding in a row without it, and no others",
            mask.name,
            parts.join(" and ")
        );
        let finding = Finding::of("RL_completion_mask", Certainty::Certain, text);
        // Only a row that was cut off is wrong.
        let finding = if wrong.iter().all(|entry| !texts[entry.0].ends) { finding.because(1) } else { finding };
        let findings = (!wrong.is_empty()).then(|| mask.repaired(finding, &mask.with(&wrong))).into_iter().collect();
        let ends: Vec<Entry> = mask.entries().filter(|(b, k, _)| texts[*b].open.contains(k)).collect();
        let open = (!ends.is_empty()).then(|| {
            let places = mask.places("token", &ends);
            format!("whether the last tokens of rows without eos are padding ({places}): declare pad_token_id")
        });
        let says = format!(
            "`{}` marks the tokens of `{}` up to and including the first eos token, or up to the padding: {} compared",
            arrays[0],
            arrays[1],
            counted(texts.len() as u64, "row")
        );
        let arrays = [arrays, intent.map(|intent| sources(beside, self.context, intent)).unwrap_or_default()].concat();
        Some(Checked { arrays, says, findings, open: open.into_iter().collect() })
    }

    /// Returns the completions of all batch rows; `alone` is true if the rows hold nothing else.
    fn completions(&self, eos: i64, alone: bool) -> Option<Vec<Completion>> {
        let rows = &self.ids.as_ref()?.rows;
        let known = self.unknown_padding().is_none() || self.context.pad_id == Some(eos);
        let from = |b: usize| match self.context.prompt.len() {
            _ if alone => 0,
            // One number for each batch row counts the tokens of the prompt, one number for all rows counts columns.
            n if n > 1 => self.answer(b, &rows[b]).min(rows[b].len()),
            _ => (number(&self.context.prompt, b).max(0) as usize).min(rows[b].len()),
        };
        let ends = |b: usize| Some((from(b)..rows[b].len()).find(|&k| rows[b][k] == eos)? + 1);
        // If the same id follows every eos, it is the padding.
        let after: BTreeSet<i64> =
            (0..rows.len()).filter_map(|b| Some(&rows[b][ends(b)?..])).flatten().copied().collect();
        let of = |b: usize| {
            let (row, from) = (&rows[b], from(b));
            let real: Vec<usize> = (from..row.len()).filter(|&k| self.real(b, k)).collect();
            let end = ends(b).or(real.last().map(|k| k + 1)).unwrap_or(from);
            let last = if after.len() == 1 { after.first() } else { row.last() };
            let run = row[from..].iter().rev().take_while(|id| Some(*id) == last).count();
            let open = if ends(b).is_some() || known { end } else { row.len() - run };
            let start = real.first().map_or(from, |first| (*first).min(end));
            Completion { from, text: start..end, open: open..end, ends: ends(b).is_some() }
        };
        Some((0..rows.len()).map(of).collect())
    }
}
