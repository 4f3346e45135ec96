//! Compares the output of attention with the 64-bit reference, row by row, so that memory stays small.

use super::job::{Done, Job};
use crate::failure::Result;
use noren::reference;
use rayon::prelude::*;
use serde::Serialize;

/// Maximum relative difference from the reference that counts as rounding, for rows without large scores.
const TOLERANCE: f64 = 1e-5;
/// Limit of the absolute log-sum-exp of a mask row. Up to this limit, the relative tolerance of the row's outputs is
/// `TOLERANCE`; above it, this tolerance grows in proportion to the absolute log-sum-exp.
const ORDINARY: f64 = 20.0;

/// The differences between an attention output and the reference. The tolerance of each mask row depends only on the
/// scores of that row, so large rounding errors in one row do not hide errors in other rows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Check {
    /// The largest absolute difference between an output value and its reference value.
    pub(crate) out: f64,
    /// The largest absolute difference between a log-sum-exp and its reference value.
    pub(crate) lse: f64,
    /// The largest absolute output value of the reference. Tolerances of output differences are fractions of this
    /// value.
    pub(crate) scale: f64,
    /// The largest difference divided by the tolerance of its row. Values up to 1 count as rounding.
    pub(crate) worst: f64,
    /// Number of values that are NaN or infinite in the output or in the reference, but not in both.
    pub(crate) one_sided: usize,
    /// True if all differences count as rounding, and `one_sided` is 0.
    pub(crate) holds: bool,
}

/// The largest differences and values of the mask rows that were compared.
#[derive(Clone, Copy, Default)]
struct Seen {
    out: f64,
    lse: f64,
    /// The maximum over all rows of (output difference / relative tolerance of the row). `Check::new` divides this
    /// quotient by the largest reference value of all rows to compute `Check::worst`.
    worst_out: f64,
    /// The largest difference of a log-sum-exp, divided by the tolerance for the log-sum-exp of its row.
    worst_lse: f64,
    most_out: f64,
    one_sided: usize,
}

impl Seen {
    /// Compares one row. `given` are the output values, and `reference` the reference values. `lse` is (computed
    /// log-sum-exp, reference log-sum-exp), or `None` if there is no log-sum-exp to compare.
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

    /// Returns the absolute difference of the computed value `given` and its reference value, or 0 if both values are
    /// NaN or the same infinity. If the values differ and at least one of them is not finite, adds 1 to `one_sided` and
    /// returns 0.
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

/// Computes the 64-bit reference of an attention computation, and compares the output in `done` with this reference.
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

/// Compares two outputs of equal shape. `given` is the computed output, `stored` is the reference.
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
