//! [`Cause`]: the cause of a problem. The cause determines which control the page opens and which repairs it offers.

use noren_mask::Error as MaskError;
use serde::{Deserialize, Serialize};

/// The cause of a problem. `page/js/base/causes.js` has an entry for each cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// The text of the mask cannot be parsed.
    Syntax,
    /// The parameters of an elementary mask do not fit the shape or the facts, and no other cause describes the problem.
    Parameters,
    /// The text of the mask is too long.
    TextTooLong,
    NeedsLengths,
    NeedsQueryLengths,
    NeedsDocuments,
    NeedsLabel,
    NeedsLevels,
    NeedsLayer,
    NeedsArray,
    /// Lengths in the facts do not fit the shape, or contradict other facts.
    LengthsFit,
    /// Lengths in the text of the mask do not fit the shape.
    LengthsText,
    /// Documents in the facts do not fit the shape.
    DocumentsFit,
    /// Documents in the text of the mask do not fit the shape.
    DocumentsText,
    LabelFit,
    LevelsFit,
    ArrayFit,
    /// Other facts are invalid, or do not fit the shape.
    FactsFit,
    /// A size is 0.
    ZeroSize,
    /// There are too many queries or keys.
    TooLong,
    /// There are too many pairs of batch row and head.
    TooManyPairs,
    /// The number of query heads is not a multiple of the number of key-value heads.
    HeadsMultiple,
    /// The number of query offsets is neither 1 nor the number of batch rows.
    OffsetsCount,
    /// The numbers of queries and keys differ, and the position of the first query is not given.
    NeedsOffset,
    /// The request gives sizes of the shape that must not be given together.
    ShapeTwice,
    /// The request gives only one of two sizes that must be given together, such as `q` without `kv`.
    ShapeHalf,
    /// A selector of `heads(...)` names a head that does not exist.
    HeadMissing,
    /// A selector of `batch(...)` names a batch row that does not exist.
    RowMissing,
    /// A flow has too many layers, or fewer layers than masks.
    DepthLimit,
    PolicyTooLong,
    TextEmpty,
    ExportTooLarge,
    /// A worker took too long, or needed too much memory.
    Resources,
    /// Too many requests are waiting.
    Busy,
}

impl Cause {
    /// Returns the cause of an error that occurred while a mask was bound, and the name of the label, array, function,
    /// fact or elementary mask that the error is about.
    pub(crate) fn of(error: &MaskError) -> (Option<Cause>, Option<String>) {
        match error {
            MaskError::Parse(_) => (Some(Cause::Syntax), None),
            MaskError::Missing { part, what, .. } => Self::missing(part, what),
            MaskError::Atom { atom, problem } => (Some(Self::of_atom(atom, problem)), Some(atom.clone())),
            MaskError::Fact { fact, .. } => Self::of_fact(fact),
            _ => (None, None),
        }
    }

    fn missing(atom: &str, what: &str) -> (Option<Cause>, Option<String>) {
        let named = |prefix: &str| Some(what.strip_prefix(prefix)?.trim_matches('"').to_string());
        for (prefix, cause) in [("the label ", Cause::NeedsLabel), ("the array ", Cause::NeedsArray)] {
            if let Some(name) = named(prefix) {
                return (Some(cause), Some(name));
            }
        }
        let cause = match what {
            "lengths" => Cause::NeedsLengths,
            "query_lengths" => Cause::NeedsQueryLengths,
            "documents" => Cause::NeedsDocuments,
            "levels" => Cause::NeedsLevels,
            "the layer" => Cause::NeedsLayer,
            _ => Cause::Parameters,
        };
        (Some(cause), Some(atom.to_string()))
    }

    fn of_atom(atom: &str, problem: &str) -> Cause {
        let name = atom.split('(').next().unwrap_or(atom);
        match name {
            "clearance" => Cause::LevelsFit,
            "documents" if atom == "documents" => Cause::DocumentsFit,
            "documents" => Cause::DocumentsText,
            "dense" => Cause::ArrayFit,
            "padding" => Cause::LengthsText,
            _ if problem.starts_with("a selector names head") => Cause::HeadMissing,
            _ if problem.starts_with("a selector names batch row") => Cause::RowMissing,
            _ => Cause::Parameters,
        }
    }

    /// Returns the cause of an error about a fact. `fact` may have a path after the name, such as `documents[0][1]`.
    fn of_fact(fact: &str) -> (Option<Cause>, Option<String>) {
        if let Some(label) = fact.strip_prefix("label ") {
            return (Some(Cause::LabelFit), Some(label.trim_matches('"').to_string()));
        }
        let name = fact.split(['[', '.']).next().unwrap_or(fact).trim_matches('`');
        let cause = match name {
            "lengths" | "side" => Cause::LengthsFit,
            "documents" => Cause::DocumentsFit,
            "labels" => Cause::LabelFit,
            "levels" => Cause::LevelsFit,
            _ => Cause::FactsFit,
        };
        (Some(cause), Some(name.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::scene::Known;

    fn cause(scene: &str) -> (Option<Cause>, Option<String>) {
        match Known::of_definition(scene.as_bytes()) {
            Err(problem) => (problem.cause, problem.name.clone()),
            Ok(_) => panic!("{scene} is accepted"),
        }
    }

    #[test]
    fn problems_have_their_causes() {
        for (scene, expected) in [
            (r#"{"mask": "causl"}"#, Cause::Syntax),
            (r#"{"mask": "sliding(0)"}"#, Cause::Syntax),
            (r#"{"mask": "prefix([3, 4])", "shape": {"len": 4, "batch": 3}}"#, Cause::Parameters),
            (r#"{"mask": "padding"}"#, Cause::NeedsLengths),
            (r#"{"mask": "documents"}"#, Cause::NeedsDocuments),
            (r#"{"mask": "clearance"}"#, Cause::NeedsLevels),
            (r#"{"mask": "layers(0: causal, else: full)"}"#, Cause::NeedsLayer),
            (r#"{"mask": "padding", "shape": {"len": 4}, "facts": {"lengths": [5]}}"#, Cause::LengthsFit),
            (r#"{"mask": "padding(lengths=[3, 4])", "shape": {"len": 4, "batch": 3}}"#, Cause::LengthsText),
            (r#"{"mask": "documents", "shape": {"len": 4}, "facts": {"documents": [3, 2]}}"#, Cause::DocumentsFit),
            (r#"{"mask": "documents([3, 2])", "shape": {"len": 4}}"#, Cause::DocumentsText),
            (r#"{"mask": "clearance", "shape": {"len": 4}, "facts": {"levels": [3, 2]}}"#, Cause::LevelsFit),
            (r#"{"mask": "full", "shape": {"len": 4}, "facts": {"positions": [3, 2]}}"#, Cause::FactsFit),
            (r#"{"mask": "full", "shape": {"len": 0}}"#, Cause::ZeroSize),
            (r#"{"mask": "full", "shape": {"len": 4, "heads": 3, "kv_heads": 2}}"#, Cause::HeadsMultiple),
            (r#"{"mask": "heads(0..4: full)", "shape": {"len": 4, "heads": 2}}"#, Cause::HeadMissing),
            (r#"{"mask": "batch(0..4: full)", "shape": {"len": 4, "batch": 2}}"#, Cause::RowMissing),
            (r#"{"mask": "full", "shape": {"q": 4, "kv": 5}}"#, Cause::NeedsOffset),
            (r#"{"mask": "dense(a)", "facts": {"arrays": {"a": {"keep": [[1, 0]]}}}}"#, Cause::NeedsOffset),
            (r#"{"mask": "full", "shape": {"q": 4}}"#, Cause::ShapeHalf),
            (r#"{"mask": "full", "shape": {"len": 4, "past": 3}}"#, Cause::ShapeTwice),
        ] {
            assert_eq!(cause(scene).0, Some(expected), "{scene}");
        }
        assert_eq!(cause(r#"{"mask": "keys(label=\"pii\")"}"#), (Some(Cause::NeedsLabel), Some("pii".into())));
        assert_eq!(cause(r#"{"mask": "dense(mine)"}"#), (Some(Cause::NeedsArray), Some("mine".into())));
        let late = r#"{"mask": "keys(label=\"a\")", "shape": {"len": 4}, "facts": {"labels": {"a": [9]}}}"#;
        assert_eq!(cause(late), (Some(Cause::LabelFit), Some("a".into())));
    }

    #[test]
    fn a_misspelled_name_has_a_repair() {
        let problem = match Known::of_definition(br#"{"mask": "full & cuasal"}"#) {
            Err(problem) => problem,
            Ok(_) => panic!("the mask is accepted"),
        };
        assert_eq!((problem.repair.as_deref(), problem.start, problem.end), (Some("causal"), Some(7), Some(13)));
    }
}
