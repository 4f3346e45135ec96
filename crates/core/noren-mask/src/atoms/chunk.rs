//! `chunk`: query and key in the same chunk of positions.

use super::prelude::*;

/// The parameters of the atom `chunk`: chunks of equal length; the first chunk begins at position 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chunk {
    /// Number of positions in a chunk.
    pub size: usize,
}

/// Returns the mask in which query and key are in the same chunk of `size` positions: `q / size == k / size`. Text: `chunk(C)`.
pub fn chunk(size: usize) -> Mask {
    Mask::of(Chunk { size })
}

impl Chunk {
    fn number(&self, position: i64) -> i64 {
        position.div_euclid(self.size as i64)
    }
}

impl Atom for Chunk {
    fn name(&self) -> &'static str {
        "chunk"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk({})", self.size)
    }

    fn check(&self) -> Result<(), String> {
        count("size", self.size)
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        self.number(pair.q) == self.number(pair.k)
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let number = |token: Token| self.number(token.position).to_string();
        let (q, k) = (query_position(), key_position());
        Some(sentence!["query ", q, " is in chunk ", query(number), ", key ", k, " in chunk ", key(number)])
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::chunk(self.size as i64))
    }

    fn simplify(&self) -> Simplified {
        match self.size {
            1 => Simplified::line(Line::distances(0, 0)),
            _ => Simplified::Same,
        }
    }

    fn rank(&self) -> Rank {
        Family::Block.at(0)
    }

    fn every_length(&self, _: Case) -> EveryLength {
        EveryLength::Places(Places::new().chunk(self.size))
    }
}

impl Builtin for Chunk {
    const WORD: Word = Word {
        entry: Entry::new("chunk", "chunk(512)", &[need("size", "number of positions in a chunk")]),
        title: "`chunk(C)`",
        doc: "Query and key are in the same chunk of `C` positions: `q / C == k / C`, rounded down.",
        pictures: &[Picture::square("chunk(3)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Chunk { size: arguments.need(0)?.whole()? })
    }
}
