//! Functions that several atoms use: explanations of bands (ranges of distances between query and key), and sets as
//! parameters.

use super::causal_offset;
use crate::mask::basis::{LIMIT, Pair};
use crate::mask::sentence::{Piece, Sentence, Test, key, key_position, query, query_position, sentence};
use crate::sets::set::Positions;
use crate::syntax::{Arguments, Param, ParseError, Parsed, may};

/// Returns the sentence that explains why the key is or is not in the band `q + first..=q + last`, where `q` is the
/// position of the query. `None` means no limit on that side.
pub(super) fn band<'a>(first: Option<i64>, last: Option<i64>) -> Sentence<'a> {
    let (q, k) = (query_position, key_position);
    let limit = |distance: i64| query(move |token| (token.position + distance).to_string());
    let end = |side: &str| sentence![format!(", the {side} position that query "), q(), " reads"];
    let mut sentence = match (first, last) {
        (None, Some(last)) => join(sentence!["key ", k(), " is not after ", limit(last)], end("last")),
        (Some(first), None) => join(sentence!["key ", k(), " is not before ", limit(first)], end("first")),
        (Some(first), Some(last)) => {
            sentence!["key ", k(), " is in ", limit(first), "..=", limit(last), ", which query ", q(), " reads"]
        }
        (None, None) => sentence!["query ", q(), " reads every key"],
    };
    if let Some(last) = last {
        let after = join(sentence!["key ", k(), " is after ", limit(last)], end("last"));
        sentence = Sentence::by(Test::Mask(causal_offset(last)), sentence, after);
    }
    if let Some(first) = first {
        let before = join(sentence!["key ", k(), " is before ", limit(first)], end("first"));
        // no position is beyond the limit of a parameter, so a smaller distance selects the same keys
        let earlier = causal_offset((first - 1).max(-(LIMIT as i64)));
        sentence = Sentence::by(Test::Mask(earlier), before, sentence);
    }
    sentence
}

fn join<'a>(mut first: Sentence<'a>, second: Sentence<'a>) -> Sentence<'a> {
    first.0.extend(second.0);
    first
}

/// The two parameters of atoms that select a set: positions, or a label.
pub(super) const SET: &[Param] = &[may("set", "positions"), may("label", "name of a label")];

/// Reads the set of an atom from its arguments: positions, or `label="name"`. Returns an error unless exactly one of
/// the two is given.
pub(super) fn read_set(arguments: &Arguments) -> Parsed<Positions> {
    let name = arguments.entry.name;
    match (arguments.get(0), arguments.get(1)) {
        (Some(spans), None) => Ok(Positions::Spans(spans.spans()?)),
        (None, Some(label)) => Ok(Positions::Label(label.name()?)),
        (None, None) => {
            let message = format!("`{name}` needs a set: a position, a range, a list of these, or a label");
            Err(ParseError::at(arguments.span.clone(), message)
                .suggest(format!("write for example `{name}(0..4)` or `{name}(label=\"name\")`")))
        }
        (Some(_), Some(_)) => {
            Err(ParseError::at(arguments.span.clone(), format!("`{name}` takes positions or a label, not both"))
                .suggest(format!("write `{name}(..) | {name}(label=..)`")))
        }
    }
}

/// Implements the methods of `Atom` that are equal for all atoms whose only parameter is a set: name, text, checks and
/// label.
macro_rules! atom_of_a_set {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn write(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{}({})", $name, self.0)
        }

        fn check(&self) -> Result<(), String> {
            crate::mask::basis::check_set(&self.0)
        }

        fn inputs(&self) -> Vec<crate::mask::basis::Input<'_>> {
            match &self.0 {
                Positions::Spans(_) => Vec::new(),
                Positions::Label(label) => vec![crate::mask::basis::Input::Label(label)],
            }
        }

        fn fits(&self, binding: &crate::mask::basis::Binding<'_>) -> Result<(), crate::Error> {
            match &self.0 {
                Positions::Spans(_) => Ok(()),
                Positions::Label(label) => binding.label(label),
            }
        }
    };
}
pub(super) use atom_of_a_set;

/// Returns true if `position` is in the set. If the set is a label, the positions of this label come from the facts of
/// the batch row in `pair`.
pub(super) fn in_set(set: &Positions, pair: &Pair<'_>, position: i64) -> bool {
    pair.facts.spans(set).iter().any(|span| span.holds(position))
}

/// Returns a description of the set, for use inside a sentence.
pub(super) fn set_words(set: &Positions) -> String {
    match set {
        Positions::Label(label) => format!("the label {label:?}"),
        Positions::Spans(_) => "the set".into(),
    }
}

/// Returns the sentence that explains a random atom: whether the draw for this query and key allows the cell.
pub(super) fn draw_words<'a>() -> Sentence<'a> {
    let is = Piece::If(Test::Allowed, "allows".into(), "denies".into());
    sentence!["the random draw for query ", query_position(), " and key ", key_position(), " ", is, " the cell"]
}

/// Returns the sentence that explains a given atom: whether the array or function named `what` allows the cell.
pub(super) fn given_words<'a>(what: &str) -> Sentence<'a> {
    let is = Piece::If(Test::Allowed, " allows".into(), " denies".into());
    let (row, index) = (query(|token| token.index.to_string()), key(|token| token.index.to_string()));
    sentence![what, is, " the cell at query row ", row, ", key ", index]
}
