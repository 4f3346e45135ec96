//! The words of the language with what they mean, for editors, completions and help.
//!
//! ```
//! use noren_mask::language;
//! let sliding = language::atoms().into_iter().find(|word| word.name == "sliding").unwrap();
//! assert_eq!(sliding.params[0].name, "window");
//! assert!(sliding.doc.starts_with("The last `W` keys"), "{}", sliding.doc);
//! assert!(sliding.example.parse::<noren_mask::Mask>().is_ok());
//! ```

use crate::parse::vocabulary::{self, Entry};

/// The page on masks: one section for each atom, a table row for each score.
const PAGE: &str = include_str!("../docs/masks.md");

/// An atom or a score.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Word {
    /// As it is written.
    pub name: &'static str,
    /// The forms it takes: `` `causal`, `causal(offset=n)` ``.
    pub title: &'static str,
    /// In the order in which they may be given without their names.
    pub params: Vec<Param>,
    /// One that works.
    pub example: &'static str,
    /// What it allows, or does to scores: a paragraph of Markdown.
    pub doc: &'static str,
}

/// A parameter of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Param {
    /// As it is written before `=`.
    pub name: &'static str,
    /// What it is: "number of keys, the query's own included".
    pub what: &'static str,
    /// Whether it must be given.
    pub required: bool,
}

/// All atoms, in the order in which they are offered.
pub fn atoms() -> Vec<Word> {
    let word = |entry| {
        let (title, doc) = section(entry).unwrap_or_default();
        of(entry, title, doc)
    };
    vocabulary::ATOMS.iter().map(word).collect()
}

/// All scores.
pub fn scores() -> Vec<Word> {
    let word = |entry| {
        let (title, doc) = table_row(entry).unwrap_or_default();
        of(entry, title, doc)
    };
    vocabulary::SCORES.iter().map(word).collect()
}

fn of(entry: &'static Entry, title: &'static str, doc: &'static str) -> Word {
    let params =
        entry.params.iter().map(|param| Param { name: param.name, what: param.what, required: param.required });
    Word { name: entry.name, title, params: params.collect(), example: entry.example, doc }
}

/// The heading that names an atom, and the first paragraph below it.
fn section(entry: &Entry) -> Option<(&'static str, &'static str)> {
    PAGE.split("\n### ").skip(1).find_map(|section| {
        let (title, rest) = section.split_once('\n')?;
        names(title, entry.name).then_some(())?;
        Some((title, rest.trim_start().split("\n\n").next()?.trim()))
    })
}

/// The row of the table of scores that names a score.
fn table_row(entry: &Entry) -> Option<(&'static str, &'static str)> {
    PAGE.lines().find_map(|line| {
        let (title, doc) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        names(title, entry.name).then_some((title, doc))
    })
}

/// Whether a heading has `name`, alone or with arguments.
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
