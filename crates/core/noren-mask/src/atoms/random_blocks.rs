//! `random_blocks`: random key blocks for each query block.

use super::prelude::*;
use crate::sets::philox;

/// The parameters of the atom `random_blocks`: key blocks that are drawn at random for each query block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RandomBlocks {
    /// Number of positions in a block.
    pub block: usize,
    /// Number of key blocks that each query block reads.
    pub count: usize,
    /// Seed; equal seeds give equal blocks.
    pub seed: u64,
}

/// Returns the mask in which each block of `block` queries reads `count` key blocks drawn at random. Text:
/// `random_blocks(64, 3, 42)`.
pub fn random_blocks(block: usize, count: usize, seed: u64) -> Mask {
    Mask::of(RandomBlocks { block, count, seed })
}

impl Atom for RandomBlocks {
    fn name(&self) -> &'static str {
        "random_blocks"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "random_blocks({}, {}, {})", self.block, self.count, self.seed)
    }

    fn check(&self) -> Result<(), String> {
        count("block", self.block).and(count("count", self.count))
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let blocks = pair.kv_len().div_ceil(self.block);
        let chosen = philox::sample_blocks(pair.q.div_euclid(self.block as i64), blocks, self.count, self.seed);
        chosen.contains(&(pair.k as usize / self.block))
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(super::shared::draw_words())
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let blocks = site.kv_len().div_ceil(self.block);
        Some(Resolution::of(Draws { atom: self.clone(), blocks }))
    }

    fn rank(&self) -> Rank {
        Family::Random.at(1)
    }
}

/// The atom `random_blocks` in the form that planning evaluates, for a sequence that has `blocks` blocks of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Draws {
    atom: RandomBlocks,
    blocks: usize,
}

impl ResolvedAtom for Draws {
    fn row(&self, q: i64, _: Range<i64>, emit: &mut dyn FnMut(i64, i64)) {
        let RandomBlocks { block, count, seed } = self.atom;
        let block = block as i64;
        for b in philox::sample_blocks(q.div_euclid(block), self.blocks, count, seed) {
            emit(b as i64 * block, (b as i64 + 1) * block);
        }
    }

    fn bounds(&self, _: Range<i64>, _: Range<i64>) -> Reach {
        Reach::ByRows
    }

    fn next_change(&self, q: i64) -> i64 {
        let block = self.atom.block as i64;
        (q.div_euclid(block) + 1) * block
    }

    fn runs_per_row(&self) -> u64 {
        self.atom.count.min(self.blocks) as u64
    }

    fn has_blocks(&self) -> bool {
        true
    }
}

impl Builtin for RandomBlocks {
    const WORD: Word = Word {
        entry: Entry::new(
            "random_blocks",
            "random_blocks(64, 3, 42)",
            &[
                need("block", "number of positions in a block"),
                need("count", "number of key blocks for each query block"),
                need("seed", "seed of the random pattern"),
            ],
        ),
        title: "`random_blocks(block, count, seed)`",
        doc: "Each block of queries reads `count` random blocks of all `kv_len` keys. The seed, the positions and \
              `kv_len` determine the blocks (Philox 4x32-10), which are the same on every machine. Step-by-step \
              decoding gives other blocks than one pass, because `kv_len` grows.",
        pictures: &[Picture::square("random_blocks(2, 2, 1)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        let whole = |index| arguments.need(index)?.whole();
        Ok(RandomBlocks { block: whole(0)?, count: whole(1)?, seed: whole(2)? as u64 })
    }
}
