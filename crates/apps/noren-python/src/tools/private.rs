//! Private text: detectors, the tokens that contain private text, and policies.

use crate::error::Error;
use crate::masks::classes::{PyMask, mask_of};
use crate::masks::facts::{PyFacts, facts_of};
use crate::masks::values::spans;
use noren_text::{Detector, Detectors, Encoding, Error as TextError, Finding, Kind, Policy, PrivateTokens, Recognizer};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

fn raise(error: TextError) -> PyErr {
    Error::new_err(error.to_string())
}

/// A private text: (kind, index of the first character, index after the last character).
type Found = (String, usize, usize);

/// A text, with the conversion of character positions to byte positions.
struct Chars<'a> {
    text: &'a str,
    /// The index of the first byte of each character, then the length of the text in bytes. Empty if every character is
    /// one byte.
    bytes: Vec<usize>,
}

impl<'a> Chars<'a> {
    fn new(text: &'a str) -> Self {
        let bytes = match text.is_ascii() {
            true => Vec::new(),
            false => text.char_indices().map(|(byte, _)| byte).chain([text.len()]).collect(),
        };
        Chars { text, bytes }
    }

    fn len(&self) -> usize {
        if self.bytes.is_empty() { self.text.len() } else { self.bytes.len() - 1 }
    }

    /// Returns the range of bytes of the characters `start..end`. Returns an error if the characters are not inside the
    /// text; `what` names the range in the message.
    fn range(&self, what: &str, start: usize, end: usize) -> PyResult<Range<usize>> {
        if start > end || end > self.len() {
            return Err(Error::new_err(format!(
                "{what} is {start}..{end}, but the text has {} characters: give the offsets of this text, counted in characters from 0",
                self.len()
            )));
        }
        let byte = |at: usize| self.bytes.get(at).copied().unwrap_or(at);
        Ok(byte(start)..byte(end))
    }

    fn char(&self, byte: usize) -> usize {
        if self.bytes.is_empty() { byte } else { self.bytes.partition_point(|b| *b < byte) }
    }
}

/// A recogniser with findings that a Python function has already computed.
#[derive(Debug)]
struct Given {
    kinds: Vec<String>,
    found: Vec<(usize, Range<usize>)>,
}

impl Recognizer for Given {
    fn kinds(&self) -> Vec<String> {
        self.kinds.clone()
    }

    fn find(&self, _: &str) -> Result<Vec<(usize, Range<usize>)>, String> {
        Ok(self.found.clone())
    }
}

/// Detectors of private text, and the names of the kinds that recognisers written in Python find.
#[pyclass(name = "_Detectors", module = "noren", frozen)]
pub(crate) struct PyDetectors {
    detectors: Detectors,
    recognised: Vec<String>,
}

impl PyDetectors {
    fn with(&self, found: Vec<(usize, Range<usize>)>) -> PyResult<Detectors> {
        match self.recognised.is_empty() {
            true => Ok(self.detectors.clone()),
            false => {
                let given = Given { kinds: self.recognised.clone(), found };
                self.detectors.clone().with_recognizer(Arc::new(given)).map_err(raise)
            }
        }
    }
}

#[pymethods]
impl PyDetectors {
    #[new]
    fn new(
        kinds: &str,
        words: Vec<(String, Vec<String>)>,
        patterns: Vec<(String, String)>,
        recognised: Vec<String>,
    ) -> PyResult<Self> {
        let mut detectors = if kinds.is_empty() { Detectors::new() } else { kinds.parse().map_err(raise)? };
        for (name, list) in words {
            detectors = detectors.with(Detector::words(&name, list).map_err(raise)?);
        }
        for (name, pattern) in patterns {
            detectors = detectors.with(Detector::pattern(&name, &pattern).map_err(raise)?);
        }
        let own = PyDetectors { detectors, recognised };
        own.with(Vec::new())?;
        Ok(own)
    }

    /// Returns the kinds of private text that the detectors search for, followed by those of `spans`: the kinds of the
    /// ranges that the user marks as private.
    fn kinds(&self, spans: Vec<String>) -> PyResult<Vec<String>> {
        let mut kinds: Vec<String> = self.with(Vec::new())?.kinds().iter().map(ToString::to_string).collect();
        let given: Vec<String> = spans.into_iter().filter(|kind| !kinds.contains(kind)).collect();
        kinds.extend(given);
        Ok(kinds)
    }

    /// Returns a sentence with the kinds of private text for which these detectors do not search.
    fn not_looked_for(&self) -> PyResult<String> {
        Ok(self.with(Vec::new())?.not_looked_for())
    }

    /// Returns the private texts, sorted by their start. `given` lists (kind, ranges of characters that the user marks
    /// as private), `recognised` the findings of recognisers as (index of the kind, first character, character after
    /// the last). All positions count characters.
    fn find(
        &self,
        py: Python<'_>,
        text: &str,
        given: Vec<(String, Vec<(usize, usize)>)>,
        recognised: Vec<(usize, usize, usize)>,
    ) -> PyResult<Vec<Found>> {
        let chars = Chars::new(text);
        let bytes = |(kind, start, end): (usize, usize, usize)| {
            let what =
                format!("a finding of the recogniser of `{}`", self.recognised.get(kind).map_or("", |name| name));
            Ok((kind, chars.range(&what, start, end)?))
        };
        let found = recognised.into_iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        let mut detectors = self.with(found)?;
        for (name, spans) in given {
            let spans = spans.into_iter().map(|(start, end)| start..end);
            detectors = detectors.with(Detector::spans(&name, spans).map_err(raise)?);
        }
        let found = py.detach(|| detectors.find(text)).map_err(raise)?;
        let shown = |f: &Finding| (f.kind.to_string(), chars.char(f.range.start), chars.char(f.range.end));
        Ok(found.iter().map(shown).collect())
    }
}

/// The tokens of one text that contain private text, by kind.
#[pyclass(name = "_PrivateTokens", module = "noren", frozen, eq)]
#[derive(PartialEq, Eq)]
pub(crate) struct PyPrivateTokens(PrivateTokens);

#[pymethods]
impl PyPrivateTokens {
    /// Returns the tokens of `text` that contain the private texts `found`. For each token, `ranges` has its characters
    /// (first, after the last), and `special` is true for a special token, which holds no text.
    #[staticmethod]
    fn locate(
        py: Python<'_>,
        found: Vec<Found>,
        text: &str,
        ranges: Vec<(usize, usize)>,
        special: Vec<bool>,
    ) -> PyResult<Self> {
        let chars = Chars::new(text);
        let finding = |(kind, start, end): Found| {
            let range = chars.range(&format!("a finding of kind `{kind}`"), start, end)?;
            Ok(Finding { kind: Kind::new(&kind).map_err(raise)?, range })
        };
        let found = found.into_iter().map(finding).collect::<PyResult<Vec<_>>>()?;
        if ranges.len() != special.len() {
            return Err(Error::new_err(format!(
                "there are offsets of {} tokens, but {} marks of special tokens: give one of each for each token",
                ranges.len(),
                special.len()
            )));
        }
        let ranges = ranges.into_iter().zip(&special).enumerate().map(|(at, ((start, end), special))| match special {
            true => Ok(0..0),
            false => chars.range(&format!("the range of characters of token {at}"), start, end),
        });
        let ranges = ranges.collect::<PyResult<Vec<_>>>()?;
        let encoding = Encoding { ids: vec![0; ranges.len()], ranges, special };
        Ok(PyPrivateTokens(py.detach(|| PrivateTokens::locate(&found, text, &encoding))))
    }

    /// Returns `len` tokens, some of them private. `kinds` lists (kind, indices of the private tokens of this kind).
    #[staticmethod]
    fn at(len: usize, kinds: Vec<(String, Vec<usize>)>) -> PyResult<Self> {
        let kind = |(name, at): (String, Vec<usize>)| Ok((Kind::new(&name).map_err(raise)?, at));
        let kinds = kinds.into_iter().map(kind).collect::<PyResult<Vec<_>>>()?;
        PrivateTokens::at(len, kinds).map(PyPrivateTokens).map_err(raise)
    }

    /// Returns the private tokens among the `len` tokens from token `first` on; tokens after the end are public.
    fn window(&self, first: usize, len: usize) -> Self {
        PyPrivateTokens(self.0.window(first, len))
    }

    /// Returns each kind with the indices of its tokens, in ascending order.
    fn kinds(&self) -> Vec<(String, Vec<usize>)> {
        self.0.kinds().map(|(kind, at)| (kind.to_string(), at)).collect()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// A rule that defines which tokens may read private tokens and which outputs may be released.
#[pyclass(name = "_Policy", module = "noren", frozen)]
pub(crate) struct PyPolicy(Policy);

#[pymethods]
impl PyPolicy {
    #[staticmethod]
    fn hide() -> Self {
        PyPolicy(Policy::Hide)
    }

    #[staticmethod]
    fn clearance(levels: Vec<(String, i64)>, reader: i64) -> PyResult<Self> {
        let level = |(name, level): (String, i64)| match level {
            1.. => Ok((Kind::new(&name).map_err(raise)?, level)),
            _ => Err(Error::new_err(format!(
                "the level of the kind `{name}` is {level}: give 1 or more, because public tokens have level 0"
            ))),
        };
        let levels = levels.into_iter().map(level).collect::<PyResult<BTreeMap<_, _>>>()?;
        Ok(PyPolicy(Policy::Clearance { levels, reader }))
    }

    #[staticmethod]
    fn heads(heads: &Bound<'_, PyAny>) -> PyResult<Self> {
        let spans = spans(heads, "heads")?;
        if spans.is_empty() {
            return Err(Error::new_err("heads is empty: give the query heads that do not read private tokens"));
        }
        Ok(PyPolicy(Policy::Heads(spans)))
    }

    /// Returns the mask that allows the cells of `base` except those that the policy denies.
    fn mask(&self, base: &Bound<'_, PyAny>) -> PyResult<PyMask> {
        Ok(PyMask(self.0.mask(mask_of(base)?)))
    }

    /// Returns `facts` (data of masks) with the labels and clearance levels of private tokens added; `rows` has the tokens
    /// of each batch row.
    #[pyo3(signature = (rows, facts=None))]
    fn facts(&self, rows: Vec<PyRef<'_, PyPrivateTokens>>, facts: Option<&Bound<'_, PyAny>>) -> PyResult<PyFacts> {
        let rows: Vec<&PrivateTokens> = rows.iter().map(|row| &row.0).collect();
        Ok(PyFacts(self.0.facts(&rows, facts_of(facts)?)))
    }

    /// Returns two lists with one boolean for each token. The first is true if the reader may receive the token's
    /// output, the second if the token's content is hidden from the reader.
    fn rulings(&self, tokens: &PyPrivateTokens) -> (Vec<bool>, Vec<bool>) {
        let all = |rule: fn(&Policy, &PrivateTokens, usize) -> bool| {
            (0..tokens.0.len()).map(|at| rule(&self.0, &tokens.0, at)).collect()
        };
        (all(Policy::released), all(Policy::secret))
    }
}
