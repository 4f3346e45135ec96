//! [`audit`]: tests which inputs of a running model influence which outputs.
//!
//! A test changes an input, runs the model again, and compares outputs. Outputs that the change must not influence are
//! compared bit by bit if both calls have the same numbers of rows and tokens. Otherwise, the model may add numbers in
//! another order. A difference within the limits of rounding then passes for types narrower than `f32`, and is
//! inconclusive for `f32`. The attention, linear layers and norms of this crate are made to give a row the same bits in
//! any batch, so models of these layers normally show no such difference.
//!
//! ```
//! use candle_core::{DType, Device};
//! use candle_nn::{VarBuilder, VarMap};
//! use noren_candle::audit::{Subject, audit};
//! use noren_candle::model::{Config, DecoderConfig, Model, Stack};
//!
//! let config = Config::Decoder(DecoderConfig::llama(50, 32, 2, 4, 128));
//! let vars = VarMap::new();
//! let mut model = Model::new(&config, &VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
//! let declared = model.masks();
//! assert!(audit(&Subject::of(&model), None)?.ok());
//!
//! model.set_mask(Stack::Decoder, "layers(1: full, else: causal)".parse::<noren::Mask>()?)?;
//! let report = audit(&Subject::of(&model).declared(declared), None)?;
//! assert!(report.to_string().contains("FAIL  prefix invariance"), "{report}");
//! # Ok::<(), noren_candle::Error>(())
//! ```

mod checks;
mod lab;
mod scan;
mod subject;

pub use subject::Subject;

use crate::error::Result;
use candle_core::DType;
use lab::{Lab, Trial};
use noren_flow::audit::{PADS, ROWS, Scope};
use serde::Serialize;
use std::fmt;

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// An output changed that must stay equal, an output stayed equal that must change, or an output is NaN or
    /// infinite.
    Fail,
    /// The check decides nothing. Either outputs that must be equal differ by no more than rounding can explain, or
    /// outputs that must change stay equal in a model that rounds states to `bf16` or `f16`.
    Inconclusive,
    /// Every compared output is as the declared masks require.
    Pass,
    /// The check does not apply to the model.
    #[serde(rename = "not applicable")]
    NotApplicable,
}

/// A check with its verdict.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// Name of the check in all reports: `prefix`, `padding_left`, ...
    pub name: &'static str,
    /// The heading of the check in reports.
    pub title: &'static str,
    /// The result of the check.
    pub verdict: Verdict,
    /// The observation in words, such as "the outputs are equal to the bit", or the reason why the check does not
    /// apply.
    pub says: String,
    /// The place in the model where a forbidden influence begins: the last attention before the first difference
    /// between the two calls of the model. `None` if no output changed that must stay equal, or if the calls record no
    /// attention.
    pub place: Option<String>,
}

/// The results of an audit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The number type of the outputs, such as `f32`.
    pub dtype: String,
    /// The number type of the packed weights; `None` if the weights are not packed, or if the tested function is not a
    /// model of this crate.
    pub weights: Option<String>,
    /// Number of tokens of the tested texts.
    pub length: usize,
    /// The checks with their results.
    pub checks: Vec<Check>,
    /// The conditions that the audit did not test, such as training mode.
    pub not_tested: Vec<String>,
}

impl Report {
    /// Returns true if at least one check passed, no check failed, and no check is inconclusive.
    pub fn ok(&self) -> bool {
        let with = |verdict| self.checks.iter().any(|check| check.verdict == verdict);
        with(Verdict::Pass) && !with(Verdict::Fail) && !with(Verdict::Inconclusive)
    }

    /// Returns a sentence about the number types and the length of the texts.
    pub fn conditions(&self) -> String {
        let weights = self.weights.as_ref().map(|weights| format!(" with packed weights of {weights}"));
        format!("the model ran in {}{} over texts of {} tokens", self.dtype, weights.unwrap_or_default(), self.length)
    }

    /// Returns the names of the checks that failed.
    pub fn failures(&self) -> Vec<&'static str> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Fail).map(|check| check.name).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.conditions())?;
        for Check { title, verdict, says, place, .. } in &self.checks {
            let mark = match verdict {
                Verdict::Fail => "FAIL",
                Verdict::Inconclusive => "?",
                Verdict::Pass => "pass",
                Verdict::NotApplicable => "-",
            };
            let place = place.as_ref().map(|place| format!("; first after {place}")).unwrap_or_default();
            writeln!(f, "{mark:4}  {title:32}  {says}{place}")?;
        }
        writeln!(f, "not tested: {}", self.not_tested.join("; "))
    }
}

/// Runs all checks on texts of `length` tokens. If `length` is `None`, the length is the smallest of 72, 136 and 264 at
/// which the masks of all layers together do not let the last output depend on the third token; 72 if there is no such
/// length. A model with fewer positions gets shorter texts.
///
/// # Errors
/// Returns an error if `length`, the vocabulary or the number of positions is too small for the checks, if masks need
/// facts (data such as documents), and if a call of the model returns an error.
pub fn audit(subject: &Subject<'_>, length: Option<usize>) -> Result<Report> {
    let lab = Lab::new(subject, length)?;
    let checks = checks::battery().map(|(check, make)| {
        let (verdict, says, place) = match make(&lab)? {
            Ok(trials) => judge_all(&lab, &trials)?,
            Err(reason) => (Verdict::NotApplicable, reason, None),
        };
        Ok(Check { name: check.name, title: check.title, verdict, says, place })
    });
    let checks = checks.collect::<Result<Vec<_>>>()?;
    let names: Vec<&str> = checks.iter().map(|check| check.name).collect();
    let scope = Scope {
        longest: lab.length + PADS,
        rows: ROWS,
        training: Some(false),
        heads: lab.heads()?,
        padding: true,
        checks: &names,
        ..Scope::default()
    };
    let dtype = format!("{:?}", lab.dtype).to_lowercase();
    let weights = subject.weights.map(|(dtype, _)| dtype.to_string());
    Ok(Report { dtype, weights, length: lab.length, not_tested: scope.not_tested(), checks })
}

/// Returns the worst verdict of several trials (comparisons of two calls of the model), and the observation of the
/// trial with this verdict. If an output changed that must stay equal, also returns the name of the last attention
/// before the first difference.
fn judge_all(lab: &Lab<'_>, trials: &[Trial]) -> Result<(Verdict, String, Option<String>)> {
    let mut worst = (Verdict::Pass, "the outputs are equal to the bit".to_owned(), None);
    for (i, trial) in trials.iter().enumerate() {
        let (verdict, says) = judge(lab, trial)?;
        if i == 0 || verdict < worst.0 {
            let place = if verdict == Verdict::Fail && !trial.moved { lab.place(trial)? } else { None };
            worst = (verdict, says, place);
        }
    }
    Ok(worst)
}

/// Returns the verdict and the observation of a trial (a comparison of two calls of the model). Outputs of calls with
/// equal sizes must agree to the bit. Calls with different sizes may differ by rounding: the check passes for types
/// narrower than `f32` and is inconclusive for `f32`.
fn judge(lab: &Lab<'_>, trial: &Trial) -> Result<(Verdict, String)> {
    let base = lab.rows(&trial.base)?;
    let other = match &trial.given {
        Some(rows) => rows.clone(),
        None => lab.rows(&trial.other)?,
    };
    let mut seen = (0f32, None);
    let mut still = None;
    let mut scale = f32::MIN_POSITIVE;
    for &((row, at), (other_row, other_at)) in &trial.pairs {
        let (a, b) = (&base[row][at], &other[other_row][other_at]);
        let gap = a.iter().zip(b).fold(0f32, |most, (a, b)| if a == b { most } else { most.max((a - b).abs()) });
        let broken = a.iter().chain(b).any(|x| !x.is_finite());
        if broken {
            return Ok((Verdict::Fail, format!("{}: output {at} is NaN or infinite ({})", trial.broken, trial.what)));
        }
        scale = a.iter().fold(scale, |most, x| most.max(x.abs()));
        still = still.or((a == b).then_some(at));
        if gap > seen.0 || seen.1.is_none() && a != b {
            seen = (gap, Some(at));
        }
    }
    if trial.moved {
        return Ok(match (still, lab.narrow()) {
            (Some(at), None) => (
                Verdict::Fail,
                format!("{}: output {at} should change, but is equal to the bit ({})", trial.broken, trial.what),
            ),
            (Some(at), Some(dtype)) => (
                Verdict::Inconclusive,
                format!(
                    "output {at} should change, but is equal to the bit, perhaps because {dtype} rounds the change away ({})",
                    trial.what
                ),
            ),
            (None, _) => (Verdict::Pass, "every output that reads the changed token changes".into()),
        });
    }
    let Some(at) = seen.1 else { return Ok((Verdict::Pass, "the outputs are equal to the bit".into())) };
    let gap = seen.0 / scale;
    let bound = lab.rounding();
    let rounding = !trial.one_shape() && gap <= bound;
    Ok(match (rounding, lab.dtype) {
        (true, DType::F32) => {
            let says = format!(
                "outputs differ by {gap:.0e} of the largest output, which may be rounding that depends on the batch ({})",
                trial.what
            );
            (Verdict::Inconclusive, says)
        }
        (true, dtype) => {
            let says = format!(
                "outputs differ by {gap:.0e} of the largest output, which counts as rounding of {dtype:?} (at most {bound:.0e})"
            );
            (Verdict::Pass, says)
        }
        (false, _) => {
            let says =
                format!("{}: output {at} differs by {gap:.1e} of the largest output ({})", trial.broken, trial.what);
            (Verdict::Fail, says)
        }
    })
}
