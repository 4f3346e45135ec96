//! `random`: each cell is allowed with a probability.

use super::prelude::*;
use crate::sets::philox;
use crate::sets::scalar::Real;

/// The parameters of the atom `random`: each cell is allowed independently with a probability.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Random {
    /// Probability that a cell is allowed, from 0 to 1.
    pub p: Real,
    /// Seed; equal seeds give equal cells.
    pub seed: u64,
}

/// Returns the mask in which each cell is allowed with probability `p`. Equal seeds give equal cells: the seed and the
/// positions of query and key determine each cell. Text: `random(0.1, 42)`.
pub fn random(p: f64, seed: u64) -> Mask {
    Mask::of(Random { p: Real::new(p), seed })
}

impl Atom for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "random({}, {})", self.p, self.seed)
    }

    fn check(&self) -> Result<(), String> {
        match self.p.get() {
            p if (0.0..=1.0).contains(&p) => Ok(()),
            p => Err(format!("`p` is {p}: give a probability from 0 to 1")),
        }
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        u64::from(philox::cell_word(pair.q, pair.k, self.seed)) < philox::threshold(self.p.get())
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(super::shared::draw_words())
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::of(self.clone()))
    }

    fn rank(&self) -> Rank {
        Family::Random.at(0)
    }
}

impl ResolvedAtom for Random {
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let threshold = philox::threshold(self.p.get());
        for k in keys {
            if u64::from(philox::cell_word(q, k, self.seed)) < threshold {
                emit(k, k + 1);
            }
        }
    }

    fn bounds(&self, queries: Range<i64>, _: Range<i64>) -> Reach {
        if queries.end - queries.start == 1 { Reach::ByRows } else { Reach::Unknown }
    }

    fn row_work(&self) -> RowWork {
        RowWork::Keys
    }
}

impl Builtin for Random {
    const WORD: Word = Word {
        entry: Entry::new(
            "random",
            "random(0.1, 42)",
            &[need("p", "probability that a cell is allowed"), need("seed", "seed of the random pattern")],
        ),
        title: "`random(p, seed)`",
        doc: "Each cell is allowed with probability `p`. The seed and the positions determine the cells (Philox \
              4x32-10), which are the same on every machine.",
        pictures: &[Picture::square("random(0.3, 1)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Random { p: Real::new(arguments.need(0)?.real()?), seed: arguments.need(1)?.whole()? as u64 })
    }
}
