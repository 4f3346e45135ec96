//! The words of the text language with their meaning, for editors, completions and help.
//!
//! ```
//! use noren_mask::language;
//! let sliding = language::atoms().into_iter().find(|word| word.name == "sliding").unwrap();
//! assert_eq!(sliding.params[0].name, "window");
//! assert!(sliding.doc.starts_with("The last `W` keys"), "{}", sliding.doc);
//! assert!(sliding.example.parse::<noren_mask::Mask>().is_ok());
//! ```

pub(crate) mod check;
pub(crate) mod parse;
pub(crate) mod print;
pub(crate) mod simplify;

use crate::atoms::DEFINITIONS;
use crate::language::parse::vocabulary;
pub use crate::syntax::Param;
use crate::syntax::{Entry, Picture};

/// The text of the documentation page on masks. The page has a table with one row for each score.
const PAGE: &str = include_str!("../../docs/masks.md");

/// A word of the mask language: the name of an elementary mask (atom) or of a score modifier.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Word {
    /// The name, as it is written in a mask.
    pub name: &'static str,
    /// The forms in which the word is written, as Markdown: `` `causal`, `causal(offset=n)` ``.
    pub title: &'static str,
    /// The parameters, in the order in which they may be given without their names.
    pub params: &'static [Param],
    /// A valid mask or score with this word.
    pub example: &'static str,
    /// The meaning of the word, a paragraph of Markdown: the cells that an elementary mask (atom) allows, or the change
    /// that a score modifier makes to scores.
    pub doc: &'static str,
    /// Example masks with the word, for pictures in the documentation.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub pictures: &'static [Picture],
}

/// Returns the words of all elementary masks (atoms), in the order of menus and documentation.
pub fn atoms() -> Vec<Word> {
    let words = DEFINITIONS.iter().map(|definition| &definition.word);
    words.map(|word| of(&word.entry, (word.title, word.doc), word.pictures)).collect()
}

/// Returns the words of all score modifiers.
pub fn scores() -> Vec<Word> {
    let word = |entry| of(entry, table_row(entry).unwrap_or_default(), &[]);
    vocabulary::SCORES.iter().map(word).collect()
}

fn of(entry: &'static Entry, (title, doc): (&'static str, &'static str), pictures: &'static [Picture]) -> Word {
    Word { name: entry.name, title, params: entry.params, example: entry.example, doc, pictures }
}

/// Returns (heading, text) of the table row that describes the score `entry`, or `None` if the table has no such row.
fn table_row(entry: &Entry) -> Option<(&'static str, &'static str)> {
    PAGE.lines().find_map(|line| {
        let (title, doc) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        names(title, entry.name).then_some((title, doc))
    })
}

/// Returns whether the heading `title` contains the word `name`, alone or with arguments.
fn names(title: &str, name: &str) -> bool {
    title.split('`').skip(1).step_by(2).any(|form| form.split('(').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;

    #[test]
    fn every_word_is_explained_and_its_example_is_read() {
        for word in atoms().into_iter().chain(scores()) {
            assert!(!word.title.is_empty() && word.doc.len() > 10, "{word:?}");
            let as_score = scores().contains(&word);
            let text = if as_score { format!("full + {}", word.example) } else { word.example.to_string() };
            text.parse::<Spec>().unwrap_or_else(|e| panic!("{}: {e}", word.name));
        }
    }
}
