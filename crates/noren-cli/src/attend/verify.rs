//! The output held against the 64-bit reference, row by row, so that memory stays small.

use super::inputs::Table;
use super::job::{Done, Job};
use crate::failure::{Failure, Result};
use noren::reference::{Cells, forward};
use noren::{Bias, Options, View};
use noren_mask::Score;
use rayon::prelude::*;
use serde::Serialize;

/// How far the output is from the reference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Check {
    /// The largest difference of an output value.
    pub(crate) out: f64,
    /// The largest difference of a log-sum-exp.
    pub(crate) lse: f64,
    /// What they are measured against: the largest output value of the reference.
    pub(crate) scale: f64,
    /// Differences up to `tolerance * scale` are rounding.
    pub(crate) tolerance: f64,
    /// True when all differences are, and the same rows are empty.
    pub(crate) holds: bool,
}

/// Differences and magnitudes seen so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    out: f64,
    lse: f64,
    most_out: f64,
    most_lse: f64,
    /// A value is missing on one side only: not a number, or minus infinity for an empty row.
    broken: bool,
}

impl Seen {
    fn join(self, other: Seen) -> Seen {
        Seen {
            out: self.out.max(other.out),
            lse: self.lse.max(other.lse),
            most_out: self.most_out.max(other.most_out),
            most_lse: self.most_lse.max(other.most_lse),
            broken: self.broken || other.broken,
        }
    }

    /// The difference of two values; both infinite or both no number is none.
    fn difference(&mut self, given: f32, reference: f64) -> f64 {
        let given = f64::from(given);
        if given == reference || (given.is_nan() && reference.is_nan()) {
            return 0.0;
        }
        if !given.is_finite() || !reference.is_finite() {
            self.broken = true;
            return 0.0;
        }
        (given - reference).abs()
    }
}

impl Check {
    /// Rounding moves a score of size `s` by about `s * 2^-24`, and the softmax makes of that a relative error of its
    /// weights. For scores of ordinary size the sums over keys and head_dim dominate and 1e-5 is ample; beyond 20 the
    /// tolerance grows with the log-sum-exp, which is as large as the largest score.
    fn new(seen: Seen) -> Check {
        let tolerance = 1e-5 * (seen.most_lse / 20.0).max(1.0);
        let scale = seen.most_out;
        let holds = !seen.broken && seen.out <= tolerance * scale && seen.lse <= tolerance * seen.most_lse.max(1.0);
        Check { out: seen.out, lse: seen.lse, scale, tolerance, holds }
    }
}

/// Runs the reference and compares.
pub(crate) fn against_reference(job: &Job<'_>, done: &Done) -> Result<Check> {
    let [batch, heads, q_len, _] = done.output.shape;
    let tables = job.spec.scores.iter().map(|s| Ok((s, job.inputs.table(s)?))).collect::<Result<Vec<_>>>()?;
    let seen = job.install(|| {
        (0..batch * heads * q_len)
            .into_par_iter()
            .map(|row| row_difference(job, done, &tables, row))
            .try_reduce(Seen::default, |a, b| Ok(a.join(b)))
    })?;
    Ok(Check::new(seen))
}

/// Compares with another output of the same shape, such as one that was stored.
pub(crate) fn against(given: &[f32], stored: &[f32]) -> Check {
    let mut seen = Seen::default();
    for (given, stored) in given.iter().zip(stored) {
        let stored = f64::from(*stored);
        let difference = seen.difference(*given, stored);
        seen.out = seen.out.max(difference);
        seen.most_out = seen.most_out.max(stored.abs());
    }
    Check::new(seen)
}

type Tables<'a> = [(&'a Score, Option<Table<'a>>)];

/// One query row by the reference, which sees it as a problem of its own: one batch row, one head, one query.
fn row_difference(job: &Job<'_>, done: &Done, tables: &Tables<'_>, row: usize) -> Result<Seen> {
    let d = job.inputs.dims();
    let (b, h, i) = (row / (d.heads * d.q_len), row / d.q_len % d.heads, row % d.q_len);
    let [q, k, v] = job.inputs.values();
    let group = b * d.kv_heads + h * d.kv_heads / d.heads;
    let q = View::new(&q[row * d.head_dim..][..d.head_dim], [1, 1, 1, d.head_dim])?;
    let k = View::new(&k[group * d.kv_len * d.head_dim..][..d.kv_len * d.head_dim], [1, 1, d.kv_len, d.head_dim])?;
    let v = View::new(&v[group * d.kv_len * d.v_dim..][..d.kv_len * d.v_dim], [1, 1, d.kv_len, d.v_dim])?;
    let bound = job.plan.bound();
    let allowed = |[_, _, _, j]: [usize; 4]| bound.allowed(b, h, i, j);
    let distance = |[_, _, _, j]: [usize; 4]| bound.key_position(b, j) - bound.query_position(b, i);
    let mut options = Options { scale: job.options.scale, softcap: job.options.softcap, ..Options::default() };
    for (score, table) in tables {
        match (score, table) {
            (Score::Bias { .. }, Some(table)) => options.bias.push(Bias::Dense(table.row([b, h, i])?)),
            (Score::Relative { .. }, Some(table)) => {
                options.bias.push(Bias::Relative { table: table.row([b, h, i])? });
            }
            (Score::Soft { .. }, Some(table)) => options.soft = Some(table.row([b, h, i])?),
            (Score::Sinks { .. }, Some(table)) => options.sinks = Some(&table.data[h..=h]),
            _ => {}
        }
    }
    for bias in &job.options.bias {
        if let Bias::Alibi(slopes) = bias {
            options.bias.push(Bias::Alibi(vec![slopes[h]]));
        }
    }
    let reference = forward(&q, &k, &v, &Cells { allowed: &allowed, distance: &distance }, &options);
    let mut seen = Seen { most_lse: finite(reference.lse[0]), ..Seen::default() };
    seen.lse = seen.difference(done.output.lse[row], reference.lse[0]);
    let given = &done.output.out[row * d.v_dim..][..d.v_dim];
    if given.len() != reference.out.len() {
        return Err(Failure::new("the reference's output has another shape"));
    }
    for (given, reference) in given.iter().zip(&reference.out) {
        let difference = seen.difference(*given, *reference);
        seen.out = seen.out.max(difference);
        seen.most_out = seen.most_out.max(finite(*reference));
    }
    Ok(seen)
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value.abs() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_holds_and_errors_do_not() {
        let stored = [1.0, -2.0, 0.5];
        assert!(against(&[1.0 + 1e-6, -2.0, 0.5], &stored).holds);
        assert!(!against(&[1.0 + 1e-4, -2.0, 0.5], &stored).holds);
        assert!(!against(&[f32::NAN, -2.0, 0.5], &stored).holds);
        assert!(!against(&[1.0, f32::NEG_INFINITY, 0.5], &stored).holds);
        assert!(against(&[0.0, f32::NAN], &[0.0, f32::NAN]).holds);
        assert!(!against(&[1e-9], &[0.0]).holds);
    }
}
