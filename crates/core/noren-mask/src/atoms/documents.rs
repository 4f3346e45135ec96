//! `documents`: query and key in the same document.

use super::prelude::*;
use crate::facts::resolve::sum;
use crate::sets::set::Span;

/// The parameters of the atom `documents`: documents that are packed one after another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Documents {
    /// Lengths of the documents in tokens; the same list applies to every batch row. `None` means that the facts give
    /// the documents.
    pub lengths: Option<Vec<usize>>,
}

/// Returns the mask in which query and key are in the same document; the facts give the documents. Text: `documents`.
pub fn documents() -> Mask {
    Mask::of(Documents { lengths: None })
}

/// Returns the mask of [`documents`] for documents with the lengths `lengths` in tokens, packed one after another. The
/// lengths apply to every batch row. Text: `documents([33, 31])`.
pub fn documents_of(lengths: impl Into<Vec<usize>>) -> Mask {
    Mask::of(Documents { lengths: Some(lengths.into()) })
}

impl Atom for Documents {
    fn name(&self) -> &'static str {
        "documents"
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lengths {
            None => f.write_str("documents"),
            Some(list) => write!(f, "documents({})", List(list)),
        }
    }

    fn check(&self) -> Result<(), String> {
        let mut total = 0usize;
        for length in self.lengths.iter().flatten() {
            within("a length", *length)?;
            total = total.saturating_add(*length);
        }
        within("the total length", total)
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        match self.lengths {
            // with padding on the left, documents begin after the padding
            Some(_) => vec![Input::Batch],
            None => vec![Input::Documents],
        }
    }

    fn fits(&self, binding: &Binding<'_>) -> Result<(), Error> {
        if self.lengths.is_none() && binding.facts().documents.is_none() {
            return binding.missing(
                "documents",
                "give the lengths of the documents in the facts, or in the mask as documents([...])",
            );
        }
        binding.documents(self.lengths.as_deref())
    }

    fn allows(&self, pair: &Pair<'_>) -> bool {
        let documents = pair.facts.documents(self.lengths.as_deref());
        documents.is_some_and(|documents| {
            documents.ranges().any(|document| document.contains(&pair.q) && document.contains(&pair.k))
        })
    }

    fn sentence<'a>(&'a self, row: RowFacts<'a>) -> Option<Sentence<'a>> {
        let documents = row.documents(self.lengths.as_deref());
        let place = move |token: Token| words(documents.and_then(|documents| documents.at(token.position)));
        Some(sentence!["query ", query_position(), " is ", query(place), ", key ", key_position(), " ", key(place)])
    }

    fn resolve(&self, site: &Site<'_>) -> Option<Resolution> {
        let documents = site.row.documents(self.lengths.as_deref());
        Some(Resolution::segments(documents.map_or(vec![0], |documents| documents.borders())))
    }

    fn rank(&self) -> Rank {
        Family::Documents.into()
    }

    fn every_length(&self, case: Case) -> EveryLength {
        let Some(lengths) = self.lengths.as_ref().filter(|_| !case.padded) else { return EveryLength::Unknown };
        // without facts the first document begins at position 0
        let spans = lengths.iter().scan(0, |start, n| {
            let span = Span { start: *start, end: Some(*start + n) };
            *start += n;
            Some(span)
        });
        EveryLength::Mask(super::spans(spans))
    }

    fn sizes(&self, case: Case) -> Sizes {
        let Some(lengths) = &self.lengths else { return Sizes::default() };
        let sizes = Sizes::default().from(sum(lengths));
        // Positions after the last listed document are in no document, unless they are padding.
        if case.padded { sizes } else { sizes.to(sum(lengths)) }
    }
}

fn words(document: Option<(usize, Range<i64>)>) -> String {
    match document {
        Some((i, range)) => format!("in document {i} (positions {}..{})", range.start, range.end),
        None => "in no document".into(),
    }
}

impl Builtin for Documents {
    const WORD: Word = Word {
        entry: Entry::new("documents", "documents([33, 31])", &[may("lengths", "lengths of the documents")]).lists(),
        title: "`documents`, `documents([n, ...])`",
        doc: "Query and key are in the same document. Documents are packed one after another. If no lengths are given \
              here, the facts give the documents of each batch row.",
        pictures: &[Picture::square("documents([3, 1, 4])", 8), Picture::square("causal & documents([3, 1, 4])", 8)],
    };

    fn read(arguments: &Arguments) -> Parsed<Self> {
        Ok(Documents { lengths: arguments.get(0).map(|given| given.wholes()).transpose()? })
    }
}
