//! `queries`: queries in a set.

use super::prelude::*;
use super::shared::{SET, atom_of_a_set, in_set, read_set, set_words};
use crate::sets::set::Positions;

/// The parameters of the atom `queries`: the query is in a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queries(
    /// The set of queries: positions, or a label (a name for positions, which the facts give).
    pub Positions,
);

/// Returns the mask in which queries in a set read every key, and other queries read no key. Text: `queries(0..4)`.
pub fn queries(set: impl Into<Positions>) -> Mask {
    Mask::of(Queries(set.into()))
}

impl Atom for Queries {
    atom_of_a_set!("queries");

    fn allows(&self, pair: &Pair<'_>) -> bool {
        in_set(&self.0, pair, pair.q)
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let with = |is: &str| sentence!["query ", query_position(), is, set_words(&self.0)];
        Some(Sentence::by_result(with(" is in "), with(" is not in ")))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::queries(site, site.row.spans(&self.0)))
    }

    fn simplify(&self) -> Simplified {
        let Positions::Spans(spans) = &self.0 else { return Simplified::Same };
        Simplified::line(Line::queries(spans))
    }

    fn rank(&self) -> Rank {
        Family::Queries.into()
    }
}

impl Builtin for Queries {
    const WORD: Word = Word {
        entry: Entry::new("queries", "queries(0..4)", SET).positional(1).lists(),
        title: "`queries(set)`",
        doc: "The query is in the set, which has the same form as in `keys(...)`.",
        pictures: &[Picture::square("queries(2..4)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        read_set(arguments).map(Queries)
    }
}
