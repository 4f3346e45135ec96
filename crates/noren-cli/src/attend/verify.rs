//! Comparison of the output with the 64-bit reference, row by row, so that memory stays small.

use super::job::{Done, Job};
use crate::failure::Result;
use noren::reference;
use rayon::prelude::*;
use serde::Serialize;

/// Maximum relative difference that counts as rounding, in rows without large scores.
const TOLERANCE: f64 = 1e-5;
/// Size of the scores of a row above which the tolerance of the row grows with the scores.
const ORDINARY: f64 = 20.0;

/// The differences between an output and the reference. The tolerance of each row depends only on the scores of the
/// row: a row with large scores, and so large rounding errors, does not hide errors in other rows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Check {
    /// The largest difference of an output value.
    pub(crate) out: f64,
    /// The largest difference of a log-sum-exp.
    pub(crate) lse: f64,
    /// The largest output value of the reference; output differences are relative to this value.
    pub(crate) scale: f64,
    /// The largest difference as a share of the limit of its row: up to 1 is rounding.
    pub(crate) worst: f64,
    /// Number of values that are NaN or infinite on one side only, such as in a row that is empty on one side only.
    pub(crate) one_sided: usize,
    /// True if all differences are rounding, and no value is NaN or infinite on one side only.
    pub(crate) holds: bool,
}

/// Differences and magnitudes of the rows compared until now.
#[derive(Clone, Copy, Default)]
struct Seen {
    out: f64,
    lse: f64,
    /// The largest `out / tolerance` of a row. The share of the limit is computed from this value and the scale of all
    /// rows.
    worst_out: f64,
    /// The largest difference of a log-sum-exp, as a share of its limit.
    worst_lse: f64,
    most_out: f64,
    one_sided: usize,
}

impl Seen {
    /// Adds one row: the given values and those of the reference, with the log-sum-exp if both have one.
    fn row(given: &[f32], reference: impl IntoIterator<Item = f64>, lse: Option<(f32, f64)>) -> Seen {
        let mut seen = Seen::default();
        let size = lse.map_or(0.0, |(_, reference)| finite(reference));
        if let Some((given, reference)) = lse {
            seen.lse = seen.difference(given, reference);
            seen.worst_lse = seen.lse / (TOLERANCE * size.max(1.0));
        }
        for (given, reference) in given.iter().zip(reference) {
            let difference = seen.difference(*given, reference);
            seen.out = seen.out.max(difference);
            seen.most_out = seen.most_out.max(finite(reference));
        }
        // Rounding changes a score of size `s` by about `s * 2^-24`, which is the relative error of its softmax weight.
        // For small scores, the rounding of the sums over keys and head_dim dominates. For large scores, the
        // log-sum-exp gives the size of the scores that have any weight.
        seen.worst_out = seen.out / (TOLERANCE * (size / ORDINARY).max(1.0));
        seen
    }

    fn join(self, other: Seen) -> Seen {
        Seen {
            out: self.out.max(other.out),
            lse: self.lse.max(other.lse),
            worst_out: self.worst_out.max(other.worst_out),
            worst_lse: self.worst_lse.max(other.worst_lse),
            most_out: self.most_out.max(other.most_out),
            one_sided: self.one_sided + other.one_sided,
        }
    }

    /// Returns the difference of two values; 0 if both are the same infinity or both are NaN.
    fn difference(&mut self, given: f32, reference: f64) -> f64 {
        let given = f64::from(given);
        if given == reference || (given.is_nan() && reference.is_nan()) {
            return 0.0;
        }
        if !given.is_finite() || !reference.is_finite() {
            self.one_sided += 1;
            return 0.0;
        }
        (given - reference).abs()
    }
}

impl Check {
    fn new(seen: Seen) -> Check {
        let scale = seen.most_out;
        let of_out = match seen.worst_out {
            0.0 => 0.0,
            // JSON cannot represent infinity.
            worst => (worst / scale).min(f64::MAX),
        };
        let worst = of_out.max(seen.worst_lse);
        let holds = seen.one_sided == 0 && worst <= 1.0;
        Check { out: seen.out, lse: seen.lse, scale, worst, one_sided: seen.one_sided, holds }
    }
}

/// Runs the reference and compares its output with the given output.
pub(crate) fn against_reference(job: &Job<'_>, done: &Done) -> Result<Check> {
    let [batch, heads, q_len, v_dim] = done.output.shape;
    let inputs = job.inputs.arrays()?;
    let row_difference = |row: usize| {
        let at = [row / q_len / heads, row / q_len % heads, row % q_len];
        let reference = reference::row(&inputs, &job.plan, &job.options, at);
        let given = &done.output.out[row * v_dim..][..v_dim];
        Seen::row(given, reference.out, Some((done.output.lse[row], reference.lse)))
    };
    let rows = 0..batch * heads * q_len;
    let seen = job.install(|| rows.into_par_iter().map(row_difference).reduce(Seen::default, Seen::join));
    Ok(Check::new(seen))
}

/// Compares the output with another output of the same shape, such as a stored output.
pub(crate) fn against(given: &[f32], stored: &[f32]) -> Check {
    Check::new(Seen::row(given, stored.iter().map(|x| f64::from(*x)), None))
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

    #[test]
    fn one_row_of_vast_scores_hides_no_other() {
        let vast = |out: f32| Seen::row(&[out], [1.0], Some((2e6, 2e6)));
        let plain = |out: f32, lse: f32| Seen::row(&[out], [0.5], Some((lse, 3.0)));
        let check = |a: Seen, b: Seen| Check::new(a.join(b));
        assert!(check(vast(0.9), plain(0.5, 3.0)).holds, "the row's own scores excuse it");
        let wrong = check(vast(1.0), plain(0.501, 3.0));
        assert!(!wrong.holds && (90.0..110.0).contains(&wrong.worst), "{wrong:?}");
        assert!(!check(vast(1.0), plain(0.5, 3.001)).holds, "a log-sum-exp has its own limit too");
        assert!(!check(plain(0.501, 3.0), vast(1.0)).holds);
    }

    #[test]
    fn values_on_one_side_only_are_counted() {
        let empty = Seen::row(&[0.0, 0.0], [0.25, 0.5], Some((f32::NEG_INFINITY, 1.0)));
        let check = Check::new(empty.join(Seen::row(&[f32::NAN, 1.0], [1.0, 1.0], Some((0.0, 0.0)))));
        assert!(!check.holds);
        assert_eq!(check.one_sided, 2);
        let both = Seen::row(&[0.0], [0.0], Some((f32::NEG_INFINITY, f64::NEG_INFINITY)));
        assert!(Check::new(both).holds);
        assert_eq!(against(&[1e-9], &[0.0]).worst, f64::MAX);
    }
}
