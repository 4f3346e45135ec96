//! Decides the verdict on a mask from the findings and the open questions.

use crate::intent::Intent;
use crate::report::{Open, Report, Severity, Verdict};
use std::rc::Rc;

/// The result of the search for the intended mask.
#[derive(Default)]
pub(crate) struct Outcome {
    /// True if the given cells equal the cells of an intended mask that the declarations allow.
    pub(crate) fits: bool,
    /// Open questions on which the verdict depends.
    pub(crate) open: Vec<Rc<Open>>,
    /// The most similar known mask as (description, number of cells in which the given mask differs). If the given
    /// cells are correct, this is the intended mask with 0 differing cells. `None` if the given cells were not compared
    /// with any known mask.
    pub(crate) nearest: Option<(String, u64)>,
    /// True if the array has one row of keys for each batch row: it has no kind, and is compared with the padding.
    pub(crate) rows_of_keys: bool,
}

/// Returns (number of compared cells, number of query rows that are not compared), counted over all batch rows and heads. Only rows of non-padding
/// queries are compared.
pub(crate) fn compared(intent: &Intent, heads: usize) -> (u64, u64) {
    let real: usize = (0..intent.batch).map(|b| (0..intent.q_len).filter(|&i| intent.cares(b, i)).count()).sum();
    let (rows, all) = (real * heads, intent.batch * intent.q_len * heads);
    (rows as u64 * intent.kv_len as u64, (all - rows) as u64)
}

/// The limit of similarity: a given mask resembles a known mask if at most 1 of `FAR` cells differs.
const FAR: u64 = 10;

/// Sets the fields `verdict` and `sentence` of the report from the findings and the open questions. `declared`
/// describes the declared mask; `None` if no kind is declared.
pub(crate) fn decide(report: &mut Report, outcome: &Outcome, declared: Option<&str>) {
    report.open = outcome.open.iter().map(|open| (**open).clone()).collect();
    let (verdict, sentence) = match (report.faulty(), declared) {
        (true, _) => {
            let worst = report.findings.iter().find(|f| f.severity > Severity::Note);
            (Verdict::Faulty, worst.map(|f| f.says.clone()).unwrap_or_default())
        }
        (false, Some(against)) if outcome.fits && outcome.open.is_empty() && report.compared == 0 => {
            let text = format!(
                "no cell could be compared with the declaration ({against}): all {} row(s) belong to padding or redacted \
                 queries; declare the non-padding tokens (lengths, attention_mask, or input_ids with pad_token_id)",
                report.rows_left_out
            );
            (Verdict::CannotTell, text)
        }
        (false, Some(against)) if outcome.fits && outcome.open.is_empty() => {
            let left_out = match report.rows_left_out {
                0 => String::new(),
                n => format!("; {n} row(s) of padding or redacted queries are not compared"),
            };
            let sentence =
                format!("all {} compared cells are equal to the declaration: {against}{left_out}", report.compared);
            (Verdict::Correct, sentence)
        }
        (false, Some(_)) => {
            let first = report.open.first();
            let question = first.map_or("the declaration is not complete", |open| open.question.as_str());
            let fits = if outcome.fits {
                "the mask fits one reading of the declaration, but other readings are possible"
            } else {
                "the declaration is not complete"
            };
            (Verdict::CannotTell, format!("{fits}: {question}"))
        }
        (false, None) if !report.open.is_empty() => (Verdict::CannotTell, report.open[0].question.clone()),
        (false, None) => undeclared(outcome, report.compared),
    };
    (report.verdict, report.sentence) = (verdict, sentence);
    if matches!(verdict, Verdict::LooksLike | Verdict::CannotTell) {
        // Without a verdict there is no repair.
        report.fixed = None;
    }
}

impl Report {
    /// Takes back the verdict on a correct mask, if other arrays have the open questions `open`: the sentence then names them too.
    pub(crate) fn leave_open(&mut self, open: &[String]) {
        if self.verdict == Verdict::Correct && !open.is_empty() {
            self.verdict = Verdict::CannotTell;
            self.sentence = format!("{}; but {}", self.sentence, open.join("; "));
            self.fixed = None;
        }
    }
}

/// Returns the verdict on a mask without a declared kind, and the sentence for the verdict. `cells` is the number of compared cells.
fn undeclared(outcome: &Outcome, cells: u64) -> (Verdict, String) {
    let ask = match outcome.rows_of_keys {
        true => "declare lengths, attention_mask, or input_ids with pad_token_id to get a verdict",
        false => "declare `kind` (causal, bidirectional, sliding, ...) or the intended mask to get a verdict",
    };
    match &outcome.nearest {
        Some((name, 0)) => (
            Verdict::LooksLike,
            format!(
                "{name} (0 of {cells} cells differ from this mask), but no intended mask is declared for a comparison: {ask}"
            ),
        ),
        Some((name, off)) if *off <= cells / FAR => (
            Verdict::LooksLike,
            format!(
                "{name} ({off} of {cells} cells differ from this mask), but no intended mask is declared for a comparison: {ask}"
            ),
        ),
        Some((name, off)) => (
            Verdict::CannotTell,
            format!(
                "the mask resembles no known mask (the nearest known mask is {name}; {off} of {cells} cells differ from it): {ask}"
            ),
        ),
        None => (Verdict::CannotTell, format!("the mask resembles no known mask: {ask}")),
    }
}
