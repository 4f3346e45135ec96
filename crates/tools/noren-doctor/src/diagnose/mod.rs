//! The steps of a diagnosis: decode, compare with every possible intended mask, search for mistakes, sort the findings.

pub(crate) mod arrays;
pub(crate) mod evidence;
pub(crate) mod follow;
pub(crate) mod layers;
pub(crate) mod other_length;
pub(crate) mod questions;
pub(crate) mod readings;
pub(crate) mod repair;
pub(crate) mod stated;
pub(crate) mod unexplained;

use crate::array::align::{Alignment, align};
use crate::array::decode::{Decoded, decode};
use crate::array::limits::{check_pairs, check_sizes};
use crate::array::polarity::{inverted, open_polarity};
use crate::candidates::expect::{Hypothesis, assumed_padding, hypotheses};
use crate::candidates::resemble::{in_words, padding_in_words, rows_of};
use crate::candidates::rewrites::terms;
use crate::candidates::search::Explanation;
use crate::candidates::target::Target;
use crate::companions;
use crate::companions::borders::{DOCUMENTS, where_documents_end};
use crate::companions::labels::COMPLETIONS;
use crate::companions::table::tokens_of;
use crate::companions::weights::probabilities;
use crate::diagnose::evidence::{Evidence, name_causes};
use crate::diagnose::repair::{Check, Form, Repair};
use crate::diagnose::stated::against_expression;
use crate::intent::Intent;
use crate::intent::held::Held;
use crate::intent::known::{Companions, Known, SCORES, Sizes};
use crate::intent::leaks::Leaks;
use crate::read::context::Context;
use crate::read::input::Input;
use crate::read::kinds::Role;
use crate::read::values::{Numbers, Values};
use crate::recognise::recognise;
use crate::report::verdict::{Outcome, compared, decide};
use crate::report::{Certainty, Finding, Open, Report, Severity, Verdict};
use noren_mask::bits::{bit, count, ends};
use noren_mask::{BoundMask, Error, Keep};
use std::collections::BTreeSet;
use std::rc::Rc;

pub(crate) fn diagnose(input: &Input) -> Result<Report, Error> {
    let beside = Companions(&input.companions);
    let mut report = Report { unknown: companions::unread(&beside)?, ..Report::default() };
    let Some(mask) = &input.mask else {
        check_pairs(&input.context, [1, 1], 0)?;
        report.description = "no mask was given: only the other arrays were checked".into();
        let (open, _) = arrays(input, None, None, &mut report);
        name_causes(&mut report, None);
        decide(&mut report, &Outcome { open, ..Outcome::default() }, None);
        if report.verdict != Verdict::Faulty && report.open.is_empty() {
            let matches = report.matches.join("; ");
            let open = report.unknown.first().or(report.findings.first().map(|note| &note.says));
            (report.verdict, report.sentence) = match open {
                None if !matches.is_empty() => {
                    (Verdict::Correct, format!("the given arrays fit each other: {matches}"))
                }
                None => (Verdict::CannotTell, "no mask was given, and no array could be compared".to_string()),
                Some(open) => (
                    Verdict::CannotTell,
                    format!("no mistake was found in the given arrays, but not all was compared: {open}"),
                ),
            };
        }
        return Ok(report);
    };
    let batch = input.meant.as_ref().map(|meant| meant.shape().batch_len()).filter(|batch| *batch > 1);
    let context = Context { batch: input.context.batch.or(batch), ..input.context.clone() };
    let alignment = align(mask, &beside, &context)?;
    check_sizes(mask, &alignment, &input.context)?;
    if let Some(meant) = &input.meant {
        against_expression(mask, input, &alignment, meant, &mut report)?;
        beside_expression(input, meant, &context, alignment.sizes, &mut report);
        return Ok(report);
    }
    let case = Case::new(mask, &beside, &input.context, alignment);
    case.known.check(&beside)?;
    let mut outcome = Outcome::default();
    let held = case.judge(&mut report, &mut outcome);
    report.findings.extend(case.against_scores(&beside));
    case.describe(&mut report, held.intent.as_ref());
    case.offer(&beside, held.intent.as_ref(), &mut report);
    let about_mask = report.findings.len();
    let sizes = Sizes { batch: case.known.batch, q_len: case.known.q_len, kv_len: case.known.kv_len };
    let (_, not_compared) = arrays(input, Some(&held), Some(sizes), &mut report);
    // A fill that does not hide cells explains the probabilities of hidden cells.
    let ignored = report.findings.iter().position(|f| f.class == "mask_ignored_by_backend");
    let weak =
        report.findings[..about_mask].iter_mut().find(|f| ["fill_value_wrong", "float01_added"].contains(&f.class));
    if let (Some(weak), Some(at)) = (weak, ignored) {
        weak.severity = Severity::Error;
        report.findings.remove(at);
    }
    if case.inverse_fits(&beside, &held) {
        report.findings.retain(|f| !["mask_ignored_by_backend", "multiplied_before_softmax"].contains(&f.class));
    }
    if let Some(intent) = &held.intent {
        report.findings.extend(crate::array::bias::look(mask, &case.decoded, &case.known, &input.context, intent));
    }
    report.findings.extend(case.memory());
    case.unknown(&mut report);
    if let Some(given) = report.given.clone() {
        let (intent, means) = (held.intent.as_ref(), input.context.window_means);
        let evidence = Evidence { mask, decoded: &case.decoded, given: &given, intent, means };
        name_causes(&mut report, Some(&evidence));
    }
    report.rank();
    let holes = case.holes().filter(|_| !report.faulty() && outcome.open.is_empty());
    outcome.open.extend(holes.map(Rc::new));
    let against = case.declared(held.intent.as_ref());
    decide(&mut report, &outcome, against.as_deref());
    report.leave_open(&not_compared);
    Ok(report)
}

/// Compares the arrays given with a mask that was compared with the intended mask `meant`, and completes its verdict.
fn beside_expression(input: &Input, meant: &BoundMask, context: &Context, sizes: Sizes, report: &mut Report) {
    let faulty = report.faulty();
    let held = report.expected.clone().map(|keep| {
        let own = Some(terms(meant)).filter(|_| context.role != Role::Cross);
        let padded = own.and_then(|terms| terms.valid.clone().and_then(|valid| terms.padded(&valid).q_valid));
        let real = padded.or_else(|| tokens_of(&Companions(&input.companions), context, sizes).q_valid);
        Held { keep, intent: None, real, given: report.given.clone() }
    });
    let (_, open) = arrays(input, held.as_ref(), Some(sizes), report);
    if report.faulty() && !faulty {
        report.rank();
        (report.verdict, report.sentence) = (Verdict::Faulty, report.findings[0].says.clone());
    }
    report.leave_open(&open);
}

/// Compares the arrays given with the mask with each other and with the mask `held`, whose sizes are `sizes`, and adds the results to the
/// report. Returns the questions on the padding, and what was not compared and leaves a correct mask without a verdict.
fn arrays(
    input: &Input,
    held: Option<&Held>,
    sizes: Option<Sizes>,
    report: &mut Report,
) -> (Vec<Rc<Open>>, Vec<String>) {
    let (beside, context) = (Companions(&input.companions), &input.context);
    let padding = companions::padding(input).and_then(|(name, alone)| Some((name, diagnose(&alone).ok()?)));
    // A faulty array does not give the padding of the others.
    let mut others = input.companions.clone();
    others.retain(|name, _| padding.as_ref().is_none_or(|(faulty, report)| name != faulty || !report.faulty()));
    let others = Companions(&others);
    let tokens = match sizes {
        Some(sizes) => Some(tokens_of(&others, context, sizes)),
        None => companions::tokens(&others, context),
    };
    let tokens = tokens.filter(|tokens| tokens.valid.is_some() || tokens.segments.is_some());
    let by_mask = held.filter(|_| input.meant.is_none());
    let intent = by_mask.map_or(tokens.as_ref(), |held| held.intent.as_ref());
    let mut checked = companions::look(&beside, context, intent, held);
    checked.extend(padding.iter().map(|(name, report)| companions::of_padding(name, input, report)));
    // The scores are compared with the numbers of the mask.
    let scores = beside.named(SCORES).filter(|_| by_mask.is_some()).map(|(name, _)| name.to_string());
    let (mut compared, mut open) = (BTreeSet::from_iter(scores), Vec::new());
    for comparison in checked {
        let sound = comparison.findings.is_empty() && comparison.open.is_empty();
        report.matches.extend(Some(comparison.says).filter(|says| sound && !says.is_empty()));
        let texts = comparison.open.into_iter().filter(|open| !report.unknown.contains(open));
        let texts: Vec<String> = texts.collect();
        let rewarded = comparison.arrays.iter().any(|name| COMPLETIONS.contains(&name.as_str()));
        open.extend(texts.iter().filter(|_| rewarded).cloned());
        report.unknown.extend(texts);
        report.findings.extend(comparison.findings);
        compared.extend(comparison.arrays);
    }
    for (decides, says) in companions::uncompared(&beside, context, &compared, sizes) {
        open.extend(Some(says.clone()).filter(|_| decides));
        report.unknown.push(says);
    }
    (padding.into_iter().flat_map(|(_, report)| report.open).map(Rc::new).collect(), open)
}

/// The given mask, the decoded cells, and the data known from the declarations and from the other given arrays.
pub(super) struct Case<'a> {
    pub(super) mask: &'a Values,
    pub(super) context: &'a Context,
    pub(super) alignment: Alignment,
    pub(super) decoded: Decoded,
    pub(super) known: Known,
}

impl<'a> Case<'a> {
    fn new(mask: &'a Values, beside: &Companions<'_>, context: &'a Context, alignment: Alignment) -> Self {
        let decoded = decode(mask, alignment.dims, context);
        let mut known = Known::new(beside, context, alignment.wanted.unwrap_or(alignment.sizes));
        if let Some(segments) = &decoded.segments
            && known.segments.is_none()
        {
            known.valid =
                Some(Rc::new(segments.iter().map(|r| crate::intent::known::bits(r.len(), |k| r[k] != 0)).collect()));
            known.q_valid = Some(Rc::new(segments.iter().map(|r| r.iter().map(|s| *s != 0).collect()).collect()));
            known.segments = Some(Rc::new(segments.clone()));
        }
        Case { mask, context, alignment, decoded, known }
    }

    /// Returns true if nothing states whether true allows a cell, and the given probabilities are those of the inverted array: the backend
    /// did not ignore the mask then.
    fn inverse_fits(&self, beside: &Companions<'_>, held: &Held) -> bool {
        let inverse = Held { keep: inverted(&held.keep), given: None, ..held.clone() };
        let checked = || probabilities(beside, self.context, Some(&inverse));
        open_polarity(&self.decoded, self.context) && checked().is_none_or(|checked| checked.findings.is_empty())
    }

    /// Returns the cells `keep` together with the intended mask, for later checks such as the check of probabilities.
    /// `intent` is `None` if no intended mask was found.
    pub(super) fn held(&self, keep: Keep, intent: Option<Intent>) -> Held {
        Held { keep, intent, real: self.known.q_valid.clone(), given: None }
    }

    /// Returns the sizes `[batch, heads, q_len, kv_len]` of the given mask after broadcasting. Only `heads` is not
    /// broadcast: it is 1 if the array has no dimension of heads.
    pub(super) fn dims(&self) -> [usize; 4] {
        let sizes = self.alignment.sizes;
        [sizes.batch, self.alignment.dims[1], sizes.q_len, sizes.kv_len]
    }

    /// Returns `keep` expanded to all queries and keys. `structure` is the most likely intended mask. If the array has
    /// only one row of keys for each batch row, the cells that `structure` hides for reasons such as causality are also
    /// hidden, because the attention function adds these terms.
    pub(super) fn whole(&self, keep: &Keep, structure: Option<&Intent>) -> Keep {
        let whole = keep.expand(self.dims());
        let [_, _, q_len, kv_len] = self.dims();
        match structure.filter(|s| self.alignment.keys_only && (s.q_len, s.kv_len) == (q_len, kv_len)) {
            Some(intent) => Intent { valid: None, segments: None, tail: None, ..intent.clone() }.cut(&whole, true),
            None => whole,
        }
    }

    /// Completes the report of an array that has two possible readings: adds the question `open`.
    pub(super) fn asked(&self, open: Open, report: &mut Report, outcome: &mut Outcome) -> Held {
        let keep = self.decoded.keep.expand(self.dims());
        report.given = Some(keep.clone());
        outcome.open.push(Rc::new(open));
        // The other arrays are compared with the reading that has the known padding.
        let other = Some(inverted(&self.decoded.keep)).filter(|_| open_polarity(&self.decoded, self.context));
        let other = other.filter(|other| self.known.valid.as_ref().is_some_and(|valid| **valid == rows_of(other)));
        self.held(other.map_or(keep, |other| other.expand(self.dims())), None)
    }

    /// Returns a description of the declared mask; `None` when no kind is declared, and no padding for rows of keys.
    fn declared(&self, intent: Option<&Intent>) -> Option<String> {
        if self.context.kind.is_none() && self.is_compared_padding() {
            let boolean = matches!(self.mask.numbers(), Numbers::Bool(_));
            let otherwise = match boolean && open_polarity(&self.decoded, self.context) {
                true => {
                    " (not declared; it is inverted for a function in which true = ignored, such as nn.MultiheadAttention)"
                }
                false => "",
            };
            let reading = &self.decoded.reading;
            return Some(format!("the padding of the batch; the array is read as rows of keys, {reading}{otherwise}"));
        }
        let name = self.context.kind_name.as_ref().filter(|_| self.context.kind.is_some())?;
        let shape = if self.alignment.keys_only { "rows of keys" } else { "queries by keys" };
        let terms = intent.map(|intent| format!(" ({})", in_words(intent))).unwrap_or_default();
        Some(format!("kind={name}{terms}; the array is read as {shape}, {}", self.decoded.reading))
    }

    fn judge(&self, report: &mut Report, outcome: &mut Outcome) -> Held {
        let decoded = &self.decoded;
        let open = decoded.question.clone().filter(|_| self.known.segments.is_none() || self.mask.is_real());
        report.findings.extend(decoded.findings.iter().cloned());
        let meaning = self.meaning();
        if let Some(open) = open.or_else(|| meaning.clone().filter(|_| self.meaning_first())) {
            return self.asked(open, report, outcome);
        }
        let rough = decoded.keep.expand(self.dims());
        let mut hypotheses =
            hypotheses(&self.known, self.context, Some(&rough).filter(|_| self.alignment.wanted.is_none()));
        if self.alignment.keys_only {
            // A row of keys does not show whether the attention is causal. Without a declared kind every hidden key counts.
            let both_ways = self.context.kind.is_none() && hypotheses.iter().any(|h| h.intent.causal.is_none());
            let first = hypotheses.first().and_then(|h| h.intent.causal).filter(|_| !both_ways);
            hypotheses.retain(|h| h.intent.causal == first);
        }
        if let Some(rows) = self.rows_meant().map(Rc::new) {
            hypotheses.iter_mut().for_each(|h| h.intent = h.intent.clone().padded(&rows));
        }
        let structure = hypotheses.first().map(|h| h.intent.clone());
        let given = self.whole(&decoded.keep, structure.as_ref());
        if let Some(wanted) = self.alignment.wanted {
            return match self.trimmed(wanted) {
                Some(open) => self.asked(open, report, outcome),
                None => self.other_length(given, wanted, &hypotheses, report),
            };
        }
        let square = given.dims()[2] == given.dims()[3];
        // A row that hides every key may be the padding of a text of full length, in which true means "ignored".
        let emptied = rows_of(&self.decoded.keep).iter().any(|row| ends(row).is_none());
        if let Some(open) = meaning.clone().filter(|_| emptied && !square) {
            return self.asked(open, report, outcome);
        }
        let readings = self.readings(&given, structure.as_ref());
        for (reading, text) in &readings {
            if let Some((intent, open)) = self.accept(reading, &hypotheses) {
                if let Some(open) = self.only_padding(&intent) {
                    return self.asked(open, report, outcome);
                }
                report.findings.extend(text.clone());
                (outcome.fits, outcome.open) = (true, if self.context.kind.is_some() { open } else { Vec::new() });
                return self.accepted(reading.clone(), intent, report, outcome);
            }
        }
        let ways = [Self::which_side, Self::which_chunks];
        if let Some(open) = ways.iter().find_map(|way| way(self, &given, &hypotheses)) {
            return self.asked(open, report, outcome);
        }
        if let Some((reading, finding, intent)) = self.undeclared_family(&readings, &hypotheses) {
            report.findings.extend(finding);
            outcome.fits = true;
            return self.accepted(reading, intent, report, outcome);
        }
        if let Some(open) = meaning.clone().filter(|_| !square) {
            return self.asked(open, report, outcome);
        }
        if let Some(open) = self.other_polarity(&hypotheses, structure.as_ref()) {
            // The set of rows without visible keys depends on the answer to the question, so no empty rows are
            // reported.
            outcome.open.push(Rc::new(open));
            report.given = Some(given.clone());
            return self.held(given, None);
        }
        if self.lacks_groups()
            && let Some(first) = hypotheses.first()
        {
            outcome.open = first.open.clone();
            (report.compared, report.rows_left_out) = compared(&first.intent, given.dims()[1]);
            return self.undecided(given, None, report);
        }
        // A window with unequal sides is one reading of a declared width. It is not the intended mask of a faulty array.
        hypotheses.retain(|h| h.intent.right.is_none() || h.intent.left == h.intent.right);
        self.explain(given, &hypotheses, report, outcome)
    }

    /// Returns true if the declared kind has a tree or blocks, but no given array lists them. A cell that differs from
    /// the declared mask may then belong to the tree or to a block.
    fn lacks_groups(&self) -> bool {
        let kind = self.context.kind.unwrap_or_default();
        kind.tree && self.known.parents.is_none() || kind.blocks && self.known.blocks.is_none()
    }

    /// Returns the first mask among `hypotheses` that equals `given`, and the questions on which this result depends.
    /// If padding or documents are not declared, they are also read from `given` and added to each mask. Returns `None`
    /// if no mask equals `given`.
    pub(super) fn accept(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Option<(Intent, Vec<Rc<Open>>)> {
        let target = Target::new(given);
        if let Some(hypothesis) = hypotheses.iter().find(|h| target.is(&h.intent)) {
            let same_cells = hypotheses.iter().all(|h| target.is(&h.intent));
            let open: Vec<_> = hypothesis.open.iter().filter(|open| !(same_cells && open.between)).cloned().collect();
            return Some((hypothesis.intent.clone(), self.named(&open, &hypothesis.intent)));
        }
        let unsaid_documents = self.context.kind.is_some_and(|k| k.packed) && self.known.segments.is_none();
        for hypothesis in hypotheses {
            if let Some(intent) = unsaid_documents.then(|| target.is_with_some_documents(&hypothesis.intent)).flatten()
            {
                let open = self.named(&hypothesis.open, &intent);
                return Some((intent, open));
            }
            let assumed = assumed_padding(given, &hypothesis.intent, self.assumes());
            for padded in assumed.filter(|_| hypothesis.intent.valid.is_none()) {
                let documents = || unsaid_documents.then(|| target.is_with_some_documents(&padded)).flatten();
                if let Some(intent) = Some(&padded).filter(|i| target.is(i)).cloned().or_else(documents) {
                    let mut open = self.named(&hypothesis.open, &intent);
                    open.push(Rc::new(self.is_it_padding(&padded, None)));
                    return Some((intent, open));
                }
            }
        }
        None
    }

    /// Returns the questions `open`; the question where the documents end names the tokens at the borders of `intent`.
    fn named(&self, open: &[Rc<Open>], intent: &Intent) -> Vec<Rc<Open>> {
        let named = |open: &Rc<Open>| match open.question == DOCUMENTS {
            true => Rc::new(where_documents_end(&self.known, Some(intent), self.context.eos_id)),
            false => open.clone(),
        };
        open.iter().map(named).collect()
    }

    /// Returns two values for [`assumed_padding`]: whether the array has one row of keys for each batch row, and whether a kind is declared.
    fn assumes(&self) -> (bool, bool) {
        (self.alignment.keys_only, self.context.kind.is_some())
    }

    /// If `given` is an intended mask in which some keys are hidden from all queries, returns this mask with the question whether the
    /// hidden keys are padding. The user declared a kind and no padding.
    pub(super) fn hidden_keys(&self, given: &Keep, hypotheses: &[Hypothesis]) -> Option<(Intent, Rc<Open>)> {
        let [batch, heads, q_len, kv_len] = given.dims();
        if self.known.valid.is_some() || self.context.kind.is_none() || q_len != kv_len {
            return None;
        }
        let seen = |b: usize, k: usize| (0..heads).any(|h| (0..q_len).any(|i| bit(given.row(b, h, i), k)));
        let valid: Rc<Vec<Vec<u64>>> =
            Rc::new((0..batch).map(|b| crate::intent::known::bits(kv_len, |k| seen(b, k))).collect());
        let target = Target::new(given);
        let hides = |h: &Hypothesis| h.intent.clone().padded(&valid);
        // Padding of documents that are given is at an end of a row.
        let at_ends = |row: &Vec<u64>| ends(row).is_none_or(|(first, last)| count(row) == (last + 1 - first) as u64);
        if self.known.segments.is_some() && !valid.iter().all(at_ends) {
            return None;
        }
        let intent = hypotheses.iter().map(hides).find(|intent| target.is(intent))?;
        let open = Rc::new(self.is_it_padding(&intent, None));
        Some((intent, open))
    }

    /// Completes the report of a mask that equals the intended mask `intent`: reports rows without visible keys, and
    /// leaks over several layers.
    fn accepted(&self, keep: Keep, intent: Intent, report: &mut Report, outcome: &mut Outcome) -> Held {
        self.empty_rows(Some(&intent), report);
        let mut fixed = if report.faulty() { self.settled(keep.clone(), &intent) } else { keep.clone() };
        self.layered_leaks(&keep, &mut fixed, report);
        (report.compared, report.rows_left_out) = compared(&intent, keep.dims()[1]);
        let name = match self.alignment.keys_only && self.context.kind.is_none() {
            true => {
                let rows = rows_of(&self.decoded.keep);
                format!("one row of keys for each batch row, {}", padding_in_words(&rows, keep.dims()[3]))
            }
            false => in_words(&intent),
        };
        outcome.nearest = Some((name, 0));
        outcome.rows_of_keys = self.alignment.keys_only;
        if outcome.rows_of_keys && intent.causal.is_none() {
            let stored: usize = self.decoded.keep.dims().iter().product();
            (report.compared, report.rows_left_out) = (stored as u64, 0);
        }
        report.given = Some(self.as_read(&keep));
        // An open question may change the intended cells, so no repair is given.
        report.fixed = outcome.open.is_empty().then_some(fixed);
        self.held(keep, Some(intent))
    }

    /// Returns the allowed cells with which the attention function computes. If the numbers in hidden cells do not hide
    /// them, these are more cells than the intended cells `keep`.
    pub(super) fn as_read(&self, keep: &Keep) -> Keep {
        match &self.decoded.effective {
            Some(effective) => effective.expand(self.dims()),
            None => keep.clone(),
        }
    }

    fn explain(&self, given: Keep, hypotheses: &[Hypothesis], report: &mut Report, outcome: &mut Outcome) -> Held {
        let mut target = Target::new(&given);
        target.ids = self.known.ids.as_deref().filter(|rows| rows[0].len() == self.alignment.sizes.kv_len);
        target.eos = self.context.eos_id;
        target.pad = self.context.pad_id;
        target.keys_only = self.alignment.keys_only;
        let plane = self.decoded.keep.expand([self.alignment.sizes.batch, 1, 1, self.alignment.sizes.kv_len]);
        target.plane = Some(&plane).filter(|_| target.keys_only);
        let declared = self.context.kind.is_some();
        let mut all = hypotheses.to_vec();
        let square = given.dims()[2] == given.dims()[3];
        if self.known.valid.is_none() && (declared || square || target.keys_only) {
            for h in hypotheses {
                let assumed = assumed_padding(&given, &h.intent, self.assumes()).next();
                all.extend(assumed.map(|intent| Hypothesis { intent, doubt: h.doubt + 0.2, open: h.open.clone() }));
            }
        }
        // Without a declared kind, several documents are no mistake.
        let packed = self.open_kind() && all.iter().any(|h| target.is_packed(&h.intent));
        all.extend(self.families_near(&given, hypotheses));
        let mut found = if packed { Vec::new() } else { target.explain(&all, declared) };
        // Mistakes at the end of a cache need a known number of cached tokens.
        let cached = |class: &str| ["stale_decode_mask", "unwritten_cache_visible"].contains(&class);
        let grown = self.known.past_declared || !self.open_kind();
        found.retain(|e| grown || !e.mistakes.iter().any(|(class, _)| cached(class)));
        // Two mistakes that leave no visible cell, or in a kind that nothing declares, may be any two.
        found.retain(|e| e.mistakes.len() == 1 || given.count() > 0 && !self.open_kind());
        let Some(best) = found.first() else {
            return match self.meaning().filter(|_| !packed) {
                Some(open) => self.asked(open, report, outcome),
                None => self.unexplained(given, hypotheses, report, outcome),
            };
        };
        let right = all[best.hypothesis].intent.clone();
        let open = all[best.hypothesis].open.is_empty() && right.valid.is_some() == self.known.valid.is_some();
        self.report_explanation(best, &found, (&target, open), &right, report);
        (report.compared, report.rows_left_out) = compared(&right, given.dims()[1]);
        self.empty_rows(Some(&right), report);
        let heads = given.dims()[1];
        let built = right.build();
        // Undeclared padding is not part of a repair.
        let assumed = right.valid.is_some() && self.known.valid.is_none();
        outcome.open.extend(all[best.hypothesis].open.iter().filter(|open| declared && !open.between).cloned());
        if assumed {
            outcome.open.push(Rc::new(self.is_it_padding(&right, Some(&best.mistakes[0].1))));
        }
        let whole = || self.settled(built.expand([right.batch, heads, right.q_len, right.kv_len]), &right);
        report.fixed = (!assumed).then(whole);
        report.given = Some(self.as_read(&given));
        Held { given: Some(given), ..self.held(built, Some(right)) }
    }

    fn report_explanation(
        &self,
        best: &Explanation,
        found: &[Explanation],
        (target, answered): (&Target<'_>, bool),
        right: &Intent,
        report: &mut Report,
    ) {
        let wrong = target.wrong(right);
        let off_by_one = best.mistakes.iter().any(|(class, _)| *class == "sliding_window_off_by_one");
        let width_unclear = off_by_one && self.context.window_means.is_none();
        if width_unclear {
            report.unknown.push(
                "the meaning of `window`: a window of W keys is assumed to include the query itself; if W counts only earlier keys, declare window_means as \"keys before the query\"".into(),
            );
        }
        let declared = self.context.kind.is_some() || self.is_compared_padding();
        let certain = declared && !width_unclear && answered;
        report.findings.extend(Explanation::findings(found, certain, &wrong, &|class| self.refine(class)));
        let (class, what) = match best.mistakes[0].0 {
            "inverted_polarity" if right.causal.is_some() => ("causal_leak", "later keys"),
            "document_boundary_off_by_one" => ("cross_document", "another document"),
            _ => return,
        };
        let cells = Leaks::count(target.given, right).of(class);
        if cells > 0 {
            let text = format!("{cells} cells let queries read {what}");
            report.findings.push(Finding::of(class, Certainty::Certain, text).severity(Severity::Warning));
        }
    }

    /// Returns the class name to report for `class`. In cross-attention, several classes are reported as
    /// `cross_attention_mask`.
    fn refine(&self, class: &'static str) -> &'static str {
        let cross = self.context.role == Role::Cross;
        match class {
            "implicit_causal" | "padding_keys_visible" | "stale_or_bucketed_mask" | "padding_side" if cross => {
                "cross_attention_mask"
            }
            class => class,
        }
    }

    /// Returns `keep` with the rows of padding queries replaced by the rows of `intent`, because the cells of padding
    /// queries do not matter.
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

    /// Returns an expression for `keep` as text. Two expressions are compared: one for the cells of `keep`, and one for
    /// these cells with the rows of padding queries replaced by the rows of `intent`. An exact expression is better
    /// than an inexact one; then the one with fewer elementary masks and operators is better, then the one for `keep`.
    fn expression(&self, keep: &Keep, intent: Option<&Intent>) -> String {
        let found = [recognise(&self.as_ruled(keep, intent)), recognise(keep)];
        let [ruled, whole] = found.map(|found| (!found.is_exact(), found.parts(), found.expression()));
        if (ruled.0, ruled.1) < (whole.0, whole.1) { ruled.2 } else { whole.2 }
    }

    fn describe(&self, report: &mut Report, intent: Option<&Intent>) {
        let Some(given) = &report.given else { return };
        // Rows of keys show no causality.
        let rows = || self.as_read(&self.decoded.keep.expand(self.dims()));
        let what = match self.alignment.keys_only && self.context.kind.is_none() {
            true => self.expression(&rows(), None),
            false => self.expression(given, intent),
        };
        report.description = format!(
            "{} {:?}, {}: {}{}",
            self.mask.dtype().name(),
            self.mask.shape(),
            self.decoded.reading,
            what,
            if self.decoded.bias { ", with a bias in the visible cells" } else { "" }
        );
        report.expression = Some(what);
        if let Some(expected) = &report.expected {
            report.intended = Some(self.expression(expected, intent));
        }
    }

    /// Replaces the correct cells of a faulty mask by the repair, if the repair passes its checks. If it does not, the report has no
    /// correct cells. `report` has only findings about the mask.
    fn offer(&self, beside: &Companions<'_>, intent: Option<&Intent>, report: &mut Report) {
        let (Some(given), Some(fixed), true) = (report.given.clone(), report.fixed.clone(), report.faulty()) else {
            return;
        };
        let form = Form { mask: self.mask, decoded: &self.decoded, context: self.context, dims: self.alignment.dims };
        let cares = |b: usize, i: usize| intent.is_none_or(|intent| intent.cares(b, i));
        let check = |values: &Values| {
            let Ok(alignment) = align(values, beside, self.context) else { return Check::Faulty };
            let case = Case::new(values, beside, self.context, alignment);
            let (mut again, mut outcome) = (Report::default(), Outcome::default());
            case.judge(&mut again, &mut outcome);
            again.findings.extend(case.against_scores(beside));
            let fits = self.context.kind.is_none() || outcome.fits && outcome.open.is_empty();
            match (again.faulty(), fits) {
                (true, _) => Check::Faulty,
                (false, false) => Check::Open,
                (false, true) => Check::Correct,
            }
        };
        match Repair::new(&form, &given, &fixed, &cares, &check) {
            Some(repair) => repair.offer(report),
            // A key that is read through other tokens must be hidden from more queries than declared.
            None if report.classes() == ["multi_hop_leak"] => {}
            None => report.fixed = report.fixed.take().filter(|fixed| *fixed == given),
        }
    }

    /// Adds to the report what the declarations leave open.
    fn unknown(&self, report: &mut Report) {
        if self.context.kind.is_none() && report.faulty() && !self.is_compared_padding() {
            report.unknown.push(
                "the kind of the mask: `kind` is not declared, so the kind that the mask resembles is assumed to be intended"
                    .into(),
            );
        }
        let &[a, b] = self.mask.shape() else { return };
        if matches!(self.mask.numbers(), Numbers::Int(_))
            && a == b
            && a > 1
            && !self.context.role_declared
            && self.meaning().is_none()
        {
            report.unknown.push(format!(
                "the meaning of the {a} rows of the array: they are assumed to be queries; if they are batch rows of {b} keys, declare role=key_padding"
            ));
        }
    }
}
