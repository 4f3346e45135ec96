//! Merges partial results of attention by their log-sum-exps.
//!
//! The keys are divided into groups, for example the keys of each rank. The attention over one group gives an output
//! and, for each query row, a log-sum-exp: the logarithm of the sum of the row's weights. The merged output is the
//! weighted sum of the groups' outputs. The weight of a group is the group's sum of weights, divided by the sum over
//! all groups. A row without readable keys has the output 0 and the log-sum-exp minus infinity.

use crate::ranks::array::{Array, Places};

/// The outputs and log-sum-exps of some query rows over all keys whose results were added so far.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    /// The outputs, `[batch, heads, rows, v_dim]`.
    pub(crate) out: Array,
    /// The log-sum-exps, `[batch, heads, rows, 1]`.
    pub(crate) lse: Array,
    untouched: bool,
}

impl Results {
    pub(crate) fn nothing([batch, heads, rows, v_dim]: [usize; 4]) -> Self {
        let (out, lse) = ([batch, heads, rows, v_dim], [batch, heads, rows, 1]);
        Results { out: Array::filled(out, 0.0), lse: Array::filled(lse, f32::NEG_INFINITY), untouched: true }
    }

    /// Merges `out` and `lse`, the outputs and log-sum-exps over further keys, into the results of the query rows at
    /// `places`.
    pub(crate) fn add(&mut self, places: &Places, out: Array, lse: Array) {
        match places {
            Places::All if self.untouched => (self.out, self.lse) = (out, lse),
            Places::All => merge(&mut self.out, &mut self.lse, &out, &lse),
            Places::At(at) => {
                let (mut so_far, mut sums) =
                    (self.out.select(places).into_owned(), self.lse.select(places).into_owned());
                merge(&mut so_far, &mut sums, &out, &lse);
                self.out.copy_to(at, &so_far);
                self.lse.copy_to(at, &sums);
            }
        }
        self.untouched = false;
    }
}

/// Merges `other` and `other_lse`, the results of the same query rows over other keys, into `out` and `lse`. If a row
/// reads no keys in one of the two results, the row gets exactly the bits of the other result.
fn merge(out: &mut Array, lse: &mut Array, other: &Array, other_lse: &Array) {
    let width = out.shape[3];
    let rows = out.data.chunks_mut(width).zip(other.data.chunks(width));
    for ((row, other), (sum, other_sum)) in rows.zip(lse.data.iter_mut().zip(&other_lse.data)) {
        // for rows that read nothing, a difference of infinities would be NaN
        let top = sum.max(*other_sum).max(f32::MIN);
        let shares = [(*sum - top).exp(), (other_sum - top).exp()];
        let total = shares[0] + shares[1];
        let divisor = if total > 0.0 { total } else { 1.0 };
        row.iter_mut().zip(other).for_each(|(a, b)| *a = (*a * shares[0] + b * shares[1]) / divisor);
        *sum = top + total.ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_nothing() {
        let one = (
            Array { data: vec![0.3, -1.5], shape: [1, 1, 2, 1] },
            Array { data: vec![2.5, f32::NEG_INFINITY], shape: [1, 1, 2, 1] },
        );
        let mut results = Results::nothing([1, 1, 2, 1]);
        results.untouched = false;
        results.add(&Places::All, one.0.clone(), one.1.clone());
        assert_eq!((results.out.data[0], &results.lse.data), (0.3, &one.1.data));
        assert_eq!(results.out.data[1], 0.0);
        let first = |x: &Array| x.select(&Places::At(vec![0])).into_owned();
        results.add(&Places::At(vec![1]), first(&one.0), first(&one.1));
        assert_eq!((&results.out.data, &results.lse.data), (&vec![0.3, 0.3], &vec![2.5, 2.5]));
    }
}
