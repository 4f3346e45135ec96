//! `stride`: distances that are multiples of a step.

use super::prelude::*;

/// The parameters of the atom `stride`: the query itself, and every `step`-th key before and after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stride {
    /// Distance between two neighboring keys that a query reads, in positions.
    pub step: usize,
}

/// Returns the mask in which the distance from query to key is a multiple of `step`: `(q - k) mod step == 0`. Text: `stride(S)`.
pub fn stride(step: usize) -> Mask {
    Mask::of(Stride { step })
}

impl Atom for Stride {
    fn name(&self) -> &'static str {
        "stride"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stride({})", self.step)
    }

    fn check(&self) -> Result<(), String> {
        count("step", self.step)
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        (pair.q - pair.k).rem_euclid(self.step as i64) == 0
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        // the distance is that of the query to an earlier key, or that of a later key to the query
        let forwards = Piece::Difference(Box::new(|query| query.position), Box::new(|key| key.position));
        let backwards = Piece::Difference(Box::new(|query| -query.position), Box::new(|key| -key.position));
        let distance = Piece::If(Test::Mask(super::causal()), sentence![forwards], sentence![backwards]);
        let is = Piece::If(Test::Allowed, "is".into(), "is not".into());
        Some(sentence!["the distance ", distance, " of query and key ", is, format!(" a multiple of {}", self.step)])
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::stride(self.step as i64))
    }

    fn simplify(&self) -> Simplified {
        match self.step {
            1 => Simplified::Mask(super::full()),
            _ => Simplified::Same,
        }
    }

    fn rank(&self) -> Rank {
        Family::Block.at(1)
    }

    fn every_length(&self, _: Case) -> EveryLength {
        EveryLength::Places(Places::new().stride(self.step))
    }
}

impl Builtin for Stride {
    const WORD: Word = Word {
        entry: Entry::new(
            "stride",
            "stride(8)",
            &[need("step", "distance between neighboring keys that a query reads")],
        ),
        title: "`stride(S)`",
        doc: "The distance from query to key is a multiple of `S`: `(q - k) mod S == 0`.",
        pictures: &[Picture::square("stride(3)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Stride { step: arguments.need(0)?.whole()? })
    }
}
