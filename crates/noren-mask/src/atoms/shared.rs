//! Functions that several atoms use: explanations of bands (ranges of distances between query and key), and sets as
//! parameters.

use crate::basis::Pair;
use crate::set::Set;
use crate::syntax::{Arguments, Param, ParseError, Parsed, may};

/// Returns a sentence: why the key is or is not in the band `first <= k <= last`. `None` means no limit on that side.
pub(super) fn band_words(pair: &Pair<'_>, first: Option<i64>, last: Option<i64>) -> String {
    let Pair { q, k, .. } = *pair;
    match (first, last) {
        (Some(first), _) if k < first => format!("key {k} is before {first}, the first position that query {q} reads"),
        (_, Some(last)) if k > last => format!("key {k} is after {last}, the last position that query {q} reads"),
        (None, Some(last)) => format!("key {k} is not after {last}, the last position that query {q} reads"),
        (Some(first), None) => format!("key {k} is not before {first}, the first position that query {q} reads"),
        (Some(first), Some(last)) => format!("key {k} is in {first}..={last}, which query {q} reads"),
        (None, None) => format!("query {q} reads every key"),
    }
}

/// The parameters of an atom with a set.
pub(super) const SET: &[Param] = &[may("set", "positions"), may("label", "name of a label")];

/// Reads a set: positions, or `label="name"`.
pub(super) fn read_set(arguments: &Arguments) -> Parsed<Set> {
    let name = arguments.entry.name;
    match (arguments.get(0), arguments.get(1)) {
        (Some(spans), None) => Ok(Set::Spans(spans.spans()?)),
        (None, Some(label)) => Ok(Set::Label(label.name()?)),
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

/// Implements the methods of `Atom` that are equal for all atoms with one set as a parameter: name, text, checks and label.
macro_rules! atom_of_a_set {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn write(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{}({})", $name, self.0)
        }

        fn check(&self) -> Result<(), String> {
            crate::basis::check_set(&self.0)
        }

        fn inputs(&self) -> Vec<crate::basis::Input<'_>> {
            match &self.0 {
                Set::Spans(_) => Vec::new(),
                Set::Label(label) => vec![crate::basis::Input::Label(label)],
            }
        }

        fn fits(&self, binding: &crate::basis::Binding<'_>) -> Result<(), crate::Error> {
            match &self.0 {
                Set::Spans(_) => Ok(()),
                Set::Label(label) => binding.label(label),
            }
        }
    };
}
pub(super) use atom_of_a_set;

/// Returns whether `position` is in the set. The facts of the pair's batch row give the positions of labels.
pub(super) fn in_set(set: &Set, pair: &Pair<'_>, position: i64) -> bool {
    pair.facts.spans(set).iter().any(|span| span.holds(position))
}

/// Returns a description of the set, for use inside a sentence.
pub(super) fn set_words(set: &Set) -> String {
    match set {
        Set::Label(label) => format!("the label {label:?}"),
        Set::Spans(_) => "the set".into(),
    }
}

/// Returns a sentence: whether the random draw for this query and key allows the cell.
pub(super) fn draw_words(pair: &Pair<'_>, allowed: bool) -> String {
    let Pair { q, k, .. } = *pair;
    match allowed {
        true => format!("the random draw for query {q} and key {k} allows the cell"),
        false => format!("the random draw for query {q} and key {k} denies the cell"),
    }
}

/// Returns a sentence: whether the array or function `what` allows the cell.
pub(super) fn given_words(what: &str, pair: &Pair<'_>, allowed: bool) -> String {
    match allowed {
        true => format!("{what} allows the cell at query row {}, key {}", pair.row, pair.key),
        false => format!("{what} denies the cell at query row {}, key {}", pair.row, pair.key),
    }
}
