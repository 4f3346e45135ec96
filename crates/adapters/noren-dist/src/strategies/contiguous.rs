//! Splits query rows into consecutive groups, so that the largest number of allowed cells of a group (its area) is as
//! small as possible (chains-on-chains partitioning).

use crate::partition::runs::Owners;

/// Splits strips of query rows into at most `parts` groups of consecutive strips, so that the largest area (number of
/// allowed cells) of a group is as small as possible and no group has more than `most` tokens. `areas` and `tokens`
/// hold the area and the number of tokens of each strip. Returns, for each group, the index after its last strip, or
/// `None` if no split respects `most`.
///
/// The result is optimal for the given strips, with an error of at most 2^-40 of the total area. For a given maximum
/// area, it is optimal to fill one group after another up to the maximum. The smallest possible maximum is found by
/// bisection (chains-on-chains partitioning, Bokhari 1988; Pinar and Aykanat 2004).
pub(crate) fn chains(areas: &[f64], tokens: &[f64], parts: usize, most: f64) -> Option<Vec<usize>> {
    let total: f64 = areas.iter().sum();
    let (mut low, mut high) = (total / parts as f64, total * (1.0 + 1e-9) + 1e-9);
    let mut best = fill(areas, tokens, parts, high, most)?;
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        match fill(areas, tokens, parts, middle, most) {
            Some(cut) => (best, high) = (cut, middle),
            None => low = middle,
        }
    }
    Some(best)
}

/// Fills one group after another with consecutive strips (runs of query rows), up to `area` allowed cells and `most`
/// tokens for each group. Returns the index after the last strip of each group, or `None` if `parts` groups do not hold
/// all strips.
fn fill(areas: &[f64], tokens: &[f64], parts: usize, area: f64, most: f64) -> Option<Vec<usize>> {
    let mut ends = Vec::with_capacity(parts);
    let mut at = 0;
    for _ in 0..parts {
        let mut sum = [0.0, 0.0];
        while at < areas.len() && sum[0] + areas[at] <= area && sum[1] + tokens[at] <= most {
            sum = [sum[0] + areas[at], sum[1] + tokens[at]];
            at += 1;
        }
        ends.push(at);
    }
    (at == areas.len()).then_some(ends)
}

/// Returns the owners of query rows if each rank owns consecutive strips (runs of query rows). `cut[i]` is the index
/// after the last strip of rank `i`; `ends[j]` is the first row after strip `j`.
pub(crate) fn owners(cut: &[usize], ends: &[u32]) -> Owners {
    let mut out = Owners::default();
    for (rank, items) in cut.iter().enumerate().filter(|(_, items)| **items > 0) {
        out.push(ends[items - 1], rank as u32);
    }
    out
}

/// Returns the owners of positions `0..len`: each rank owns one run, and the runs have equal lengths up to rounding.
pub(crate) fn equal(len: u32, ranks: usize) -> Owners {
    let mut out = Owners::default();
    for rank in 0..ranks as u64 {
        out.push((u64::from(len) * (rank + 1) / ranks as u64) as u32, rank as u32);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_optimal() {
        let areas = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let tokens = [1.0; 6];
        let largest = |cut: &[usize]| {
            let starts = std::iter::once(&0).chain(cut);
            starts.zip(cut).map(|(a, z)| areas[*a..*z].iter().sum::<f64>()).fold(0.0, f64::max)
        };
        assert_eq!(largest(&chains(&areas, &tokens, 3, 6.0).unwrap()), 9.0);
        assert_eq!(largest(&chains(&areas, &tokens, 2, 3.0).unwrap()), 15.0);
        assert_eq!(chains(&areas, &tokens, 2, 2.0), None);
    }

    #[test]
    fn ranks_may_stay_empty() {
        assert_eq!(equal(2, 4).parts().collect::<Vec<_>>(), [([0, 1], 1), ([1, 2], 3)]);
    }
}
