//! [`Report`], [`Verdict`] and [`Finding`]: the results of a diagnosis.

pub(crate) mod verdict;
pub(crate) mod wrong;

use crate::catalogue;
use crate::read::values::Values;
use noren_mask::Keep;
use noren_mask::{Array, Error, Facts, Shape, atoms};
use noren_picture::{Draw, Picture, TerminalOptions};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

/// Maximum number of cells listed in a finding.
pub(super) const SHOWN: usize = 8;

/// The verdict on a mask as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every compared cell equals the declared cell, and no finding is a warning or an error.
    Correct,
    /// At least one finding is a warning or an error.
    Faulty,
    /// No mask is declared, so the array cannot be checked. The report names the known mask that the array resembles.
    LooksLike,
    /// The declarations or the array allow several readings, or the mask resembles no known mask.
    #[default]
    CannotTell,
}

impl Verdict {
    /// Returns the verdict as words for reports, such as `faulty` or `looks like`.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Correct => "correct",
            Verdict::Faulty => "faulty",
            Verdict::LooksLike => "looks like",
            Verdict::CannotTell => "cannot tell",
        }
    }
}

/// A question about the intended mask that the user's declarations leave open, for example: does a window width count
/// the query's own token?
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Open {
    /// The possible answers to the question, each with the mask that the answer implies.
    pub readings: Vec<String>,
    /// The question, with the name of the declaration that answers it.
    pub question: String,
    /// True if the report contains the question only when different answers give different cells; false if the report
    /// always contains the question.
    #[serde(skip)]
    pub(crate) between: bool,
}

impl Open {
    pub(crate) fn new(readings: &[&str], question: impl Into<String>) -> Self {
        Open {
            readings: readings.iter().map(|r| (*r).to_string()).collect(),
            question: question.into(),
            between: false,
        }
    }

    /// Returns the question with the field `between` set to true: the report then contains the question only if
    /// different answers give different cells.
    pub(crate) fn between(self) -> Self {
        Open { between: true, ..self }
    }
}

/// The certainty of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The finding is one of several possible explanations, or it depends on a guess of the intended mask.
    Possible,
    /// The finding is the most likely explanation that fits the declarations.
    Likely,
    /// The finding explains every cell, or the values of the array alone prove the finding.
    Certain,
}

/// The effect of a finding on outputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A remark; the outputs of non-padding tokens do not change.
    Note,
    /// The finding may change outputs. Whether it does depends on code or numbers that were not given.
    Warning,
    /// Outputs of non-padding tokens are wrong.
    Error,
}

/// A mistake that the doctor found, or a remark.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The class in the catalogue, see [`classes`](crate::classes).
    pub class: &'static str,
    /// The certainty of the finding: certain, likely or possible.
    pub certainty: Certainty,
    /// The effect of the finding on outputs: error, warning or note.
    pub severity: Severity,
    /// The description, in one or two sentences.
    pub says: String,
    /// Number of wrong cells; 0 if the finding is not about single cells. Rows of padding queries count only if a full
    /// expression is declared.
    pub wrong_cells: u64,
    /// The first wrong cells, as `[batch, head, query, key]`.
    pub first_cells: Vec<[usize; 4]>,
    /// The repair as a mask expression, which allows exactly the cells of the repaired mask; `None` if no repair is known, if no
    /// expression allows exactly its cells, or if the finding is not about the cells of the mask.
    pub repair: Option<String>,
    /// The code that usually causes the mistake; empty if no known cause is true of the data.
    pub cause: &'static str,
}

impl Finding {
    pub(crate) fn of(class: &'static str, certainty: Certainty, says: impl Into<String>) -> Self {
        Finding {
            class,
            certainty,
            severity: Severity::Error,
            says: says.into(),
            wrong_cells: 0,
            first_cells: Vec::new(),
            repair: None,
            cause: "",
        }
    }

    /// Names the cause with index `cause` of the finding's class in the catalogue.
    pub(crate) fn because(mut self, cause: usize) -> Self {
        self.cause = catalogue::class(self.class).and_then(|c| c.causes.get(cause)).map_or("", |cause| cause.1);
        self
    }

    /// Changes the severity of the finding to a note.
    pub(crate) fn note(self) -> Self {
        self.severity(Severity::Note)
    }

    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

/// The result of a diagnosis.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The verdict on the mask as a whole.
    pub verdict: Verdict,
    /// The reason for the verdict. If the mask is faulty, this is the description of the most severe finding; otherwise
    /// the declared mask, the mask that the array resembles, or the question to answer.
    pub sentence: String,
    /// Number of cells compared with the declared mask, or with the mask that the array resembles.
    pub compared: u64,
    /// Number of query rows that are not compared, because their queries are padding or redacted.
    pub rows_left_out: u64,
    /// Questions that the declarations leave open, with the possible readings.
    pub open: Vec<Open>,
    /// A description of the mask: type, shape, convention and expression.
    pub description: String,
    /// The smallest expression found for the cells, exact or with exceptions. Cells in rows of padding queries may differ from the expression.
    /// `None` if no mask was given.
    pub expression: Option<String>,
    /// The findings, the most severe first; notes last.
    pub findings: Vec<Finding>,
    /// The comparisons of the arrays given with the mask, or without one, that found no mistake.
    pub matches: Vec<String>,
    /// Properties that could not be checked, each with the declarations that the check needs.
    pub unknown: Vec<String>,
    /// The given cells after decoding, as the attention function uses them; `None` if no mask was given.
    pub given: Option<Keep>,
    /// The correct cells; equal to `given` if all cells are correct. `None` if the verdict is `LooksLike` or `CannotTell`, if no
    /// mistake of the catalogue explains every wrong cell, or if the correct cells depend on a declaration that is missing.
    pub fixed: Option<Keep>,
    /// The repaired array, in the shape, number type and convention of the given array. It was checked like the given array, with
    /// the same declarations, and has no fault. `None` if there is no repair, or if the repaired cells need another shape.
    pub repair: Option<Values>,
    /// The declared cells. Present if a full expression is declared, or if the given cells differ from the declaration for an unknown reason;
    /// otherwise `None`.
    pub expected: Option<Keep>,
    /// The expression of the intended mask. It is present if a full expression is declared, or if the mask is faulty
    /// and `fixed` or `expected` is present; otherwise `None`.
    pub intended: Option<String>,
}

impl Report {
    /// Returns true if a finding is a warning or an error.
    pub fn faulty(&self) -> bool {
        self.findings.iter().any(|f| f.severity > Severity::Note)
    }

    /// Returns the classes of the warnings and errors, in the order of `findings`. Each class occurs once.
    pub fn classes(&self) -> Vec<&'static str> {
        let mut classes = Vec::new();
        for finding in self.findings.iter().filter(|f| f.severity > Severity::Note) {
            if !classes.contains(&finding.class) {
                classes.push(finding.class);
            }
        }
        classes
    }

    /// Sorts the findings by severity: errors, warnings, notes. Findings of equal severity keep their order.
    pub(crate) fn rank(&mut self) {
        self.findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    }

    /// Returns the report as a JSON object, without the cells.
    pub fn to_json(&self) -> Value {
        json!({
            "verdict": self.verdict,
            "sentence": self.sentence,
            "compared_cells": self.compared,
            "questions": self.open,
            "faulty": self.faulty(),
            "classes": self.classes(),
            "description": self.description,
            "expression": self.expression,
            "intended": self.intended,
            "findings": self.findings,
            "matches": self.matches,
            "unknown": self.unknown,
        })
    }
}

impl Report {
    /// Returns a picture of the given cells as text. `+` marks a cell that is visible and should be hidden, `-` a cell that is hidden and should be
    /// visible. If no cell is known to be wrong, the picture shows the given cells alone. Returns `None` if no mask was given.
    ///
    /// # Errors
    /// Returns an error if the width is too small for the picture.
    pub fn picture(&self, options: &TerminalOptions) -> Result<Option<String>, Error> {
        self.drawn(|picture| picture.to_terminal(options))
    }

    /// Returns the picture of [`picture`](Self::picture) as SVG; `None` if no mask was given.
    ///
    /// # Errors
    /// Returns an error if the picture cannot be drawn; no report is known for which this happens.
    pub fn svg(&self) -> Result<Option<String>, Error> {
        self.drawn(|picture| picture.to_svg())
    }

    /// Draws the difference between the correct cells (the repaired cells, otherwise the declared cells) and the given cells. Draws
    /// only the given cells if no correct cells are known, or if they are equal or have another size.
    fn drawn<T>(&self, draw: impl Fn(Picture<'_>) -> Result<T, Error>) -> Result<Option<T>, Error> {
        let Some(given) = &self.given else { return Ok(None) };
        let bound = |name: &str, keep: &Keep| {
            let [batch, heads, q_len, kv_len] = keep.dims();
            let cells: Vec<bool> = keep.cells().collect();
            let facts = Facts::new().array(name, Array::keep(&keep.dims(), &cells)?);
            atoms::dense(name).bind(&Shape::cross(q_len, kv_len).batch(batch).heads(heads), &facts)
        };
        let right = self.fixed.as_ref().map(|keep| ("repaired", keep));
        let right = right.or(self.expected.as_ref().map(|keep| ("declared", keep)));
        let given_cells = bound("given", given)?;
        match right.filter(|(_, keep)| keep.dims() == given.dims() && *keep != given) {
            Some((name, keep)) => draw(bound(name, keep)?.picture_of_difference(&given_cells).max_panels(4)).map(Some),
            None => draw(given_cells.picture().max_panels(4)).map(Some),
        }
    }
}

/// Writes the report as several lines of text: first the mask, then each finding with its repair.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.verdict.words(), self.sentence)?;
        writeln!(f, "{}", self.description)?;
        for finding in &self.findings {
            let severity = match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            let certainty = match finding.certainty {
                Certainty::Certain => "certain",
                Certainty::Likely => "likely",
                Certainty::Possible => "possible",
            };
            writeln!(f, "{severity}: {} ({certainty})\n  {}", finding.class, finding.says)?;
            if finding.wrong_cells > 0 {
                let cells: Vec<String> =
                    finding.first_cells.iter().map(|[b, h, q, k]| format!("({b}, {h}, {q}, {k})")).collect();
                let more = if finding.wrong_cells > cells.len() as u64 { ", ..." } else { "" };
                writeln!(
                    f,
                    "  wrong cells: {}, the first at (batch, head, query, key) = {}{more}",
                    finding.wrong_cells,
                    cells.join(" ")
                )?;
            }
            if let Some(repair) = &finding.repair {
                writeln!(f, "  repair: {repair}")?;
            }
            if !finding.cause.is_empty() && finding.severity > Severity::Note {
                writeln!(f, "  usually caused by: {}", finding.cause)?;
            }
        }
        for open in &self.open {
            writeln!(f, "question: {}", open.question)?;
            open.readings.iter().try_for_each(|reading| writeln!(f, "  - {reading}"))?;
        }
        self.matches.iter().try_for_each(|text| writeln!(f, "compared: {text}"))?;
        self.unknown.iter().try_for_each(|text| writeln!(f, "not known: {text}"))
    }
}
