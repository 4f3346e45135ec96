//! `global`: tokens that read every key and that every query reads.

use super::prelude::*;
use super::shared::{SET, atom_of_a_set, in_set, read_set, set_words};
use crate::mask::basis::Axis;
use crate::sets::set::Positions;

/// The parameters of the atom `global`: the query or the key is in a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Global(
    /// The set: positions, or a label (a name for positions, which the facts give).
    pub Positions,
);

/// Returns the mask in which the query or the key is in the set: tokens in the set read all keys, and all queries read them.
/// Text: `global(0..2)`.
pub fn global(set: impl Into<Positions>) -> Mask {
    Mask::of(Global(set.into()))
}

impl Atom for Global {
    atom_of_a_set!("global");

    fn allows(&self, pair: &Pair<'_>) -> bool {
        in_set(&self.0, pair, pair.q) || in_set(&self.0, pair, pair.k)
    }

    fn sentence<'a>(&'a self, _: RowFacts<'a>) -> Option<Sentence<'a>> {
        let set = set_words(&self.0);
        let yes = format!("the query or the key is in {set}");
        Some(Sentence::by_result(yes.into(), format!("neither the query nor the key is in {set}").into()))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let spans = site.row.spans(&self.0);
        Some(Resolution::queries(site, spans) | Resolution::keys(site, spans))
    }

    fn simplify(&self) -> Simplified {
        let Positions::Spans(spans) = &self.0 else { return Simplified::Same };
        match Runs::of_spans(spans) {
            runs if runs.is_empty() => Simplified::Mask(super::none()),
            runs if Axis::Key.is_all(&runs) => Simplified::Mask(super::full()),
            runs => Simplified::Mask(global(Positions::Spans(runs.spans()))),
        }
    }

    fn rank(&self) -> Rank {
        Family::Global.into()
    }

    fn every_length(&self, _: Case) -> EveryLength {
        match &self.0 {
            Positions::Spans(spans) => EveryLength::Places(Places::new().spans(spans)),
            set => EveryLength::Mask(super::queries(set.clone()) | super::keys(set.clone())),
        }
    }
}

impl Builtin for Global {
    const WORD: Word = Word {
        entry: Entry::new("global", "global(0..2)", SET).positional(1).lists(),
        title: "`global(set)`",
        doc: "The query or the key is in the set: tokens in the set read every key, and every query reads them. The set \
              has the same form as in `keys(...)`.",
        pictures: &[Picture::square("global(0..2)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        read_set(arguments).map(Global)
    }
}
