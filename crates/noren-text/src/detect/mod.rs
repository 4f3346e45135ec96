//! Detectors: what in a text is private.

mod card;
mod email;
mod iban;
mod ip;
mod own;
mod phone;
mod ssn;

use crate::Error;
use crate::fold::Folded;
use aho_corasick::AhoCorasick;
use regex::Regex;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// The names of the detectors that need nothing from the user.
pub const BUILT_IN: [&str; 6] = ["email", "phone", "card", "iban", "ip", "ssn"];

/// The kind of a finding: the name of the detector that found it, which is also the label of its tokens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Arc<str>);

impl Kind {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A private piece of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// Where it stands, in bytes of the text; begins and ends between characters and is never empty.
    pub range: Range<usize>,
}

impl Finding {
    /// Where it stands in `text`, in characters.
    ///
    /// ```
    /// let text = "żółw: żółw@example.org";
    /// let found = "email".parse::<noren_text::Detectors>()?.find(text)?;
    /// assert_eq!((found[0].range.clone(), found[0].chars(text)), (9..28, 6..22));
    /// # Ok::<(), noren_text::Error>(())
    /// ```
    pub fn chars(&self, text: &str) -> Range<usize> {
        let start = text[..self.range.start].chars().count();
        start..start + text[self.range.clone()].chars().count()
    }
}

/// Finds one kind of private text.
///
/// Those of [`BUILT_IN`] know the forms that people write: digits and letters of full width, digits of other scripts, dashes and
/// spaces of all kinds, characters of no width between. Where a checksum or a range tells a secret from a number that looks
/// like it, it is checked.
#[derive(Clone, Debug)]
pub struct Detector {
    kind: Kind,
    search: Search,
}

#[derive(Clone, Debug)]
enum Search {
    BuiltIn(fn(&Folded) -> Vec<Range<usize>>),
    Words(Arc<AhoCorasick>),
    Pattern(Regex),
    Spans(Vec<Range<usize>>),
}

impl Detector {
    /// The one of [`BUILT_IN`] that is called `name`.
    ///
    /// # Errors
    /// [`Error::UnknownDetector`], with the nearest name.
    pub fn built_in(name: &str) -> Result<Self, Error> {
        let search: fn(&Folded) -> Vec<Range<usize>> = match name {
            "email" => email::find,
            "phone" => phone::find,
            "card" => card::find,
            "iban" => iban::find,
            "ip" => ip::find,
            "ssn" => ssn::find,
            _ => return Err(unknown(name)),
        };
        Ok(Detector { kind: Kind(name.into()), search: Search::BuiltIn(search) })
    }

    /// Words and phrases, whole and in any case, whatever white space stands between their parts and however their accents
    /// are encoded. Scripts that put no space between words need none around them.
    ///
    /// ```
    /// use noren_text::{Detector, Detectors};
    /// let names = Detectors::from(Detector::words("name", ["Ann", "Ann Lee"])?);
    /// assert_eq!(names.find("ANN\nLee met Anna.")?[0].range, 0..7);
    /// # Ok::<(), noren_text::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Detector`] for a bad name, an empty list or an empty word.
    pub fn words<S: AsRef<str>>(name: &str, words: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        Ok(Detector { kind: own_name(name)?, search: Search::Words(own::words(name, words)?) })
    }

    /// A regular expression in the syntax of the crate `regex`, whose searches take linear time whatever the pattern and the
    /// text; every match that is not empty is private, whole.
    ///
    /// # Errors
    /// [`Error::Detector`] for a bad name, a malformed pattern or one too large to compile.
    pub fn pattern(name: &str, pattern: &str) -> Result<Self, Error> {
        Ok(Detector { kind: own_name(name)?, search: Search::Pattern(own::pattern(name, pattern)?) })
    }

    /// What the user says is private, in characters of the text.
    ///
    /// # Errors
    /// [`Error::Detector`] for a bad name; [`Error::Span`] for an empty span. Spans beyond a text are refused when it is
    /// searched.
    pub fn spans(name: &str, spans: impl IntoIterator<Item = Range<usize>>) -> Result<Self, Error> {
        Ok(Detector { kind: own_name(name)?, search: Search::Spans(own::spans(name, spans)?) })
    }

    /// What it calls its findings.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The findings in `text`, by where they begin.
    fn find(&self, text: &Text<'_>) -> Result<Vec<Finding>, Error> {
        let back = |folded: &Folded, found: Vec<Range<usize>>| -> Vec<Range<usize>> {
            found.into_iter().map(|range| folded.origin(range)).collect()
        };
        let ranges = match &self.search {
            Search::BuiltIn(find) => back(&text.folded, find(&text.folded)),
            Search::Words(words) => {
                let folded = Folded::words(text.text);
                let found = own::find_words(words, &folded);
                back(&folded, found)
            }
            Search::Pattern(regex) => {
                regex.find_iter(text.text).map(|m| m.range()).filter(|range| !range.is_empty()).collect()
            }
            Search::Spans(spans) => own::find_spans(self.kind.as_str(), spans, text.text)?,
        };
        Ok(ranges.into_iter().map(|range| Finding { kind: self.kind.clone(), range }).collect())
    }
}

/// A text and what detectors read of it.
struct Text<'a> {
    text: &'a str,
    folded: Folded,
}

/// Several detectors.
///
/// Parses from names of [`BUILT_IN`] with commas between; `all` is all of them.
#[derive(Clone, Debug, Default)]
pub struct Detectors(Vec<Detector>);

impl Detectors {
    /// Finds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more.
    pub fn with(mut self, detector: Detector) -> Self {
        self.0.push(detector);
        self
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they call their findings, each once, in the order in which they were given.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = Vec::new();
        for detector in &self.0 {
            if !kinds.contains(&detector.kind) {
                kinds.push(detector.kind.clone());
            }
        }
        kinds
    }

    /// All that any of them finds, by where it begins, the longer one and then the earlier detector first.
    ///
    /// Findings of different kinds may overlap, and none is left out for it: what any detector found is private. For telling
    /// people there is [`outermost`].
    ///
    /// # Errors
    /// [`Error::Span`] for a user's span that lies outside of the text.
    pub fn find(&self, text: &str) -> Result<Vec<Finding>, Error> {
        let text = Text { text, folded: Folded::new(text) };
        let mut found = Vec::new();
        for detector in &self.0 {
            found.extend(detector.find(&text)?);
        }
        found.sort_by_key(|f: &Finding| (f.range.start, std::cmp::Reverse(f.range.end)));
        found.dedup();
        Ok(found)
    }
}

impl From<Detector> for Detectors {
    fn from(detector: Detector) -> Self {
        Detectors(vec![detector])
    }
}

impl FromStr for Detectors {
    type Err = Error;

    fn from_str(names: &str) -> Result<Self, Error> {
        let mut detectors = Detectors::new();
        for name in names.split(',').map(str::trim) {
            match name {
                "all" => detectors
                    .0
                    .extend(BUILT_IN.iter().map(|name| Detector::built_in(name)).collect::<Result<Vec<_>, _>>()?),
                name => detectors.0.push(Detector::built_in(name)?),
            }
        }
        Ok(detectors)
    }
}

/// Those of `findings` (as [`Detectors::find`] sorts them) that lie in no other: of a card number and the telephone number that
/// a part of it looks like, the card number.
pub fn outermost(findings: &[Finding]) -> Vec<&Finding> {
    let mut kept: Vec<&Finding> = Vec::new();
    for finding in findings {
        // Sorted by start: whatever contains this one came before, and the last that was kept reaches furthest.
        if kept.last().is_none_or(|last| last.range.end < finding.range.end) {
            kept.push(finding);
        }
    }
    kept
}

/// A name for a detector of one's own: it becomes a label in masks, and must not be taken for a built-in one.
fn own_name(name: &str) -> Result<Kind, Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        let short: String = name.chars().take(64).collect();
        return Err(Error::detector(short, "a name is 1 to 64 ASCII letters, digits, `_` or `-`"));
    }
    if BUILT_IN.contains(&name) || name == "all" || name == crate::PRIVATE {
        return Err(Error::detector(name, "this name is taken: choose another for a detector of your own"));
    }
    Ok(Kind(name.into()))
}

fn unknown(name: &str) -> Error {
    let name: String = name.chars().take(64).collect();
    let nearest = BUILT_IN
        .into_iter()
        .chain(["all"])
        .map(|known| (strsim::osa_distance(&name.to_lowercase(), known), known))
        .filter(|(far, known)| *far <= (name.len() / 3).max(1) && *far < known.len())
        .min()
        .map(|(_, known)| known);
    Error::UnknownDetector {
        nearest: synonym(&name).or(nearest).map(str::to_string),
        name,
        known: format!("{}, all", BUILT_IN.join(", ")),
    }
}

/// What detectors are called elsewhere.
fn synonym(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().replace(['-', '_', ' '], "").as_str() {
        "mail" | "emailaddress" => "email",
        "telephone" | "tel" | "phonenumber" | "mobile" => "phone",
        "creditcard" | "paymentcard" | "pan" | "cc" => "card",
        "bank" | "bankaccount" | "account" => "iban",
        "ipaddress" | "ipv4" | "ipv6" => "ip",
        "socialsecurity" | "socialsecuritynumber" | "usssn" => "ssn",
        "pii" | "everything" | "any" => "all",
        _ => return None,
    })
}

/// Whether letters or digits go on before or after `range`.
fn goes_on(folded: &Folded, range: &Range<usize>) -> bool {
    let (before, after) = folded.around(range);
    [before, after].into_iter().flatten().any(adjoins)
}

/// Whether a number next to this character is a piece of something longer: next to letters of scripts that put no space there it
/// is not.
fn adjoins(c: char) -> bool {
    (c.is_alphanumeric() || c == '_') && !is_spaceless(c)
}

/// Letters of Thai, Lao, Myanmar, Khmer, Chinese, Japanese, Korean and Tangut, decomposed ones too. Korean has spaces, but none
/// between a word and what is added to it.
fn is_spaceless(c: char) -> bool {
    matches!(c as u32, 0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x9fff | 0x1100..=0x11ff
        | 0xa960..=0xa97f | 0xac00..=0xd7ff | 0xf900..=0xfaff | 0x16fe0..=0x1b2ff | 0x20000..=0x3ffff)
}
