//! Lists of ranges of positions, and the owner of each position of an axis (the queries or the keys of a batch row).

/// Ranges `[start, end)` of queries or keys, in ascending order and without overlaps.
pub type Runs = Vec<[u32; 2]>;

/// Returns the number of positions in `runs`.
pub fn count(runs: &[[u32; 2]]) -> u64 {
    runs.iter().map(|[start, end]| u64::from(end - start)).sum()
}

/// Sorts ranges and joins ranges that overlap or touch.
pub(crate) fn merged(mut ranges: Runs) -> Runs {
    ranges.sort_unstable();
    let mut out: Runs = Vec::new();
    for [start, end] in ranges {
        match out.last_mut() {
            Some(last) if start <= last[1] => last[1] = last[1].max(end),
            _ if start < end => out.push([start, end]),
            _ => {}
        }
    }
    out
}

/// Returns the parts of `runs` within `start..end`, in ascending order.
pub(crate) fn within(runs: &[[u32; 2]], start: u32, end: u32) -> impl Iterator<Item = [u32; 2]> + '_ {
    let first = runs.partition_point(|r| r[1] <= start);
    runs[first..].iter().take_while(move |r| r[0] < end).map(move |r| [r[0].max(start), r[1].min(end)])
}

/// The rank that owns each position of an axis (the queries or the keys of a batch row), stored as runs of consecutive
/// positions with one rank each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Owners {
    ends: Vec<u32>,
    ranks: Vec<u32>,
}

impl Owners {
    /// Appends a run that starts where the last run ends, stops before `end`, and is owned by `rank`.
    pub(crate) fn push(&mut self, end: u32, rank: u32) {
        if end <= self.len() {
            return;
        }
        if self.ranks.last() == Some(&rank) {
            *self.ends.last_mut().expect("`ends` has one entry for each entry of `ranks`") = end;
        } else {
            self.ends.push(end);
            self.ranks.push(rank);
        }
    }

    /// Creates the owners from pairs of a range of positions and the rank that owns it, in any order. The ranges must
    /// cover `0..len` exactly once.
    pub(crate) fn from_parts(mut parts: Vec<([u32; 2], u32)>) -> Self {
        parts.sort_unstable();
        let mut out = Owners::default();
        for ([_, end], rank) in parts {
            out.push(end, rank);
        }
        out
    }

    /// Returns the number of positions of the axis.
    pub(crate) fn len(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the runs that overlap `start..end`, cut to this range, in ascending order, each with the rank that owns
    /// it.
    pub(crate) fn within(&self, start: u32, end: u32) -> impl Iterator<Item = ([u32; 2], u32)> + '_ {
        let first = self.ends.partition_point(|e| *e <= start);
        (first..self.ends.len())
            .map(move |i| ([if i == 0 { 0 } else { self.ends[i - 1] }, self.ends[i]], self.ranks[i]))
            .take_while(move |([from, _], _)| *from < end)
            .map(move |([from, to], rank)| ([from.max(start), to.min(end)], rank))
    }

    /// Returns all runs in ascending order, each with the rank that owns it.
    pub(crate) fn parts(&self) -> impl Iterator<Item = ([u32; 2], u32)> + '_ {
        self.within(0, self.len())
    }

    /// Returns, for each rank, the runs that the rank owns.
    pub(crate) fn by_rank(&self, ranks: usize) -> Vec<Runs> {
        let mut out = vec![Runs::new(); ranks];
        self.parts().for_each(|(run, rank)| out[rank as usize].push(run));
        out
    }

    /// Returns the owners of positions `from..from + len`, renumbered so that position `from` becomes 0.
    pub(crate) fn part(&self, from: u32, len: u32) -> Self {
        let mut out = Owners::default();
        self.within(from, from + len).for_each(|([_, end], rank)| out.push(end - from, rank));
        out
    }
}
