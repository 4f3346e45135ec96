//! Detectors of private text.

mod address;
mod around;
mod card;
mod date;
mod email;
mod iban;
mod ip;
mod key;
mod mac;
mod own;
mod password;
mod phone;
mod private_key;
mod ssn;
mod url;

use crate::Error;
use crate::fold::{Folded, Invisible, has_invisible};
use aho_corasick::AhoCorasick;
use regex::Regex;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// The label that every private token has, in addition to the label of its kind. No kind may have this name.
pub const PRIVATE: &str = "private";

/// The names of the built-in detectors, which need no data from the user.
pub const BUILT_IN: [&str; 13] = [
    "email",
    "phone",
    "card",
    "iban",
    "ip",
    "ssn",
    "mac",
    "url",
    "key",
    "private_key",
    "password",
    "birth_date",
    "address",
];
/// The kinds of private text that only a model can find, `(kind, plural in a report)`. A report lists these kinds,
/// except those for which a model has searched.
const OTHERS: [(&str, &str); 3] = [("name", "names"), ("place", "places"), ("organization", "organizations")];

/// A kind of private text, such as `email`: the name of the detector that finds text of this kind. The name is also the
/// label of the tokens that contain the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Arc<str>);

impl Kind {
    /// Returns the kind `name`, which may also be the name of a built-in detector.
    ///
    /// # Errors
    /// Returns [`Error::Detector`] unless the name has 1 to 64 ASCII letters, digits, `_` or `-`, and for the names
    /// `private` and `all`.
    pub fn new(name: &str) -> Result<Self, Error> {
        if name == "all" { own_name(name) } else { kind_name(name) }
    }

    /// Returns the name of the kind.
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

/// A piece of private text that a detector found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The kind of private text.
    pub kind: Kind,
    /// The byte range of the private text in the whole text. The range begins and ends between characters and is never
    /// empty.
    pub range: Range<usize>,
}

impl Finding {
    /// Returns the finding as a range of characters of `text`, counted from 0.
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

/// A detector of one kind of private text.
///
/// The detectors of [`BUILT_IN`] accept the forms that people write: digits of all scripts, full-width letters, all
/// kinds of dashes and white space, and characters without width within the private text. If numbers of a kind have a
/// checksum or valid ranges, the detector checks these.
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
    /// Returns the built-in detector `name`; [`BUILT_IN`] lists the names.
    ///
    /// # Errors
    /// Returns [`Error::UnknownDetector`], with the most similar name, if no detector has this name.
    pub fn built_in(name: &str) -> Result<Self, Error> {
        let search: fn(&Folded) -> Vec<Range<usize>> = match name {
            "email" => email::find,
            "phone" => phone::find,
            "card" => card::find,
            "iban" => iban::find,
            "ip" => ip::find,
            "ssn" => ssn::find,
            "mac" => mac::find,
            "url" => url::find,
            "key" => key::find,
            "private_key" => private_key::find,
            "password" => password::find,
            "birth_date" => date::find,
            "address" => address::find,
            _ => return Err(unknown(name)),
        };
        Ok(Detector { kind: Kind(name.into()), search: Search::BuiltIn(search) })
    }

    /// Returns a detector of words and phrases. They are found as whole words, in upper and lower case, with any white
    /// space between the words of a phrase and any encoding of accents. Words of scripts without spaces between words
    /// are found also inside longer text.
    ///
    /// ```
    /// use noren_text::{Detector, Detectors};
    /// let names = Detectors::from(Detector::words("name", ["Ann", "Ann Lee"])?);
    /// assert_eq!(names.find("ANN\nLee met Anna.")?[0].range, 0..7);
    /// # Ok::<(), noren_text::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Detector`] for an invalid name, an empty list or an empty word.
    pub fn words<S: AsRef<str>>(name: &str, words: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        Ok(Detector { kind: own_name(name)?, search: Search::Words(own::words(name, words)?) })
    }

    /// Returns a detector of the matches of a regular expression in the syntax of the crate `regex`, whose searches
    /// take linear time for any pattern and text. Every non-empty match is private text.
    ///
    /// # Errors
    /// Returns [`Error::Detector`] for an invalid name, and for a pattern that is malformed or too large to compile.
    pub fn pattern(name: &str, pattern: &str) -> Result<Self, Error> {
        Ok(Detector { kind: own_name(name)?, search: Search::Pattern(own::pattern(name, pattern)?) })
    }

    /// Returns a detector that finds the given ranges: indices of characters, counted from 0, with an exclusive end.
    ///
    /// # Errors
    /// Returns [`Error::Detector`] for an invalid name and [`Error::Span`] for an empty span. A span outside the text
    /// is an error of [`Detectors::find`].
    pub fn spans(name: &str, spans: impl IntoIterator<Item = Range<usize>>) -> Result<Self, Error> {
        Ok(Detector { kind: own_name(name)?, search: Search::Spans(own::spans(name, spans)?) })
    }

    /// Returns the kind of private text that the detector finds.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the findings in `text`. A text with characters without width is searched in two forms (see [`Text`]), so
    /// the result may contain a finding twice.
    fn find(&self, text: &Text<'_>) -> Result<Vec<Finding>, Error> {
        let back = |folded: &Folded, found: Vec<Range<usize>>| -> Vec<Range<usize>> {
            found.into_iter().map(|range| folded.origin(range)).collect()
        };
        let ranges = match &self.search {
            Search::BuiltIn(find) => text.folded.iter().flat_map(|folded| back(folded, find(folded))).collect(),
            Search::Words(words) => {
                let folded = text.readings().map(|invisible| Folded::words(text.text, invisible));
                folded.flat_map(|folded| back(&folded, own::find_words(words, &folded))).collect()
            }
            Search::Pattern(regex) => {
                regex.find_iter(text.text).map(|m| m.range()).filter(|range| !range.is_empty()).collect()
            }
            Search::Spans(spans) => own::find_spans(self.kind.as_str(), spans, text.text)?,
        };
        Ok(ranges.into_iter().map(|range| Finding { kind: self.kind.clone(), range }).collect())
    }
}

/// A text in the folded forms (one form for all spellings of the same characters) that detectors read. A text with
/// characters without width has two forms: the first omits these characters, so that their neighbours become adjacent;
/// the second has a space in place of each of them.
struct Text<'a> {
    text: &'a str,
    folded: Vec<Folded>,
}

impl<'a> Text<'a> {
    fn new(text: &'a str) -> Self {
        let mut read = Text { text, folded: Vec::new() };
        read.folded = read.readings().map(|invisible| Folded::new(text, invisible)).collect();
        read
    }

    fn readings(&self) -> impl Iterator<Item = Invisible> + use<> {
        let parts = has_invisible(self.text).then_some(Invisible::Parts);
        [Invisible::Joins].into_iter().chain(parts)
    }
}

/// A detector of several kinds of private text that no pattern can find, such as names and places; usually a model.
pub trait Recognizer: Send + Sync + fmt::Debug {
    /// Returns the names of the kinds of private text that the recogniser detects. A name has 1 to 64 ASCII letters,
    /// digits, `_` or `-`.
    fn kinds(&self) -> Vec<String>;

    /// Returns the findings in `text` as pairs `(kind, range)`: the index of the kind in the list
    /// [`kinds`](Self::kinds), and the range of bytes.
    ///
    /// # Errors
    /// Returns a message with the fault and how to fix it.
    fn find(&self, text: &str) -> Result<Vec<(usize, Range<usize>)>, String>;
}

/// A list of detectors and recognisers.
///
/// Parses from names of [`BUILT_IN`] with commas between, such as `email,card`; `all` selects all built-in detectors.
#[derive(Clone, Debug, Default)]
pub struct Detectors {
    detectors: Vec<Detector>,
    recognizers: Vec<(Vec<Kind>, Arc<dyn Recognizer>)>,
}

impl Detectors {
    /// Returns a list without detectors, which finds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a detector.
    pub fn with(mut self, detector: Detector) -> Self {
        self.detectors.push(detector);
        self
    }

    /// Adds a recogniser, such as a model, that finds several kinds.
    ///
    /// # Errors
    /// Returns [`Error::Detector`] for kinds without a valid name.
    pub fn with_recognizer(mut self, recognizer: Arc<dyn Recognizer>) -> Result<Self, Error> {
        let kinds = recognizer.kinds().iter().map(|name| kind_name(name)).collect::<Result<Vec<_>, _>>()?;
        self.recognizers.push((kinds, recognizer));
        Ok(self)
    }

    /// Returns true if there is neither a detector nor a recogniser.
    pub fn is_empty(&self) -> bool {
        self.detectors.is_empty() && self.recognizers.is_empty()
    }

    /// Returns the kinds of private text that are searched for, without duplicates: first the kinds of the detectors,
    /// then those of the recognisers, each in the order in which they were added.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = Vec::new();
        let of_models = self.recognizers.iter().flat_map(|(kinds, _)| kinds);
        for kind in self.detectors.iter().map(|detector| &detector.kind).chain(of_models) {
            if !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
        kinds
    }

    /// Returns a sentence that names the kinds of private text for which there is no detector. Every report of findings
    /// should contain this sentence. It mentions names, places and organizations unless a [`Recognizer`] searches for
    /// them. A list of words ([`Detector::words`]) of the kind `name` does not count, because it finds only the listed
    /// names.
    ///
    /// ```
    /// let detectors = "all".parse::<noren_text::Detectors>()?;
    /// let said = "names, places, organizations and any other kind of private text were not looked for";
    /// assert!(detectors.not_looked_for().starts_with(said));
    /// # Ok::<(), noren_text::Error>(())
    /// ```
    pub fn not_looked_for(&self) -> String {
        let kinds = self.kinds();
        let built_in = BUILT_IN.into_iter().filter(|name| !kinds.iter().any(|kind| kind.as_str() == *name));
        // A list of some names does not detect names in general.
        let by_model =
            |name: &str| self.recognizers.iter().flat_map(|(kinds, _)| kinds).any(|kind| kind.as_str() == name);
        let others = OTHERS.into_iter().filter(|(name, _)| !by_model(name)).map(|(_, shown)| shown);
        let missing: Vec<&str> = built_in.chain(others).collect();
        if missing.is_empty() {
            return "other kinds of private text were not looked for, and the text may hold them".to_owned();
        }
        format!(
            "{} and any other kind of private text were not looked for, and the text may hold them",
            missing.join(", ")
        )
    }

    /// Returns the findings of all detectors, sorted by their start. At the same start, longer findings come first,
    /// then those of earlier detectors.
    ///
    /// Findings of different kinds may overlap, and all of them are kept: text that any detector found is private.
    /// [`outermost`] returns the findings that a report shows.
    ///
    /// # Errors
    /// Returns [`Error::Span`] for a span of the user outside the text, and [`Error::Detector`] for a model that fails.
    pub fn find(&self, text: &str) -> Result<Vec<Finding>, Error> {
        let read = Text::new(text);
        let mut found = Vec::new();
        for detector in &self.detectors {
            found.extend(detector.find(&read)?);
        }
        for (kinds, recognizer) in &self.recognizers {
            let spans = recognizer.find(text).map_err(|problem| Error::detector("model", problem))?;
            let whole = |range: &Range<usize>| text.get(range.clone()).is_some_and(|piece| !piece.is_empty());
            for (kind, range) in spans {
                match kinds.get(kind) {
                    Some(kind) if whole(&range) => found.push(Finding { kind: kind.clone(), range }),
                    _ => {
                        return Err(Error::detector(
                            "model",
                            format!(
                                "the model returned span {range:?} of kind {kind}: a span must begin and end between characters, and kinds count from 0"
                            ),
                        ));
                    }
                }
            }
        }
        found.sort_by_key(|f: &Finding| (f.range.start, std::cmp::Reverse(f.range.end)));
        // Both readings of a text may have the same finding.
        let mut unique: Vec<Finding> = Vec::with_capacity(found.len());
        for finding in found {
            let same_range = unique.iter().rev().take_while(|other| other.range == finding.range);
            if !same_range.into_iter().any(|other| other.kind == finding.kind) {
                unique.push(finding);
            }
        }
        Ok(unique)
    }
}

impl From<Detector> for Detectors {
    fn from(detector: Detector) -> Self {
        Detectors::new().with(detector)
    }
}

impl FromStr for Detectors {
    type Err = Error;

    fn from_str(names: &str) -> Result<Self, Error> {
        let mut detectors = Detectors::new();
        for name in names.split(',').map(str::trim) {
            match name {
                "all" => detectors
                    .detectors
                    .extend(BUILT_IN.iter().map(|name| Detector::built_in(name)).collect::<Result<Vec<_>, _>>()?),
                name => detectors.detectors.push(Detector::built_in(name)?),
            }
        }
        Ok(detectors)
    }
}

/// Returns the findings that are not inside another finding; `findings` must be in the order of [`Detectors::find`].
/// For example, if a telephone number was found inside a card number, only the card number is returned.
pub fn outermost(findings: &[Finding]) -> Vec<&Finding> {
    let mut kept: Vec<&Finding> = Vec::new();
    for finding in findings {
        // Findings are sorted by start: one that contains this one came before, and the last kept one ends last.
        if kept.last().is_none_or(|last| last.range.end < finding.range.end) {
            kept.push(finding);
        }
    }
    kept
}

/// Checks the name of a user's detector. The name becomes a label in masks and must differ from the names of built-in
/// detectors.
fn own_name(name: &str) -> Result<Kind, Error> {
    let kind = kind_name(name)?;
    if BUILT_IN.contains(&name) || name == "all" {
        return Err(Error::detector(name, "this name is taken by noren: choose another name for your own detector"));
    }
    Ok(kind)
}

fn kind_name(name: &str) -> Result<Kind, Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        let short: String = name.chars().take(64).collect();
        return Err(Error::detector(short, "a name is 1 to 64 ASCII letters, digits, `_` or `-`"));
    }
    if name == PRIVATE {
        return Err(Error::detector(name, "this name is taken by noren: choose another name for your own detector"));
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

/// Returns the name of the built-in detector for a name that other tools use, such as `card` for `creditcard`; `None`
/// for other names.
fn synonym(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().replace(['-', '_', ' '], "").as_str() {
        "mail" | "emailaddress" => "email",
        "telephone" | "tel" | "phonenumber" | "mobile" => "phone",
        "creditcard" | "paymentcard" | "pan" | "cc" => "card",
        "bank" | "bankaccount" | "account" => "iban",
        "ipaddress" | "ipv4" | "ipv6" => "ip",
        "socialsecurity" | "socialsecuritynumber" | "usssn" => "ssn",
        "macaddress" | "hardwareaddress" => "mac",
        "uri" | "link" | "credentials" | "urlcredentials" => "url",
        "apikey" | "token" | "secret" | "secretkey" | "jwt" => "key",
        "privatekey" | "pem" | "sshkey" => "private_key",
        "passphrase" | "pin" | "pwd" => "password",
        "dob" | "birthday" | "dateofbirth" | "birthdate" => "birth_date",
        "street" | "streetaddress" | "postaladdress" => "address",
        "pii" | "everything" | "any" => "all",
        _ => return None,
    })
}
