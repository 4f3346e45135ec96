//! `sliding`: the last keys, including the query's own.

use super::prelude::*;
use super::shared::band;

/// The parameters of the atom `sliding`: the last keys up to the query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sliding {
    /// Number of keys, including the query's own.
    pub window: usize,
}

/// Returns the mask of the last `window` keys, including the query's own: `q - window < k <= q`. Text: `sliding(W)`,
/// `sliding_window(W)`.
///
/// This is Mistral's and Hugging Face's `sliding_window=W`. flash-attention's `window_size=(L, 0)` is `sliding(L + 1)`.
pub fn sliding(window: usize) -> Mask {
    Mask::of(Sliding { window })
}

impl Atom for Sliding {
    fn name(&self) -> &'static str {
        "sliding"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sliding({})", self.window)
    }

    fn check(&self) -> Result<(), String> {
        count("window", self.window)
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let Pair { q, k, .. } = *pair;
        q - (self.window as i64) < k && k <= q
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(band(Some(1 - self.window as i64), Some(0)))
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::band(Some(1 - self.window as i64), Some(0)))
    }

    fn simplify(&self) -> Simplified {
        Simplified::line(Line::distances(1 - self.window as i64, 0))
    }

    fn rank(&self) -> Rank {
        Family::Band.at(2)
    }
}

impl Builtin for Sliding {
    const WORD: Word = Word {
        entry: Entry::new("sliding", "sliding(4096)", &[need("window", "number of keys, including the query's own")])
            .alias("sliding_window"),
        title: "`sliding(W)`, `sliding_window(W)`",
        doc: "The last `W` keys, including the query's own: `q - W < k <= q`. This is `sliding_window=W` of Mistral and \
              Hugging Face, and equal to `window(left=W-1, right=0)`.",
        pictures: &[Picture::square("sliding(3)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Sliding { window: arguments.need(0)?.whole()? })
    }
}
