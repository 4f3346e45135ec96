//! [`EntityRecognizer`]: detects names, places and other kinds of private text with a model that classifies tokens.

use crate::embed::load_tokenizer;
use crate::error::{Error, Result};
use crate::model::{Batch, Head, Model};
use noren::Dtype;
use noren_text::{HfTokenizer, PRIVATE, Recognizer, Window};
use std::ops::Range;
use std::path::Path;

/// The meaning of a class of a token classifier, such as `B-PER`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Tag {
    /// The index of the kind of entity in `EntityRecognizer::kinds`; `None` for the class `O`, which marks words
    /// outside of entities.
    kind: Option<usize>,
    /// True if an entity begins at each word with this tag, independent of the tag of the previous word (prefixes `B`,
    /// `U`, `S`).
    begins: bool,
    /// True if an entity ends at each word with this tag, independent of the tag of the next word (prefixes `L`, `E`,
    /// `U`, `S`).
    ends: bool,
}

/// A model that classifies tokens (an architecture whose name ends in `ForTokenClassification`), with its tokenizer.
///
/// `id2label` gives the names of classes as BIO, BILOU or BIOES: `O`, `B-PER`, `I-PER`. A word belongs to an entity if
/// any of its tokens does. `PER` and `PERSON` become the kind `name`; `LOC`, `LOCATION` and `GPE` become `place`; `ORG`
/// becomes `organization`; other names are used in lower case. Texts longer than the model's positions are read in
/// windows that overlap by a quarter, and the entities of all windows are joined.
#[derive(Debug)]
pub struct EntityRecognizer {
    model: Model,
    tokenizer: HfTokenizer,
    positions: usize,
    tags: Vec<Tag>,
    kinds: Vec<String>,
}

impl EntityRecognizer {
    /// Loads a folder with `config.json`, `model.safetensors` and `tokenizer.json`.
    ///
    /// # Errors
    /// Returns the errors of [`Model::load`] and [`Model::pack`], and an error for an architecture that does not classify tokens, an `id2label` without `O` or without any kind, and a tokenizer that is missing, malformed or of another model.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let model = Model::load_packed(folder, Dtype::F32)?;
        let Head::TokenClassifier(classes) = model.config().head().clone() else {
            let problem = "the model does not classify tokens: the name of its architecture in config.json must end in ForTokenClassification";
            return Err(Error::file(folder, problem));
        };
        let (tags, kinds) = read_labels(&classes.names)?;
        let positions = model.positions().unwrap_or(usize::MAX);
        let tokenizer = load_tokenizer(folder)?;
        Ok(EntityRecognizer { model, tokenizer, positions, tags, kinds })
    }

    /// Returns the index of the class with the largest score for each token of a window. If several scores are equal,
    /// the first class is returned.
    ///
    /// # Errors
    /// Returns an error for tokens outside the vocabulary, and for scores that are not finite.
    fn classes(&self, window: &Window) -> Result<Vec<usize>> {
        let output = self.model.forward(&Batch::new(vec![window.encoding.ids.clone()])?)?;
        let logits = output.logits.map(|logits| logits.get(0)).transpose()?.map(|logits| logits.to_vec2::<f32>());
        let logits = logits.transpose()?.unwrap_or_default();
        if let Some(bad) = logits.iter().flatten().find(|x| !x.is_finite()) {
            return Err(Error::input("a class score", bad, "a finite number is needed: the weights are damaged"));
        }
        let best =
            |row: &Vec<f32>| (1..row.len()).fold(0, |best, class| if row[class] > row[best] { class } else { best });
        Ok(logits.iter().map(best).collect())
    }

    /// Returns the words of a text, in order. A word that belongs to an entity has the tag of the entity.
    fn words(&self, text: &str) -> Result<Vec<Word>> {
        let mut words: Vec<Word> = Vec::new();
        for window in self.tokenizer.windows(text, self.positions)? {
            let classes = self.classes(&window)?;
            for (at, class) in classes.into_iter().enumerate() {
                let range = &window.encoding.ranges[at];
                let Some(number) = window.words[at].filter(|_| !range.is_empty()) else { continue };
                let place = words.partition_point(|word| word.number < number);
                if words.get(place).is_none_or(|word| word.number != number) {
                    words.insert(place, Word { number, range: range.clone(), tag: None });
                }
                let word = &mut words[place];
                word.range = word.range.start.min(range.start)..word.range.end.max(range.end);
                if word.tag.is_none() {
                    word.tag = self.tags.get(class).filter(|tag| tag.kind.is_some()).cloned();
                }
            }
        }
        Ok(words)
    }

    /// Returns the entities of a text, as (index of the kind in the list that `kinds` returns, range of bytes in the
    /// text).
    ///
    /// # Errors
    /// Returns an error if the tokenizer or the model cannot process the text.
    pub fn entities(&self, text: &str) -> Result<Vec<(usize, Range<usize>)>> {
        let mut found: Vec<(usize, Range<usize>)> = Vec::new();
        let mut goes_on = false;
        for word in self.words(text)? {
            let Some(Tag { kind: Some(kind), begins, ends }) = word.tag else {
                goes_on = false;
                continue;
            };
            match found.last_mut() {
                Some((last, range)) if goes_on && !begins && *last == kind => range.end = word.range.end,
                _ => found.push((kind, word.range)),
            }
            goes_on = !ends;
        }
        Ok(found)
    }
}

impl Recognizer for EntityRecognizer {
    fn kinds(&self) -> Vec<String> {
        self.kinds.clone()
    }

    fn find(&self, text: &str) -> std::result::Result<Vec<(usize, Range<usize>)>, String> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        self.entities(text).map_err(|error| error.to_string())
    }
}

/// A word of a text, with its range of bytes in the text and its tag.
struct Word {
    number: u32,
    range: Range<usize>,
    /// The tag of the word's first token that belongs to an entity; `None` if no token of the word belongs to one.
    tag: Option<Tag>,
}

/// Returns the tag of each class, and the names of the kinds of entities. `labels` are the names of the classes, such
/// as `B-PER`. A tag holds the index of its kind in the returned names.
fn read_labels(labels: &[String]) -> Result<(Vec<Tag>, Vec<String>)> {
    let mut kinds: Vec<String> = Vec::new();
    let mut tags = Vec::new();
    // `E_MAIL` is a name, unless all labels have a tag and `_`.
    let tagged = |label: &String| matches!(label.as_bytes(), [tag, b'_', _, ..] if b"BIMLUES".contains(tag));
    let begins = |label: &String| label.starts_with(['B', 'I']);
    let mut named = labels.iter().filter(|label| *label != "O");
    let underscores = named.clone().any(begins) && named.all(tagged);
    for label in labels {
        let (prefix, name) = match label.as_bytes() {
            [prefix, separator, _, ..]
                if b"BIMLUES".contains(prefix) && (*separator == b'-' || underscores && *separator == b'_') =>
            {
                (*prefix, &label[2..])
            }
            b"O" => {
                tags.push(Tag { kind: None, begins: false, ends: false });
                continue;
            }
            _ => (b'I', label.as_str()),
        };
        let name = kind_name(name);
        let kind = kinds.iter().position(|kind| *kind == name).unwrap_or_else(|| {
            kinds.push(name);
            kinds.len() - 1
        });
        tags.push(Tag { kind: Some(kind), begins: b"BUS".contains(&prefix), ends: b"LEUS".contains(&prefix) });
    }
    if kinds.is_empty() || tags.iter().all(|tag| tag.kind.is_some()) {
        let given = format!("{labels:?}");
        let expected =
            "a detector needs the class O (no entity) and at least one kind of entity, as in O, B-PER, I-PER";
        return Err(Error::config("id2label", given, expected));
    }
    Ok((tags, kinds))
}

/// Converts the kind of entity in a label, such as `PER`, to the name of this kind in masks and reports, such as
/// `name`.
fn kind_name(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
    let plain: String = name.chars().take(64).map(fits).collect();
    match plain.as_str() {
        "per" | "person" => "name".into(),
        "loc" | "location" | "gpe" => "place".into(),
        "org" | "organisation" => "organization".into(),
        "all" => "all_kinds".into(),
        PRIVATE => "private_text".into(),
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_tags() {
        let of = |labels: &[&str]| read_labels(&labels.iter().map(|label| label.to_string()).collect::<Vec<_>>());
        let (tags, kinds) = of(&["O", "B-PER", "I-PER", "U-LOC", "E-Date of Birth", "MISC"]).unwrap();
        assert_eq!(kinds, ["name", "place", "date_of_birth", "misc"]);
        let shown: Vec<_> = tags.iter().map(|tag| (tag.kind, tag.begins, tag.ends)).collect();
        let expected = [
            (None, false, false),
            (Some(0), true, false),
            (Some(0), false, false),
            (Some(1), true, true),
            (Some(2), false, true),
            (Some(3), false, false),
        ];
        assert_eq!(shown, expected);
        assert_eq!(of(&["O", "E_MAIL", "PHONE"]).unwrap().1, ["e_mail", "phone"]);
        assert_eq!(of(&["O", "E_MAIL", "S_SN"]).unwrap().1, ["e_mail", "s_sn"]);
        assert_eq!(of(&["O", "B_PER", "I_PER", "E_LOC"]).unwrap().1, ["name", "place"]);
        for labels in [&["LABEL_0", "LABEL_1"][..], &["O"], &[]] {
            let message = of(labels).unwrap_err().to_string();
            assert!(message.contains("id2label") && message.contains("the class O"), "{message}");
        }
    }
}
