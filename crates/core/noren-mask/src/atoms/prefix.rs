//! `prefix`: the first keys.

use super::prelude::*;
use crate::sets::scalar::Rows;
use crate::sets::set::{Positions, Span};

/// The parameters of the atom `prefix`: the first keys of each batch row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// Number of keys at the start of the sequence that all queries read: one number for all batch rows, or one for
    /// each batch row.
    pub lengths: Rows<usize>,
}

/// Returns the mask of the first `n` keys of each batch row: `k < n`. `lengths` is one number `n` for all batch rows,
/// or one for each. Text: `prefix(n)`, `prefix([n0, n1, ...])`.
pub fn prefix(lengths: impl Into<Rows<usize>>) -> Mask {
    Mask::of(Prefix { lengths: lengths.into() })
}

impl Prefix {
    fn len(&self, batch: usize) -> usize {
        self.lengths.get(batch).copied().unwrap_or(0)
    }
}

impl Atom for Prefix {
    fn name(&self) -> &'static str {
        "prefix"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lengths {
            Rows::All(n) => write!(f, "prefix({n})"),
            Rows::Each(list) => write!(f, "prefix({})", List(list)),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.lengths.values().iter().try_for_each(|n| within("lengths", *n))
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        self.lengths.rows().map_or(Vec::new(), |_| vec![Input::Batch])
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        self.lengths.rows().map_or(Ok(()), |rows| binding.per_row("lengths", rows))
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        (pair.k as usize) < self.len(pair.batch)
    }

    fn sentence<'a>(&'a self, row: RowFacts<'a>) -> Option<Sentence<'a>> {
        let count = self.len(row.row);
        let with = |is: &str| sentence!["key ", key_position(), format!(" is {is} the first {count} keys")];
        Some(Sentence::by_result(with("among"), with("not among")))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        Some(Resolution::keys(site, &[Span { start: 0, end: Some(self.len(site.batch())) }]))
    }

    fn simplify(&self) -> Simplified {
        match self.lengths {
            Rows::All(n) => Simplified::line(Line::keys(&[Span { start: 0, end: Some(n) }])),
            Rows::Each(_) => Simplified::Same,
        }
    }

    fn rank(&self) -> Rank {
        Family::Keys.at(0)
    }

    fn every_length(&self, case: Case) -> EveryLength {
        EveryLength::Mask(super::keys(Positions::from(0..self.len(case.batch))))
    }

    fn sizes(&self, _: Case) -> Sizes {
        self.lengths.rows().map_or(Sizes::default(), |rows| Sizes::default().batch(rows))
    }
}

impl Builtin for Prefix {
    const WORD: Word = Word {
        entry: Entry::new(
            "prefix",
            "prefix(16)",
            &[need("lengths", "number of keys, or a list with one for each batch row")],
        )
        .lists(),
        title: "`prefix(n)`, `prefix([n0, n1, ...])`",
        doc: "The first `n` keys. `n` is one number for all batch rows, or a list with one number for each. `causal | \
              prefix(n)` is a prefix-LM.",
        pictures: &[Picture::square("causal | prefix(3)", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Prefix { lengths: arguments.need(0)?.per_row()? })
    }
}
