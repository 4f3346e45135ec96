//! The course of a diagnosis: decode, compare with every intent, search, rank.

use super::align::{Alignment, align};
use super::companions;
use super::context::{Context, Role};
use super::decode::{Decoded, Fill, decode};
use super::expect::{Hypothesis, hypotheses};
use super::intent::{Groups, Intent, PerRow, row};
use super::known::{Companions, Known};
use super::report::{Certainty, Finding, Report, Severity};
use super::search::{Explanation, Target};
use super::{Patient, Values};
use crate::Error;
use crate::keep::{Keep, bit, count, ends, row_of};
use crate::recognise::recognise;
use std::rc::Rc;

/// Bytes from which an array is worth a note.
const LARGE: u64 = 16 << 20;
/// Cells listed in a finding.
const SHOWN: usize = 8;

pub(crate) fn diagnose(patient: &Patient) -> Result<Report, Error> {
    let beside = Companions(&patient.companions);
    let mut report = Report {
        description: String::new(),
        expression: None,
        findings: Vec::new(),
        near: Vec::new(),
        unknown: Vec::new(),
        given: None,
        fixed: None,
        intended: None,
    };
    let Some(mask) = &patient.mask else {
        report.description = "no mask was given: only the arrays beside it were looked at".into();
        report.findings = companions::look(&beside, &patient.context, None);
        return Ok(report);
    };
    let alignment = align(mask, &beside, &patient.context)?;
    if let Some((meant, text)) = &patient.meant {
        against_expression(mask, patient, &alignment, meant, text, &mut report)?;
        return Ok(report);
    }
    let case = Case::new(mask, &beside, &patient.context, alignment);
    let verdict = case.judge(&mut report);
    report.findings.extend(companions::look(&beside, &patient.context, Some(&verdict)));
    if let Some(intent) = &verdict.intent {
        report.findings.extend(super::bias::look(mask, &case.decoded, &case.known, &patient.context, intent));
    }
    report.findings.extend(case.against_scores(&beside));
    report.findings.extend(case.memory());
    if patient.context.kind.is_none() && !report.sick() {
        report.near = case.neighbours(&verdict.keep);
    }
    case.describe(&mut report, verdict.intent.as_ref());
    rank(&mut report.findings);
    Ok(report)
}

/// What later checks need of the verdict.
pub(crate) struct Verdict {
    /// The cells as they were meant, of all queries and keys.
    pub(crate) keep: Keep,
    /// The intent that the mask was held against.
    pub(crate) intent: Option<Intent>,
}

/// A mask with everything that is known, decoded.
struct Case<'a> {
    mask: &'a Values,
    context: &'a Context,
    alignment: Alignment,
    decoded: Decoded,
    known: Known,
}

impl<'a> Case<'a> {
    fn new(mask: &'a Values, beside: &Companions<'_>, context: &'a Context, alignment: Alignment) -> Self {
        let decoded = decode(mask, alignment.dims, context, alignment.keys_only);
        let mut known = Known::new(beside, context, alignment.wanted.unwrap_or(alignment.sizes));
        if let Some(segments) = &decoded.segments
            && known.segments.is_none()
        {
            known.valid = Some(Rc::new(segments.iter().map(|r| super::known::bits(r.len(), |k| r[k] != 0)).collect()));
            known.q_valid = Some(Rc::new(segments.iter().map(|r| r.iter().map(|s| *s != 0).collect()).collect()));
            known.segments = Some(Rc::new(segments.clone()));
        }
        Case { mask, context, alignment, decoded, known }
    }

    /// All sizes of the cells.
    fn dims(&self) -> [usize; 4] {
        let sizes = self.alignment.sizes;
        [sizes.batch, self.alignment.dims[1], sizes.q_len, sizes.kv_len]
    }

    /// `keep` over all queries and keys; a row of keys is joined with what its slot adds (causality, say).
    fn whole(&self, keep: &Keep, structure: Option<&Intent>) -> Keep {
        let mut whole = keep.expand(self.dims());
        let Some(intent) = structure.filter(|_| self.alignment.keys_only) else { return whole };
        let open = Intent { valid: None, segments: None, tail: None, ..intent.clone() };
        let [batch, heads, q_len, kv_len] = self.dims();
        if open.q_len != q_len || open.kv_len != kv_len {
            return whole;
        }
        let mut words = vec![0; open.words()];
        for b in 0..batch {
            for i in 0..q_len {
                open.fill(b, i, &mut words);
                for h in 0..heads {
                    whole.row_mut(b, h, i).iter_mut().zip(&words).for_each(|(w, o)| *w &= o);
                }
            }
        }
        whole
    }

    fn judge(&self, report: &mut Report) -> Verdict {
        let decoded = &self.decoded;
        report.findings.extend(decoded.findings.iter().cloned());
        let rough = decoded.keep.expand(self.dims());
        let mut hypotheses =
            hypotheses(&self.known, self.context, Some(&rough).filter(|_| self.alignment.wanted.is_none()));
        if self.alignment.keys_only
            && let Some(first) = hypotheses.first().map(|h| h.intent.causal)
        {
            // Whether the slot is causal cannot be seen in a row of keys.
            hypotheses.retain(|h| h.intent.causal == first);
        }
        let structure = hypotheses.first().map(|h| h.intent.clone());
        let given = self.whole(&decoded.keep, structure.as_ref());
        if self.alignment.wanted.is_some() {
            return self.other_length(given, &hypotheses, report);
        }
        let readings = self.readings(&given, structure.as_ref());
        for (reading, text) in &readings {
            if let Some(intent) = self.accept(reading, &hypotheses) {
                if let Some(finding) = text {
                    report.findings.push(finding.clone());
                }
                return self.accepted(reading.clone(), intent, report);
            }
        }
        self.explain(given, &hypotheses, report)
    }

    /// The given cells in each legal reading, and what to say when another than the first one fits.
    fn readings(&self, given: &Keep, structure: Option<&Intent>) -> Vec<(Keep, Option<Finding>)> {
        let mut readings = vec![(given.clone(), None)];
        if let Some(other) = &self.decoded.other {
            readings.push((self.whole(other, structure), None));
        }
        if let Some(dims) = self.alignment.other {
            let plane = Keep::from_cells(dims, self.decoded.keep.cells());
            let mut meant = plane.expand(self.dims());
            if dims[2] == 1
                && let Some(intent) = structure.filter(|_| self.context.kind.is_some())
            {
                let open = Intent { valid: None, ..intent.clone() }.build();
                let [batch, heads, q_len, _] = self.dims();
                for b in 0..batch {
                    for h in 0..heads {
                        for i in 0..q_len {
                            meant.row_mut(b, h, i).iter_mut().zip(open.row(b, 0, i)).for_each(|(w, o)| *w &= o);
                        }
                    }
                }
            }
            let text = format!(
                "shape {:?} has two legal readings: as {:?} it is read, as {dims:?} it is what was meant; with another batch size it would \
                 fail or mean something else: give all four dimensions",
                self.mask.shape(),
                self.alignment.dims
            );
            readings.push((meant, Some(Finding::of("rank_ambiguity", Certainty::Certain, text))));
        }
        if self.alignment.flat {
            let [batch, heads, ..] = self.alignment.dims;
            let text = format!(
                "the first dimension of {} holds heads before batch rows: [{batch} x {heads}] is read with batch rows first, so batch rows \
                 read each other's masks (repeat for repeat_interleave)",
                batch * heads
            );
            readings.push((swapped(given), Some(Finding::of("head_batch_layout", Certainty::Certain, text))));
        }
        readings
    }

    /// The intent that `given` is, if any.
    fn accept(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Option<Intent> {
        let target = Target::new(given);
        if let Some(hypothesis) = hypotheses.iter().find(|h| target.is(&h.intent)) {
            return Some(hypothesis.intent.clone());
        }
        let unsaid_documents = self.context.kind.is_some_and(|k| k.packed) && self.known.segments.is_none();
        let padded = |h: &Hypothesis| -> Option<Intent> {
            h.intent.valid.is_none().then(|| assumed_padding(given, &h.intent, self.alignment.keys_only)).flatten()
        };
        for hypothesis in hypotheses {
            let padded = padded(hypothesis);
            if let Some(intent) = padded.as_ref().filter(|i| target.is(i)) {
                return Some(intent.clone());
            }
            if unsaid_documents {
                let found = target.is_with_some_documents(&hypothesis.intent);
                let found = found.or_else(|| padded.as_ref().and_then(|i| target.is_with_some_documents(i)));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The cells are as declared: what is left are rows that read nothing, and leaks over several layers.
    fn accepted(&self, keep: Keep, intent: Intent, report: &mut Report) -> Verdict {
        self.empty_rows(&keep, Some(&intent), report);
        let mut fixed = keep.clone();
        self.layered_leaks(&intent, &keep, &mut fixed, report);
        report.given = Some(self.as_read(&keep));
        report.fixed = Some(fixed);
        Verdict { keep, intent: Some(intent) }
    }

    /// What the consumer reads: with a fill that hides nothing that is more than was meant.
    fn as_read(&self, keep: &Keep) -> Keep {
        match &self.decoded.effective {
            Some(effective) => effective.expand(self.dims()),
            None => keep.clone(),
        }
    }

    fn explain(&self, given: Keep, hypotheses: &[Hypothesis], report: &mut Report) -> Verdict {
        let mut target = Target::new(&given);
        target.ids = self.known.ids.as_deref().filter(|rows| rows[0].len() == self.alignment.sizes.kv_len);
        target.eos = self.context.eos_id;
        target.pad = self.context.pad_id;
        target.keys_only = self.alignment.keys_only;
        let declared = self.context.kind.is_some();
        let mut all = hypotheses.to_vec();
        if self.known.valid.is_none() {
            let padded = |h: &Hypothesis| {
                let intent = assumed_padding(&given, &h.intent, self.alignment.keys_only)?;
                Some(Hypothesis { intent, doubt: h.doubt + 0.2 })
            };
            all.extend(hypotheses.iter().filter_map(padded));
        }
        let found = target.explain(&all, declared);
        let Some(best) = found.first() else { return self.unexplained(given, hypotheses, report) };
        let right = all[best.hypothesis].intent.clone();
        self.report_explanation(best, &found, &target, &right, report);
        self.empty_rows(&given, Some(&right), report);
        let heads = given.dims()[1];
        let built = right.build();
        report.fixed = Some(built.expand([right.batch, heads, right.q_len, right.kv_len]));
        report.given = Some(self.as_read(&given));
        Verdict { keep: built, intent: Some(right) }
    }

    fn report_explanation(
        &self,
        best: &Explanation,
        found: &[Explanation],
        target: &Target<'_>,
        right: &Intent,
        report: &mut Report,
    ) {
        let (wrong_cells, first_cells) = target.wrong_cells(right, SHOWN);
        let others: Vec<&str> = found[1..]
            .iter()
            .filter(|e| e.cost < best.cost + 0.25 && e.mistakes.len() == best.mistakes.len())
            .map(|e| e.mistakes[0].0)
            .filter(|class| *class != best.mistakes[0].0)
            .collect();
        let certainty = match (self.context.kind.is_some(), best.mistakes.len(), others.is_empty()) {
            (true, 1, true) => Certainty::Certain,
            _ => Certainty::Likely,
        };
        for (class, says) in &best.mistakes {
            let mut finding = Finding::of(self.refine(class, right), certainty, says.clone());
            finding.wrong_cells = wrong_cells;
            finding.first_cells = first_cells.clone();
            report.findings.push(finding);
        }
        for class in others.into_iter().take(2) {
            let text = "the same cells would come from this mistake".to_string();
            report.findings.push(Finding::of(class, Certainty::Possible, text).severity(Severity::Note));
        }
        let leaks = Leaks::count(target.given, right);
        let mut also = |class: &'static str, text: String| {
            report.findings.push(Finding::of(class, Certainty::Certain, text).severity(Severity::Warning));
        };
        match best.mistakes[0].0 {
            "inverted_polarity" if leaks.future > 0 && right.causal.is_some() => {
                also("causal_leak", format!("{} cells let queries read keys after themselves", leaks.future));
            }
            "document_boundary_off_by_one" if leaks.documents > 0 => {
                also("cross_document", format!("{} cells let queries read another document", leaks.documents));
            }
            _ => {}
        }
    }

    /// The same mistake has another name where the mask is for encoder keys.
    fn refine(&self, class: &'static str, right: &Intent) -> &'static str {
        let cross = self.context.role == Role::Cross;
        match class {
            "implicit_causal" | "padding_keys_visible" | "stale_or_bucketed_mask" | "padding_side" if cross => {
                "cross_attention_mask"
            }
            "causal_alignment" if right.q_len == right.kv_len => class,
            class => class,
        }
    }

    /// Neither as declared nor one or two mistakes away from it.
    fn unexplained(&self, given: Keep, hypotheses: &[Hypothesis], report: &mut Report) -> Verdict {
        let target = Target::new(&given);
        let declared = self.context.kind.is_some();
        let nearest = hypotheses
            .iter()
            .map(|h| (target.wrong_cells(&h.intent, SHOWN), &h.intent))
            .min_by_key(|(wrong, _)| wrong.0);
        let Some(((wrong_cells, first_cells), right)) = nearest else {
            self.empty_rows(&given, None, report);
            (report.given, report.fixed) = (Some(self.as_read(&given)), Some(given.clone()));
            return Verdict { keep: given, intent: None };
        };
        // Without a declared kind only what every kind forbids is wrong.
        let loosest = Intent {
            causal: None,
            left: None,
            right: None,
            chunk: None,
            prefix: None,
            blocks: None,
            tree: None,
            ..right.clone()
        };
        // A tree that is given in full needs no kind beside it.
        let declared = declared || right.tree.is_some();
        let forbidden = Leaks::count(&given, &loosest);
        let worst = Leaks::count(&given, right);
        let class = match () {
            () if forbidden.documents > 0 && forbidden.documents >= forbidden.padding => "cross_document",
            () if forbidden.padding > 0 => "padding_keys_visible",
            () if forbidden.redacted > 0 => "multi_hop_leak",
            () if self.unwritten(&given) && worst.visible > 0 => "unwritten_cache_visible",
            () if !declared => "",
            () if worst.future > 0 && right.causal.is_some() => "causal_leak",
            () if right.left.is_some() => "window_missing_or_wrong_layer",
            () if right.chunk.is_some() => "chunk_boundary",
            () if right.tree.is_some() => "tree_mask",
            () => "unexplained_difference",
        };
        if class.is_empty() {
            report
                .unknown
                .push("what kind of mask this should be: declare `kind`, and every cell is held against it".into());
            self.empty_rows(&given, None, report);
            (report.given, report.fixed) = (Some(self.as_read(&given)), Some(given.clone()));
            return Verdict { keep: given, intent: None };
        }
        let mut finding = Finding::of(
            class,
            Certainty::Likely,
            format!(
                "{wrong_cells} cells differ from what was declared, and no one or two known mistakes explain them all: {} visible that \
                 should be hidden, {} hidden that should be visible",
                worst.visible, worst.hidden
            ),
        );
        finding.wrong_cells = wrong_cells;
        finding.first_cells = first_cells;
        report.findings.push(finding);
        self.empty_rows(&given, Some(right), report);
        report.given = Some(self.as_read(&given));
        let built = right.build();
        report.fixed = Some(built.expand([right.batch, given.dims()[1], right.q_len, right.kv_len]));
        Verdict { keep: built, intent: Some(right.clone()) }
    }

    /// Whether slots are visible that lie behind the newest token of a declared cache.
    fn unwritten(&self, given: &Keep) -> bool {
        let [batch, heads, q_len, kv_len] = given.dims();
        let declared = !self.context.past.is_empty() && self.known.k_positions.is_none();
        let written = |b: usize| super::intent::number(&self.known.past, b).max(0) as usize + q_len;
        let reads = |b: usize, h: usize, i: usize| ends(given.row(b, h, i)).is_some_and(|e| e.1 >= written(b));
        declared && (0..batch).any(|b| written(b) < kv_len && (0..heads).any(|h| (0..q_len).all(|i| reads(b, h, i))))
    }

    /// The array has another number of keys than there are.
    fn other_length(&self, given: Keep, hypotheses: &[Hypothesis], report: &mut Report) -> Verdict {
        let sizes = self.alignment.sizes;
        let wanted = self.alignment.wanted.unwrap_or(sizes);
        let cached = self.context.past.iter().any(|p| *p > 0);
        let (class, text) = match () {
            () if self.context.role == Role::Cross => (
                "cross_attention_mask",
                format!(
                    "the mask has {} keys but the encoder has {} tokens: a mask of the decoder itself was passed",
                    sizes.kv_len, wanted.kv_len
                ),
            ),
            () if sizes.kv_len < wanted.kv_len && cached => (
                "stale_decode_mask",
                format!(
                    "the mask has {} keys but cache and new tokens are {}: it was not extended while decoding",
                    sizes.kv_len, wanted.kv_len
                ),
            ),
            () => (
                "stale_or_bucketed_mask",
                format!(
                    "the mask has {} keys but there are {}: it was made for another batch",
                    sizes.kv_len, wanted.kv_len
                ),
            ),
        };
        report.findings.push(Finding::of(class, Certainty::Certain, text));
        let fixed = hypotheses.first().map(|h| h.intent.build());
        report.given = Some(given.clone());
        let intent = hypotheses.first().map(|h| h.intent.clone());
        report.fixed = fixed.clone();
        Verdict { keep: fixed.unwrap_or(given), intent }
    }

    /// Rows that read nothing: what becomes of them depends on the fill, and whether it matters on who they are.
    fn empty_rows(&self, keep: &Keep, intent: Option<&Intent>, report: &mut Report) {
        let own = self.decoded.keep.expand(self.dims());
        let [batch, heads, q_len, _] = own.dims();
        let (mut real, mut padding) = (Vec::new(), Vec::new());
        let mut meant = 0;
        let mut words = intent.map(|i| vec![0; i.words()]).unwrap_or_default();
        for b in 0..batch {
            for i in 0..q_len {
                let empty = (0..heads).find(|&h| own.row(b, h, i).iter().all(|w| *w == 0));
                let Some(h) = empty else { continue };
                let cares = self.known.q_valid.as_ref().is_none_or(|v| row(v, b).get(i).copied().unwrap_or(true));
                if let Some(intent) = intent.filter(|_| cares) {
                    intent.fill(b, i, &mut words);
                    meant += usize::from(words.iter().all(|w| *w == 0) && self.known.valid.is_some());
                }
                if cares { &mut real } else { &mut padding }.push([b, h, i, 0]);
            }
        }
        let becomes = match self.decoded.fill {
            Fill::Infinite => "-inf in every cell makes NaN, which spreads through the values into the next layer",
            Fill::Finite => {
                "a finite fill in every cell makes an even average over all keys, padding and future included"
            }
            Fill::Logical => "what it becomes depends on the backend: 0, NaN, or an even average over all keys",
        };
        if !real.is_empty() && real.len() > meant {
            let mut finding = Finding::of(
                "fully_masked_row",
                Certainty::Certain,
                format!("{} row(s) of real queries may read no key: {becomes}", real.len()),
            );
            finding.first_cells = real.iter().copied().take(SHOWN).collect();
            report.findings.push(finding);
        }
        if !padding.is_empty() {
            let harmful = match self.decoded.fill {
                Fill::Infinite => true,
                Fill::Finite => false,
                Fill::Logical => self.decoded.drop && self.context.api_has(&["multihead", "nn.transformer", "mha"]),
            };
            let severity = if harmful && !self.alignment.keys_only { Severity::Error } else { Severity::Note };
            let text = format!(
                "{} row(s) of padding queries may read no key: {becomes}; let padding rows read themselves",
                padding.len()
            );
            let mut finding = Finding::of("fully_masked_row", Certainty::Certain, text).severity(severity);
            finding.first_cells = padding.iter().copied().take(SHOWN).collect();
            report.findings.push(finding);
        }
        let _ = keep;
    }

    /// A redacted key that protected queries do not read, but somebody whom they read does.
    fn layered_leaks(&self, intent: &Intent, keep: &Keep, fixed: &mut Keep, report: &mut Report) {
        let layers = self.context.layers.unwrap_or(2);
        let [batch, heads, q_len, kv_len] = keep.dims();
        if layers < 2 || q_len != kv_len {
            return;
        }
        for redaction in self.context.redactions.iter().filter(|r| !r.queries.is_empty()) {
            for b in 0..batch {
                for &key in redaction.keys.iter().filter(|&&k| k < kv_len) {
                    let Some(path) = shortest_path(keep, b, key, &redaction.queries, layers) else { continue };
                    let steps: Vec<String> = path.iter().map(usize::to_string).collect();
                    let text = format!(
                        "key {key} is hidden from query {}, but reaches it over {} layers: {}",
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
        let _ = intent;
    }

    /// A fill must hide whatever scores there are, and in half precision must not overflow with them.
    fn against_scores(&self, beside: &Companions<'_>) -> Option<Finding> {
        let measured = || {
            let scores = beside.get(&["scores", "attention_scores", "logits_before_mask"])?;
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
                format!("hidden cells hold {fill}, but scores reach {bound:.1}: hiding for good takes {needed:.0} or less"),
            )),
            () if compute == super::Dtype::F16 && fill < -65504.0 + bound => Some(
                Finding::of(
                    "double_mask_overflow",
                    Certainty::Likely,
                    format!("in float16 the fill {fill} and a score of -{bound:.1} are below -65504 together: -inf, and NaN in a row without any key"),
                )
                .severity(Severity::Warning),
            ),
            () => None,
        }
    }

    /// What a mask of undeclared kind is one known mistake away from.
    fn neighbours(&self, given: &Keep) -> Vec<String> {
        let [batch, _, q_len, kv_len] = given.dims();
        if self.alignment.keys_only || q_len * kv_len > 1 << 22 {
            return Vec::new();
        }
        let mut causal = Intent::new(batch, q_len, kv_len, self.known.past.clone());
        (causal.valid, causal.q_valid) = (self.known.valid.clone(), self.known.q_valid.clone());
        causal.causal = Some(0);
        let full = Intent { causal: None, ..causal.clone() };
        let mut known = vec![Hypothesis { intent: causal, doubt: 0.0 }, Hypothesis { intent: full, doubt: 0.0 }];
        let padded: Vec<Hypothesis> = known
            .iter()
            .filter(|h| h.intent.valid.is_none())
            .filter_map(|h| Some(Hypothesis { intent: assumed_padding(given, &h.intent, false)?, doubt: 0.1 }))
            .collect();
        known.extend(padded);
        let target = Target::new(given);
        if known.iter().any(|h| target.is(&h.intent)) {
            return Vec::new();
        }
        let mut near: Vec<String> = Vec::new();
        for found in target.explain(&known, true).iter().filter(|e| e.mistakes.len() == 1) {
            let right = recognise(&known[found.hypothesis].intent.build()).expression();
            let (class, says) = &found.mistakes[0];
            let text = format!("`{right}` ({class}: {says})");
            if near.len() < 3 && !near.contains(&text) {
                near.push(text);
            }
        }
        near
    }

    /// An array that says the same many times over, or that an expression says.
    fn memory(&self) -> Option<Finding> {
        let bytes = self.mask.bytes();
        let [batch, heads, ..] = self.alignment.dims;
        if bytes < LARGE || self.decoded.bias {
            return None;
        }
        let keep = &self.decoded.keep;
        let repeated = if heads > 1 && keep.heads_alike() { heads } else { 1 };
        let text = match repeated {
            1 => format!(
                "{} for a mask of {batch} x {heads} planes: an expression takes some bytes",
                crate::short_bytes(bytes.into())
            ),
            n => format!(
                "{} hold the same plane {n} times: expand, or say it as an expression",
                crate::short_bytes(bytes.into())
            ),
        };
        Some(Finding::of("memory_quadratic", Certainty::Certain, text).severity(Severity::Note))
    }

    /// `keep` with the rule's own rows where queries are padding: what they read says nothing of the mask.
    fn as_ruled(&self, keep: &Keep, intent: Option<&Intent>) -> Keep {
        let mut ruled = keep.clone();
        let [batch, heads, q_len, kv_len] = keep.dims();
        let Some(intent) = intent.filter(|i| i.q_valid.is_some() && (i.q_len, i.kv_len) == (q_len, kv_len)) else {
            return ruled;
        };
        for b in 0..batch {
            for i in (0..q_len).filter(|&i| !intent.cares(b, i)) {
                for h in 0..heads {
                    intent.fill(b, i, ruled.row_mut(b, h, i));
                }
            }
        }
        ruled
    }

    fn describe(&self, report: &mut Report, intent: Option<&Intent>) {
        let Some(given) = &report.given else { return };
        let found = recognise(&self.as_ruled(given, intent));
        let what = found.expression();
        report.description = format!(
            "{} {:?}, {}: {}{}",
            self.mask.dtype().name(),
            self.mask.shape(),
            self.decoded.reading,
            what,
            if self.decoded.bias { ", with a bias" } else { "" }
        );
        report.expression = Some(what);
        if let Some(fixed) =
            report.fixed.as_ref().filter(|_| report.findings.iter().any(|f| f.severity > Severity::Note))
        {
            let repair = recognise(&self.as_ruled(fixed, intent)).expression();
            report
                .findings
                .iter_mut()
                .filter(|f| f.severity > Severity::Note)
                .for_each(|f| f.repair = Some(repair.clone()));
            report.intended = Some(repair);
        }
        report.unknown.extend(self.context.not_understood.iter().cloned());
        if self.context.kind.is_none() && report.unknown.is_empty() {
            report.unknown.push(
                "what kind of mask this should be: `kind` is not declared, so what it looks like counts as meant"
                    .into(),
            );
        }
    }
}

/// Cells that differ from an intent in rows of real queries, by what forbids or wants them.
#[derive(Default)]
struct Leaks {
    visible: u64,
    hidden: u64,
    future: u64,
    padding: u64,
    documents: u64,
    redacted: u64,
}

impl Leaks {
    fn count(given: &Keep, right: &Intent) -> Self {
        let mut leaks = Leaks::default();
        let variants = [
            Intent { valid: None, ..right.clone() },
            Intent { segments: None, ..right.clone() },
            Intent { causal: None, ..right.clone() },
            Intent { redactions: Rc::new(Vec::new()), ..right.clone() },
        ];
        let mut words = vec![0; right.words()];
        let mut wrong = words.clone();
        let [batch, heads, q_len, _] = given.dims();
        for b in 0..batch {
            for i in (0..q_len).filter(|&i| right.cares(b, i)) {
                right.fill(b, i, &mut words);
                for h in 0..heads {
                    let row = given.row(b, h, i);
                    leaks.hidden += row.iter().zip(&words).map(|(g, w)| u64::from((w & !g).count_ones())).sum::<u64>();
                    wrong.iter_mut().zip(row).zip(&words).for_each(|((x, g), w)| *x = g & !w);
                    let visible = count(&wrong);
                    if visible == 0 {
                        continue;
                    }
                    leaks.visible += visible;
                    let mut without = vec![0; words.len()];
                    let counts = [&mut leaks.padding, &mut leaks.documents, &mut leaks.future, &mut leaks.redacted];
                    for (variant, total) in variants.iter().zip(counts) {
                        variant.fill(b, i, &mut without);
                        *total += without.iter().zip(&wrong).map(|(o, x)| u64::from((o & x).count_ones())).sum::<u64>();
                    }
                }
            }
        }
        leaks
    }
}

/// The fewest steps by which `key` reaches one of `queries`, in at most `layers`.
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

/// Padding that nobody declared: keys at one end that no other query reads, or at the start of a cache.
fn assumed_padding(given: &Keep, intent: &Intent, keys_only: bool) -> Option<Intent> {
    let [batch, _, q_len, kv_len] = given.dims();
    let cached = q_len < kv_len && !keys_only && intent.causal.is_some() && intent.left.is_none();
    if q_len != kv_len && !keys_only && !cached || intent.k_positions.is_some() || intent.tree.is_some() {
        return None;
    }
    let (mut at_start, mut at_end) = (false, false);
    let planes: Vec<Vec<u64>> = (0..batch)
        .map(|b| {
            let mut seen = vec![0u64; kv_len.div_ceil(64)];
            for i in 0..q_len {
                let own = if q_len == kv_len { i } else { usize::MAX };
                for (w, word) in given.row(b, 0, i).iter().enumerate() {
                    let diagonal = if own / 64 == w { !(1 << (own % 64)) } else { u64::MAX };
                    seen[w] |= word & diagonal;
                }
            }
            let (first, mut last) = ends(&seen).unwrap_or((0, kv_len - 1));
            // The last key of a causal mask is read by itself alone.
            if last + 2 == kv_len && q_len == kv_len && bit(given.row(b, 0, kv_len - 1), kv_len - 1) {
                last += 1;
            }
            last = if cached { kv_len - 1 } else { last };
            at_start |= first > 0;
            at_end |= last + 1 < kv_len;
            row_of(kv_len, first, last + 1)
        })
        .collect();
    // A batch is padded at one end. Where nobody reads anybody, all but a few keys would be padding.
    let longest = planes.iter().map(|p| count(p)).max().unwrap_or(0);
    let plausible = if keys_only { at_start || at_end } else { at_start != at_end };
    if !plausible || longest * 4 < kv_len as u64 {
        return None;
    }
    let real: Vec<Vec<bool>> =
        planes.iter().map(|p| (0..q_len).map(|i| q_len != kv_len || bit(p, i)).collect()).collect();
    let valid: PerRow<u64> = Rc::new(planes);
    Some(Intent { valid: Some(valid), q_valid: Some(Rc::new(real)), ..intent.clone() })
}

/// The same cells with batch rows and heads in the other order in their common dimension.
fn swapped(keep: &Keep) -> Keep {
    let [batch, heads, q_len, _] = keep.dims();
    let mut out = Keep::empty(keep.dims());
    for b in 0..batch {
        for h in 0..heads {
            let flat = h * batch + b;
            for i in 0..q_len {
                out.row_mut(b, h, i).copy_from_slice(keep.row(flat / heads, flat % heads, i));
            }
        }
    }
    out
}

/// Holds the mask against an expression that says all.
fn against_expression(
    mask: &Values,
    patient: &Patient,
    alignment: &Alignment,
    meant: &Keep,
    text: &str,
    report: &mut Report,
) -> Result<(), Error> {
    let decoded = decode(mask, alignment.dims, &patient.context, alignment.keys_only);
    report.findings.extend(decoded.findings.iter().cloned());
    let [batch, heads, q_len, kv_len] = meant.dims();
    let own = alignment.dims;
    let fits = |axis: usize, n: usize| own[axis] == 1 || n == 1 && axis < 2 || own[axis] == n;
    if !(fits(0, batch) && fits(1, heads) && fits(2, q_len) && fits(3, kv_len)) {
        return Err(Error::fact(
            "mask",
            format!("shape {:?} does not fit the declared mask's {:?}", mask.shape(), meant.dims()),
        ));
    }
    let dims = [batch.max(own[0]), heads.max(own[1]), q_len, kv_len];
    let (given, meant) = (decoded.keep.expand(dims), meant.expand(dims));
    let mut wrong = 0;
    let mut first = Vec::new();
    for b in 0..dims[0] {
        for h in 0..dims[1] {
            for i in 0..q_len {
                let row: Vec<u64> = given.row(b, h, i).iter().zip(meant.row(b, h, i)).map(|(g, m)| g ^ m).collect();
                wrong += count(&row);
                let room = SHOWN - first.len();
                first.extend(crate::keep::ones(&row).take(room).map(|k| [b, h, i, k]));
            }
        }
    }
    if wrong > 0 {
        let class = nearest_class(&given, &meant);
        let mut finding = Finding::of(class, Certainty::Likely, format!("{wrong} cells differ from `{text}`"));
        (finding.wrong_cells, finding.first_cells, finding.repair) = (wrong, first, Some(text.to_string()));
        report.findings.push(finding);
    }
    report.description =
        format!("{} {:?}, {}: {}", mask.dtype().name(), mask.shape(), decoded.reading, recognise(&given).expression());
    report.intended = Some(text.to_string());
    report.fixed = Some(meant);
    report.given = Some(given);
    rank(&mut report.findings);
    Ok(())
}

/// The mistake made on a whole array that turns one into the other, if any.
fn nearest_class(given: &Keep, meant: &Keep) -> &'static str {
    let [batch, heads, q_len, kv_len] = meant.dims();
    let inverted = || {
        given.count() + meant.count() == (batch * heads * q_len * kv_len) as u64
            && given.cells().zip(meant.cells()).all(|(g, m)| g != m)
    };
    let first_row =
        || (0..batch).all(|b| (0..heads).all(|h| (0..q_len).all(|i| given.row(b, h, i) == meant.row(0, h, i))));
    match () {
        () if inverted() => "inverted_polarity",
        () if q_len == kv_len && *given == meant.transposed() => "broadcast_wrong_axis",
        () if batch > 1 && first_row() => "batch_row_wrong",
        () => "unexplained_difference",
    }
}

/// Errors before warnings before notes; among them as they were found: values, then cells, then what follows from them.
fn rank(findings: &mut [Finding]) {
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
}

/// Documents for an intent, so that companions can be held against them.
pub(crate) fn documents(intent: &Intent) -> Option<&Groups> {
    intent.segments.as_deref()
}
