//! `distances`: keys at listed distances from the query.

use super::prelude::*;

/// The parameters of the atom `distances`: keys at listed distances from the query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Distances {
    /// The distances `q - k` in positions, in any order; a distance is positive for keys before the query.
    pub distances: Vec<i64>,
}

/// Returns the mask in which the distance `q - k` is in the list: 0 is the query's own key, 1 the key before it, -1 the key
/// after it. Text: `distances([0, 1, 2, 4, 8])`.
pub fn distances(distances: impl Into<Vec<i64>>) -> Mask {
    Mask::of(Distances { distances: distances.into() })
}

impl Distances {
    /// Returns the runs `(first, last)` of consecutive distances, both ends included, in ascending order.
    fn runs(&self) -> Vec<(i64, i64)> {
        Runs::of(self.distances.iter().map(|distance| (*distance, *distance))).as_slice().to_vec()
    }
}

impl Atom for Distances {
    fn name(&self) -> &'static str {
        "distances"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "distances({})", List(&self.distances))
    }

    fn check(&self) -> Result<(), String> {
        match self.distances.is_empty() {
            true => Err("the list is empty: give at least one distance, or write `none`".into()),
            false => {
                self.distances.iter().try_for_each(|distance| within("a distance", distance.unsigned_abs() as usize))
            }
        }
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        self.distances.contains(&(pair.q - pair.k))
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let with = |end: &str| {
            let distance = Piece::Difference(Box::new(|query| query.position), Box::new(|key| key.position));
            let (q, k) = (query_position(), key_position());
            sentence!["the distance ", distance, " from key ", k, " to query ", q, end]
        };
        Some(Sentence::by_result(with(" is in the list"), with(" is not in the list")))
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(Offsets { runs: self.runs() }))
    }

    /// Sorts the distances and removes duplicates. If the distances are one run, the result is a window.
    fn simplify(&self) -> Simplified {
        match self.runs()[..] {
            [(first, last)] => Simplified::line(Line::distances(-last, -first)),
            _ => {
                let mut sorted = self.distances.clone();
                sorted.sort_unstable();
                sorted.dedup();
                Simplified::Mask(distances(sorted))
            }
        }
    }

    fn rank(&self) -> Rank {
        Family::Band.into()
    }

    fn every_length(&self, _: Case) -> EveryLength {
        let runs = self.runs().into_iter();
        EveryLength::Places(runs.fold(Places::new(), |places, (first, last)| places.distance(first).distance(last + 1)))
    }
}

/// Runs `(first, last)` of distances, both ends included, in ascending order and with gaps between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Offsets {
    runs: Vec<(i64, i64)>,
}

impl Offsets {
    /// Returns the runs that have at least one distance in `first..=last`.
    fn within(&self, first: i64, last: i64) -> &[(i64, i64)] {
        let from = self.runs.partition_point(|run| run.1 < first);
        let to = self.runs.partition_point(|run| run.0 <= last);
        &self.runs[from..to.max(from)]
    }
}

impl ResolvedAtom for Offsets {
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        for (first, last) in self.within(q - keys.end + 1, q - keys.start) {
            emit(q - last, q - first + 1);
        }
    }

    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        let (from, to) = (queries.start, queries.end - 1);
        let runs = self.within(from - keys.end + 1, to - keys.start);
        let some = runs.iter().map(|(first, last)| from - last..to - first + 1).collect();
        let every = runs.iter().map(|(first, last)| to - last..from - first + 1).filter(|run| !run.is_empty());
        Reach::Keys { some, every: every.collect() }
    }
}

impl Builtin for Distances {
    const WORD: Word = Word {
        entry: Entry::new(
            "distances",
            "distances([0, 1, 2, 4, 8])",
            &[need("distances", "list of distances from the key to the query")],
        )
        .lists(),
        title: "`distances([d, ...])`",
        doc: "The distance `q - k` is in the list: 0 is the query's own key, positive distances are keys before it, \
              negative distances are keys after it. With powers of two, this is LogSparse attention.",
        pictures: &[Picture::square("distances([0, 1, 2, 4])", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Distances { distances: arguments.need(0)?.integers()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::verify;
    use crate::{Equivalence, Facts, Shape};

    #[test]
    fn rows_and_bounds_agree_with_membership() {
        for list in [vec![0], vec![3, 0, 1, 3], vec![-2, 5, 6, 7], vec![0, 1, 2, 4, 8, 16], vec![-1 << 62, 1 << 62]] {
            for mask in [distances(list.clone()), super::super::causal() - distances(list.clone())] {
                for shape in [Shape::square(40), Shape::cached(30, 12), Shape::cross(9, 33)] {
                    assert_eq!(verify(&mask, &shape, &Facts::new()), Ok(()), "{mask}");
                }
            }
        }
    }

    #[test]
    fn lists_have_one_form() {
        let simple = |text: &str| text.parse::<Mask>().unwrap().simplify().to_string();
        assert_eq!(simple("distances([2, 0, 1])"), "sliding(3)");
        assert_eq!(simple("causal & distances([8, 1, 1, -4])"), "causal & distances([-4, 1, 8])");
        let [first, second] =
            ["distances([0, 4])", "sliding(1) | window(left=4, right=-4)"].map(|t| t.parse::<Mask>().unwrap());
        assert!(matches!(first.equivalent(&second), Ok(Equivalence::Equal { .. })));
        let error = distances([]).check().unwrap_err();
        assert!(error.to_string().contains("give at least one distance"), "{error}");
    }

    #[test]
    fn a_million_tokens_read_twenty_keys_each() {
        let powers: Vec<i64> = std::iter::once(0).chain((0..20).map(|i| 1 << i)).collect();
        let plan = distances(powers).bind(&Shape::square(1 << 20), &Facts::new()).unwrap().plan();
        assert!(plan.bytes() < 32 << 20, "{}", plan.bytes());
    }
}
