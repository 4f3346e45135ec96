//! `clearance`: a query reads the keys whose clearance level is not higher than its own.

use super::prelude::*;

/// The atom `clearance`, which compares clearance levels; the facts give the clearance level of each position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clearance;

/// Returns the mask in which a query reads a key if the clearance level of the query is not lower than the level of the
/// key. The facts (data given when the mask is bound) give the clearance levels of positions. Text: `clearance`.
pub fn clearance() -> Mask {
    Mask::of(Clearance)
}

impl Atom for Clearance {
    fn name(&self) -> &'static str {
        "clearance"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("clearance")
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![Input::Levels]
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        let Some(levels) = &binding.facts().levels else {
            return binding.missing("levels", "give one clearance level for each position, in the facts");
        };
        binding.each_row(|row, extent| {
            let given = levels.get(row).map_or(0, Vec::len);
            extent.check(binding.atom, "clearance levels", given, row)
        })
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        pair.level(pair.q).zip(pair.level(pair.k)).is_some_and(|(q, k)| q >= k)
    }

    fn sentence<'a>(&'a self, row: RowFacts<'a>) -> Option<Sentence<'a>> {
        let level = move |token: Token| row.level(token.position).map_or("no level".into(), |l| format!("level {l}"));
        Some(sentence![
            "query ",
            query_position(),
            " has ",
            query(level),
            ", key ",
            key_position(),
            " has ",
            key(level)
        ])
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(LevelRuns::new(site.levels().unwrap_or(&[]))))
    }

    fn rank(&self) -> Rank {
        Family::Levels.into()
    }
}

/// The clearance levels of all positions, as runs of positions with equal levels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct LevelRuns {
    /// The pairs `(first position, clearance level)` of the runs, ascending from position 0.
    runs: Vec<(i64, i64)>,
    len: i64,
}

impl LevelRuns {
    fn new(levels: &[i64]) -> Self {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for (at, &level) in levels.iter().enumerate() {
            if runs.last().is_none_or(|r| r.1 != level) {
                runs.push((at as i64, level));
            }
        }
        LevelRuns { runs, len: levels.len() as i64 }
    }

    fn run_at(&self, position: i64) -> usize {
        self.runs.partition_point(|r| r.0 <= position) - 1
    }

    fn run_end(&self, run: usize) -> i64 {
        self.runs.get(run + 1).map_or(self.len, |r| r.0)
    }

    /// Returns exact bounds on the keys that the queries at the positions `queries` read. The query with the highest
    /// clearance level gives the upper bound, because it reads every key that at least one query reads. The query with
    /// the lowest clearance level gives the lower bound.
    fn reach(&self, queries: impl Iterator<Item = i64>, keys: Range<i64>) -> Reach {
        let mut ends: Option<[(i64, i64); 2]> = None;
        let mut outside = false;
        let mut next = i64::MIN;
        for q in queries {
            if !(0..self.len).contains(&q) {
                outside = true;
            } else if q >= next {
                let run = self.run_at(q);
                next = self.run_end(run);
                let own = (self.runs[run].1, q);
                ends = Some(ends.map_or([own; 2], |[low, high]| [low.min(own), high.max(own)]));
            }
        }
        let read = |q: i64| {
            let mut runs = Vec::new();
            self.row(q, keys.clone(), &mut |start, end| runs.push(start..end));
            runs
        };
        let Some([low, high]) = ends else { return Reach::Keys { some: Vec::new(), every: Vec::new() } };
        Reach::Keys { some: read(high.1), every: if outside { Vec::new() } else { read(low.1) } }
    }
}

impl ResolvedAtom for LevelRuns {
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let (from, to) = (keys.start.max(0), keys.end.min(self.len));
        if !(0..self.len).contains(&q) || from >= to {
            return;
        }
        let level = self.runs[self.run_at(q)].1;
        for run in self.run_at(from)..self.runs.len() {
            let (start, end) = (self.runs[run].0, self.run_end(run));
            if start >= to {
                break;
            }
            if self.runs[run].1 <= level {
                emit(start, end);
            }
        }
    }

    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        self.reach(queries, keys)
    }

    fn bounds_of(&self, queries: &[i64], keys: Range<i64>) -> Option<Reach> {
        Some(self.reach(queries.iter().copied(), keys))
    }

    fn row_work(&self) -> RowWork {
        RowWork::ManyRuns
    }

    fn next_change(&self, q: i64) -> i64 {
        match q {
            q if q < 0 => 0,
            q if q < self.len => self.run_end(self.run_at(q)),
            _ => i64::MAX,
        }
    }

    fn has_blocks(&self) -> bool {
        true
    }
}

impl Builtin for Clearance {
    const WORD: Word = Word {
        entry: Entry::new("clearance", "clearance", &[]),
        title: "`clearance`",
        doc: "The clearance level of the query is at least that of the key. The facts give the clearance level of each position.",
        pictures: &[Picture::square("clearance", 6).facts(r#"{"levels": [0, 1, 2, 0, 1, 0]}"#)],
    };

    fn read(_: &Arguments) -> Parsed<Self> {
        Ok(Clearance)
    }
}
