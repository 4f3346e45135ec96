//! [`Report`], [`Verdict`] and [`Finding`]: what the doctor says.

use super::catalogue;
use noren_mask::Keep;
use noren_mask::{Array, BoundMask, Error, Facts, Shape, atoms};
use noren_picture::{Draw, TerminalOptions};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

/// Cells listed in a finding.
pub(super) const SHOWN: usize = 8;

/// What the doctor says of a mask as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every compared cell equals what is declared, and nothing else is wrong.
    Correct,
    /// Something is wrong: a finding is a warning or an error.
    Faulty,
    /// Nothing is declared that the mask could be held against: the report says what it resembles.
    LooksLike,
    /// The declarations or the array allow several readings, or the mask resembles nothing known.
    #[default]
    CannotTell,
}

impl Verdict {
    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Correct => "correct",
            Verdict::Faulty => "faulty",
            Verdict::LooksLike => "looks like",
            Verdict::CannotTell => "cannot tell",
        }
    }
}

/// A question that the declarations leave open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Open {
    /// The readings that are possible, and what each makes of the mask.
    pub readings: Vec<String>,
    /// What to answer, and how.
    pub question: String,
    /// True when the question does not matter where all readings give the same cells.
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

    /// A question that only matters where the readings give different cells.
    pub(crate) fn between(self) -> Self {
        Open { between: true, ..self }
    }
}

/// How sure a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// One of several explanations, or a guess at what was meant.
    Possible,
    /// What was declared leaves little else.
    Likely,
    /// Exactly this explains every cell, or the values themselves say so.
    Certain,
}

/// What a finding does to outputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; no output of a real token changes.
    Note,
    /// Depends on what reads the result.
    Warning,
    /// Outputs of real tokens are wrong.
    Error,
}

/// One thing that is wrong, or worth knowing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The class in the catalogue, see [`classes`](super::classes).
    pub class: &'static str,
    /// How sure.
    pub certainty: Certainty,
    /// How bad.
    pub severity: Severity,
    /// A sentence for a tired engineer.
    pub says: String,
    /// Number of wrong cells in rows of real queries.
    pub wrong_cells: u64,
    /// The first of them, as `[batch, head, query, key]`.
    pub first_cells: Vec<[usize; 4]>,
    /// What repairs it, as a mask of noren; only where a named mistake explains every wrong cell.
    pub repair: Option<String>,
    /// The line of code that usually causes it.
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
            cause: catalogue::class(class).map_or("", |c| c.cause),
        }
    }

    /// Converts the finding into a note.
    pub(crate) fn note(self) -> Self {
        self.severity(Severity::Note)
    }

    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

/// What the doctor found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// What is said of the mask as a whole.
    pub verdict: Verdict,
    /// The verdict's reason: against what the mask was held, what it resembles, or what to answer.
    pub sentence: String,
    /// Number of cells compared with what is declared, or with what the mask resembles.
    pub compared: u64,
    /// Rows of padding or redacted queries, which are not compared.
    pub rows_left_out: u64,
    /// Questions that the declarations leave open, with the readings that are possible.
    pub open: Vec<Open>,
    /// What the mask is, in words: "causal with left padding [3, 0], window 4".
    pub description: String,
    /// The smallest expression found for the cells, exact or with exceptions. What padding queries read is left out.
    pub expression: Option<String>,
    /// What is wrong, the worst first; notes last.
    pub findings: Vec<Finding>,
    /// Without a declared kind: which known masks it is one mistake away from.
    pub near: Vec<String>,
    /// What could not be decided, and what to declare so that it can.
    pub unknown: Vec<String>,
    /// The cells as the consumer reads them; `None` when no mask was given.
    pub given: Option<Keep>,
    /// The repaired cells, where a named mistake explains every wrong one; equal to `given` where the cells are right. `None`
    /// without a verdict, and where no named mistake explains every wrong cell.
    pub fixed: Option<Keep>,
    /// The cells that the declarations ask for, where they differ from the given ones without a known reason. With a mask
    /// that was meant in full, always that mask.
    pub expected: Option<Keep>,
    /// The mask that was meant, as an expression, where it has one.
    pub intended: Option<String>,
}

impl Report {
    /// True when something is wrong: a warning or an error.
    pub fn sick(&self) -> bool {
        self.findings.iter().any(|f| f.severity > Severity::Note)
    }

    /// The classes of what is wrong, the likeliest first, no class twice.
    pub fn classes(&self) -> Vec<&'static str> {
        let mut classes = Vec::new();
        for finding in self.findings.iter().filter(|f| f.severity > Severity::Note) {
            if !classes.contains(&finding.class) {
                classes.push(finding.class);
            }
        }
        classes
    }

    /// Sorts the findings: errors before warnings before notes, those of one severity in the order in which they were found.
    pub(crate) fn rank(&mut self) {
        self.findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    }

    /// The report as a JSON object, without the cells.
    pub fn to_json(&self) -> Value {
        json!({
            "verdict": self.verdict,
            "sentence": self.sentence,
            "compared_cells": self.compared,
            "questions": self.open,
            "sick": self.sick(),
            "classes": self.classes(),
            "description": self.description,
            "expression": self.expression,
            "intended": self.intended,
            "findings": self.findings,
            "one_mistake_away": self.near,
            "unknown": self.unknown,
        })
    }
}

impl Report {
    /// A picture of the given cells with the wrong ones marked: `+` is visible and should not be, `-` the reverse. `None`
    /// where there is nothing to compare.
    ///
    /// # Errors
    /// A width that leaves no room.
    pub fn picture(&self, options: &TerminalOptions) -> Result<Option<String>, Error> {
        let Some((fixed, given)) = self.sides()? else { return Ok(None) };
        fixed.picture_of_difference(&given).max_panels(4).to_terminal(options).map(Some)
    }

    /// The same as SVG.
    ///
    /// # Errors
    /// None that is known.
    pub fn svg(&self) -> Result<Option<String>, Error> {
        let Some((fixed, given)) = self.sides()? else { return Ok(None) };
        fixed.picture_of_difference(&given).max_panels(4).to_svg().map(Some)
    }

    /// The repaired cells, or the declared ones, or without a verdict the given ones; and the given cells; as masks.
    fn sides(&self) -> Result<Option<(BoundMask, BoundMask)>, Error> {
        let Some(given) = &self.given else { return Ok(None) };
        let (name, fixed) = match (&self.fixed, &self.expected) {
            (Some(fixed), _) => ("repaired", fixed),
            (None, Some(expected)) => ("declared", expected),
            (None, None) => ("given", given),
        };
        if given.dims() != fixed.dims() {
            return Ok(None);
        }
        let [batch, heads, q_len, kv_len] = given.dims();
        let shape = Shape::cross(q_len, kv_len).batch(batch).heads(heads);
        let bound = |name: &str, keep: &Keep| {
            let cells: Vec<bool> = keep.cells().collect();
            let facts = Facts::new().array(name, Array::keep(&keep.dims(), &cells)?);
            atoms::dense(name).bind(&shape, &facts)
        };
        Ok(Some((bound(name, fixed)?, bound("given", given)?)))
    }
}

/// Several lines of text: what the mask is, then each finding with its repair.
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
                writeln!(f, "  wrong cells: {}, the first at {}{more}", finding.wrong_cells, cells.join(" "))?;
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
        self.near.iter().try_for_each(|text| writeln!(f, "one mistake away: {text}"))?;
        self.unknown.iter().try_for_each(|text| writeln!(f, "not known: {text}"))
    }
}
