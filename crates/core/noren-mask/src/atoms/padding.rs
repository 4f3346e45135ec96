//! `padding`: keys that are non-padding tokens.

use super::prelude::*;
use crate::facts::RealTokens;
use crate::mask::pattern::Pattern;
use crate::sets::interval::IntervalSet;
use crate::sets::scalar::Side;
use std::sync::Arc;

/// The parameters of the atom `padding`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Padding {
    /// Side of the padding. `None` means that the facts give the side [default: right].
    pub side: Option<Side>,
    /// Number of non-padding tokens in each batch row. `None` means that the facts give these numbers.
    pub lengths: Option<Vec<usize>>,
    /// True if queries that are padding read no key (`on=both`); false if only keys are checked.
    pub both: bool,
}

/// Returns the mask of non-padding keys. The facts give the number of non-padding tokens in each batch row, and the
/// side of the padding. Text: `padding`.
pub fn padding() -> Mask {
    padding_with(Padding::default())
}

/// Returns the mask of [`padding`] with the parameters `padding`. Text: `padding(side=left, lengths=[5, 3], on=both)`.
pub fn padding_with(padding: Padding) -> Mask {
    Mask::of(padding)
}

impl Padding {
    /// Returns the non-padding keys of a batch row.
    fn keys(&self, row: RowFacts<'_>) -> IntervalSet {
        row.real_keys(self.side, self.lengths.as_deref())
    }

    /// Returns the non-padding query rows of a batch row, for `on=both`.
    fn queries(&self, row: RowFacts<'_>) -> IntervalSet {
        row.real_queries(self.side, self.lengths.as_deref())
    }

    fn keys_only(&self) -> Self {
        Padding { both: false, ..self.clone() }
    }

    /// Returns true if the parameters give both the lengths and the side `right`. The cells then depend only on the
    /// positions of query and key, and not on the facts (data given when the mask is bound).
    fn is_positional(&self) -> bool {
        self.lengths.is_some() && self.side == Some(Side::Right)
    }
}

impl Atom for Padding {
    fn name(&self) -> &'static str {
        "padding"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = Call::new(f, "padding")?;
        call.option("side", &self.side.map(|side| if side == Side::Left { "left" } else { "right" }))?;
        call.option("lengths", &self.lengths.as_deref().map(List))?;
        call.option("on", &self.both.then_some("both"))?;
        call.end()
    }

    fn check(&self) -> Result<(), String> {
        self.lengths.iter().flatten().try_for_each(|n| within("lengths", *n))
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        match self.lengths {
            Some(_) => vec![Input::Batch],
            None => vec![Input::Lengths],
        }
    }

    fn uses_query_offset(&self) -> bool {
        self.both
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        let (shape, facts) = (binding.shape(), binding.facts());
        match (&self.lengths, &facts.real) {
            (Some(lengths), _) => {
                binding.per_row("lengths", lengths.len())?;
                binding.lengths_of_keys(lengths)?;
            }
            (None, None) => {
                return binding.missing("lengths", "give the number of non-padding tokens of each batch row, in the facts or as padding(lengths=[...])");
            }
            (None, Some(RealTokens::Keys(_))) if self.side.is_some() => {
                return binding.refuse("the facts give the set of non-padding keys, which already defines where the padding is: remove `side`");
            }
            (None, Some(_)) => {}
        }
        let aligned = |row| shape.query_offset(row) + shape.q_len() as i64 == shape.kv_len() as i64;
        if self.both && facts.query_lengths.is_none() && !(0..shape.batch_len()).all(aligned) {
            let fix = "the queries are not the last tokens of the sequence of keys: give the number of non-padding queries in each batch row";
            return binding.missing("query_lengths", fix);
        }
        Ok(())
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        self.keys(pair.facts).contains(pair.key as u32)
            && (!self.both || self.queries(pair.facts).contains(pair.row as u32))
    }

    fn sentence<'a>(&'a self, row: RowFacts<'a>) -> Option<Sentence<'a>> {
        let batch = row.row;
        let place = match (&self.lengths, &row.facts.real) {
            (None, Some(RealTokens::Keys(_))) => format!("batch row {batch}"),
            _ => format!("batch row {batch}, which has {} non-padding tokens", self.keys(row).count()),
        };
        let key_index = || key(|token| token.index.to_string());
        let hidden_key = sentence!["key ", key_index(), " is padding in ", place.clone()];
        let hidden_query =
            sentence!["query ", query(|token| token.index.to_string()), format!(" is padding in batch row {batch}")];
        let allowed = sentence!["key ", key_index(), " is a non-padding token of ", place];
        // if the key is a non-padding token, then only the query can be the reason of a denied cell
        let real_key = Sentence::by_result(allowed, hidden_query);
        Some(Sentence::by(Test::Mask(Mask::of(self.keys_only())), real_key, hidden_key))
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let keys = Resolution(Pattern::Keys(Arc::new(self.keys(site.row))));
        Some(match self.both {
            true => Resolution(Pattern::Queries(Arc::new(self.queries(site.row)))) & keys,
            false => keys,
        })
    }

    fn rank(&self) -> Rank {
        Family::Padding.into()
    }

    fn every_length(&self, case: Case) -> EveryLength {
        if self.is_positional() {
            let length = self.lengths.as_ref().and_then(|list| list.get(case.batch).copied()).unwrap_or(0);
            let keys = super::keys(0..length);
            return EveryLength::Mask(if self.both { keys & super::queries(0..length) } else { keys });
        }
        match self.both {
            true => EveryLength::Mask(Mask::of(self.keys_only()) & Mask::of(RealQueries(self.keys_only()))),
            false => EveryLength::Unknown,
        }
    }

    fn sizes(&self, _: Case) -> Sizes {
        let Some(list) = &self.lengths else { return Sizes::default() };
        Sizes::default().from(list.iter().copied().max().unwrap_or(1)).batch(list.len())
    }
}

/// The condition that `padding(on=both)` adds for queries: the query is a non-padding token. The mask language has no
/// word for this atom.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct RealQueries(Padding);

impl Atom for RealQueries {
    fn name(&self) -> &'static str {
        "real_queries"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("queries of ")?;
        self.0.write(f)
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        self.0.inputs()
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        self.0.queries(pair.facts).contains(pair.row as u32)
    }
}

impl Builtin for Padding {
    const WORD: Word = Word {
        entry: Entry::new(
            "padding",
            "padding(side=left, lengths=[5, 3], on=both)",
            &[
                may("side", "side of the padding, left or right"),
                may("lengths", "number of non-padding tokens in each batch row"),
                may("on", "`keys`, or `both` if padding queries also read no key"),
            ],
        )
        .positional(1),
        title: "`padding`, `padding(side=left)`, `padding(lengths=[...])`, `padding(on=both)`",
        doc: "The key is a non-padding token of its batch row. The facts give the lengths and the side that are not \
              given here. With `on=both`, padding queries read no key.",
        pictures: &[
            Picture::square("padding", 6).facts(r#"{"lengths": [4]}"#),
            Picture::square("causal & padding(side=left)", 6).facts(r#"{"lengths": [4]}"#),
            Picture::square("padding(on=both)", 6).facts(r#"{"lengths": [4]}"#),
        ],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        let side = match arguments.get(0) {
            Some(given) => Some([Side::Left, Side::Right][given.word(&["left", "right"])?]),
            None => None,
        };
        let lengths = arguments.get(1).map(|given| given.wholes()).transpose()?;
        let both = arguments.get(2).map(|given| given.word(&["keys", "both"])).transpose()? == Some(1);
        Ok(Padding { side, lengths, both })
    }
}
