//! `causal`: keys up to the query.

use super::prelude::*;
use super::shared::band;
use crate::sets::scalar::Offset;

/// The parameters of the atom `causal`: keys up to `offset` positions after the query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Causal {
    /// Maximum of `k - q` (key position minus query position) for which the query reads the key. Positive: keys after
    /// the query are allowed.
    pub offset: i64,
}

/// Returns the mask in which a query reads itself and all earlier keys: `k <= q`. Text: `causal`.
pub fn causal() -> Mask {
    causal_offset(0)
}

/// Returns the mask of keys `k <= q + offset`; with offset `-1`, a query does not read itself. Text: `causal(offset=n)`.
pub fn causal_offset(offset: impl Offset) -> Mask {
    Mask::of(Causal { offset: offset.offset() })
}

impl Atom for Causal {
    fn name(&self) -> &'static str {
        "causal"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => f.write_str("causal"),
            offset => write!(f, "causal(offset={offset})"),
        }
    }

    fn check(&self) -> Result<(), String> {
        within("offset", self.offset.unsigned_abs() as usize)
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        pair.k <= pair.q + self.offset
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        Some(band(None, Some(self.offset)))
    }

    fn resolve(&self, _: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::band(None, Some(self.offset)))
    }

    fn simplify(&self) -> Simplified {
        Simplified::line(Line::distances(i64::MIN, self.offset))
    }

    fn rank(&self) -> Rank {
        Family::Band.at(0)
    }
}

impl Builtin for Causal {
    const WORD: Word = Word {
        entry: Entry::new(
            "causal",
            "causal(offset=-1)",
            &[may("offset", "position of the last key, counted from the query")],
        ),
        title: "`causal`, `causal(offset=n)`",
        doc: "Keys up to the query: `k <= q + n`. With `causal(offset=-1)`, a query does not read itself.",
        pictures: &[Picture::square("causal", 8), Picture::square("causal(offset=-1)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        let offset = arguments.get(0).map(|given| given.integer()).transpose()?.unwrap_or(0);
        Ok(Causal { offset })
    }
}
