//! Sets of whole numbers, stored as sorted, disjoint, half-open runs, and operations on these sets.

/// A set of whole numbers: runs `(start, end)` with excluded ends, ascending and not empty, with a gap between each run
/// and the next run.
pub(crate) type Runs = Vec<(i64, i64)>;

/// Returns the set of a list of runs in any order: sorted, with touching and overlapping runs joined, without empty
/// runs.
pub(crate) fn normal(mut list: Runs) -> Runs {
    list.retain(|run| run.0 < run.1);
    list.sort_unstable();
    let mut out = Runs::with_capacity(list.len());
    for run in list {
        match out.last_mut() {
            Some(last) if run.0 <= last.1 => last.1 = last.1.max(run.1),
            _ => out.push(run),
        }
    }
    out
}

/// Returns true if the ranges of `list` are ascending, not empty, and have gaps between them, so that [`normal`] would
/// return `list` unchanged.
pub(crate) fn is_normal(list: &[(i64, i64)]) -> bool {
    list.iter().all(|run| run.0 < run.1) && list.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// Returns the number of members of the set `list`, which is stored as ranges.
pub(crate) fn count(list: &[(i64, i64)]) -> i64 {
    list.iter().map(|run| run.1 - run.0).sum()
}

/// Returns true if the set `list` contains the number `at`.
pub(crate) fn holds(list: &[(i64, i64)], at: i64) -> bool {
    let next = list.partition_point(|run| run.1 <= at);
    list.get(next).is_some_and(|run| run.0 <= at)
}

/// Returns the union of two sets.
pub(crate) fn union(a: &[(i64, i64)], b: &[(i64, i64)]) -> Runs {
    let mut out = Runs::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let run = if j == b.len() || (i < a.len() && a[i].0 <= b[j].0) {
            i += 1;
            a[i - 1]
        } else {
            j += 1;
            b[j - 1]
        };
        match out.last_mut() {
            Some(last) if run.0 <= last.1 => last.1 = last.1.max(run.1),
            _ => out.push(run),
        }
    }
    out
}

/// Returns the intersection of two sets.
pub(crate) fn meet(a: &[(i64, i64)], b: &[(i64, i64)]) -> Runs {
    let mut out = Runs::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (start, end) = (a[i].0.max(b[j].0), a[i].1.min(b[j].1));
        if start < end {
            out.push((start, end));
        }
        if a[i].1 <= b[j].1 { i += 1 } else { j += 1 }
    }
    out
}

/// Returns the members of `a` that are not in `b`.
pub(crate) fn minus(a: &[(i64, i64)], b: &[(i64, i64)]) -> Runs {
    let mut out = Runs::new();
    let mut j = 0;
    for &(mut start, end) in a {
        while j < b.len() && b[j].1 <= start {
            j += 1;
        }
        let mut at = j;
        while at < b.len() && b[at].0 < end {
            if start < b[at].0 {
                out.push((start, b[at].0));
            }
            start = start.max(b[at].1);
            at += 1;
        }
        if start < end {
            out.push((start, end));
        }
    }
    out
}

/// Returns the smallest common member of two sets; `None` if they have no common member. The list with more runs is
/// searched for each run of the other list.
pub(crate) fn first_common(a: &[(i64, i64)], b: &[(i64, i64)]) -> Option<i64> {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short.iter().find_map(|run| {
        let next = long.partition_point(|other| other.1 <= run.0);
        long.get(next).filter(|other| other.0 < run.1).map(|other| other.0.max(run.0))
    })
}

/// Returns at most `most` runs that contain every member of `list`. If `list` has more than `most` runs, the narrowest
/// gaps between runs are closed, and the result also contains the numbers in these gaps.
pub(crate) fn coarse(list: Runs, most: usize) -> Runs {
    if list.len() <= most {
        return list;
    }
    let mut gaps: Vec<i64> = list.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
    let kept = gaps.len() - (most - 1);
    let (_, &mut widest_filled, _) = gaps.select_nth_unstable(kept - 1);
    let mut out = Runs::with_capacity(most);
    for run in list {
        match out.last_mut() {
            Some(last) if run.0 - last.1 <= widest_filled => last.1 = run.1,
            _ => out.push(run),
        }
    }
    out
}
