//! `keys`: keys in a set.

use super::prelude::*;
use super::shared::{SET, atom_of_a_set, in_set, read_set, set_words};
use crate::sets::set::Positions;

/// The parameters of the atom `keys`: the key is in a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keys(
    /// The set of keys: positions, or a label (a name for positions, which the facts give).
    pub Positions,
);

/// Returns the mask of keys in a set. Text: `keys(0..4)`, `keys([3, 9, 10..14])`, `keys(label="pii")`.
///
/// ```
/// use noren_mask::{atoms::*, Positions};
/// assert_eq!((full() - keys(Positions::label("pii"))).to_string(), "full - keys(label=\"pii\")");
/// ```
pub fn keys(set: impl Into<Positions>) -> Mask {
    Mask::of(Keys(set.into()))
}

impl Atom for Keys {
    atom_of_a_set!("keys");

    fn uses_query_offset(&self) -> bool {
        false
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        in_set(&self.0, pair, pair.k)
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let with = |is: &str| sentence!["key ", key_position(), is, set_words(&self.0)];
        Some(Sentence::by_result(with(" is in "), with(" is not in ")))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::keys(site, site.row.spans(&self.0)))
    }

    fn simplify(&self) -> Simplified {
        let Positions::Spans(spans) = &self.0 else { return Simplified::Same };
        Simplified::line(Line::keys(spans))
    }

    fn rank(&self) -> Rank {
        Family::Keys.at(1)
    }
}

impl Builtin for Keys {
    const WORD: Word = Word {
        entry: Entry::new("keys", "keys(0..4)", SET).positional(1).lists(),
        title: "`keys(set)`",
        doc: "The key is in the set. A set is a position, a range `a..b` (half open; `a..`, `..b`), a list of these, or \
              `label=\"name\"`, whose positions the facts give. A set may extend beyond the end of the sequence, because \
              a mask has no lengths. Positions count from the first token of the row, including padding on the left.",
        pictures: &[
            Picture::square("keys([1, 4..6])", 8),
            Picture::square("full - keys(label=\"pii\")", 8).facts(r#"{"labels": {"pii": [3, 4]}}"#),
        ],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        read_set(arguments).map(Keys)
    }
}
