//! Sets of distances or positions as runs of integers. A run may be unbounded on one or both sides.

use crate::sets::set::Span;

/// A set of integers as runs `(first, last)`, both ends included, in ascending order, disjoint and not adjacent. If
/// `first` is `i64::MIN` or `last` is `i64::MAX`, the run is unbounded on that side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Runs(Vec<(i64, i64)>);

impl Runs {
    /// Returns the union of runs `(first, last)` in any order. A run is empty if `last < first`.
    pub(crate) fn of(runs: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut sorted: Vec<_> = runs.into_iter().filter(|(first, last)| first <= last).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Runs(merged)
    }

    /// Returns the positions in the spans.
    pub(crate) fn of_spans(spans: &[Span]) -> Self {
        Self::of(spans.iter().map(|s| (s.start as i64, s.end.map_or(i64::MAX, |end| (end as i64).saturating_sub(1)))))
    }

    /// Returns the runs as spans. The set must not contain negative numbers.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let end = |last: i64| if last == i64::MAX { None } else { Some(last as usize + 1) };
        self.0.iter().map(|&(first, last)| Span { start: first as usize, end: end(last) }).collect()
    }

    pub(crate) fn as_slice(&self) -> &[(i64, i64)] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the numbers of `first..=last` that are not in this set.
    pub(crate) fn missing(&self, first: i64, last: i64) -> Self {
        let mut gaps = Vec::new();
        let mut next = first;
        for &(start, end) in &self.0 {
            if next < start {
                gaps.push((next, last.min(start - 1)));
            }
            if end >= last {
                return Runs::of(gaps);
            }
            next = next.max(end + 1);
        }
        gaps.push((next, last));
        Runs::of(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complement_twice_is_the_same() {
        for runs in [vec![], vec![(i64::MIN, i64::MAX)], vec![(i64::MIN, -3), (0, 0), (4, i64::MAX)], vec![(-2, 5)]] {
            let runs = Runs::of(runs);
            let twice = runs.missing(i64::MIN, i64::MAX).missing(i64::MIN, i64::MAX);
            assert_eq!(runs, twice);
        }
        assert_eq!(Runs::of([(4, 9), (0, 3), (12, 11)]), Runs(vec![(0, 9)]));
        assert_eq!(Runs::of([(2, 3)]).missing(0, 5), Runs(vec![(0, 1), (4, 5)]));
        assert_eq!(Runs::of([(-5, 7)]).missing(0, 5), Runs(vec![]));
    }
}
