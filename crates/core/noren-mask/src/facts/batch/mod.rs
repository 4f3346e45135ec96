//! Reads facts from the named arrays of a batch: the output of a tokenizer or of a data collator, or numbers that a user
//! pastes.
//!
//! [`meaning`] gives the meaning of each name. An array may have several readings: a document number 0 may be padding, and
//! a position 0 at the end of a row may be padding or a document of one token. [`read`] combines the readings of all
//! arrays, and returns one [`Reading`] for each combination without a contradiction. [`Readings::one`] refuses several.

mod given;
mod owners;
mod part;

pub use given::{Entry, Meaning, Options, meaning};

use crate::Error;
use crate::facts::{Facts, RealTokens, Table, documents_of, real_run, real_sets, real_tokens};
use crate::sets::interval::IntervalSet;
use crate::sets::scalar::Rows;
use given::{Batch, refuse};
use owners::{Alternative, Owners, lengths_of};
use part::Part;

/// The name of an array, with what it gives.
type Named<'a, T> = (&'a str, T);

/// One reading of all arrays of a batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// The facts: non-padding tokens and documents, as far as the arrays give them.
    pub facts: Facts,
    /// The number of batch rows, and the number of tokens of each.
    pub size: (usize, usize),
    /// The name of each array that was read, and a sentence without a full stop that explains how.
    pub says: Vec<(String, String)>,
}

impl Reading {
    /// Returns the sentences that explain how each array was read.
    pub fn explanation(&self) -> String {
        let sentences: Vec<_> = self.says.iter().map(|(name, says)| format!("{name}: {says}.")).collect();
        sentences.join(" ")
    }

    /// Returns whether the key `key` of batch row `row` is a token, and not padding.
    pub fn is_token(&self, row: usize, key: usize) -> bool {
        match &self.facts.real {
            None => true,
            Some(RealTokens::Keys(rows)) => rows.get(row).is_some_and(|keys| keys.contains(key as u32)),
            Some(RealTokens::Lengths { lengths, side }) => {
                let run = lengths.get(row).map(|length| real_run(*length, *side, self.size.1 as u32));
                run.is_some_and(|run| run.contains(&(key as u32)))
            }
        }
    }

    /// Returns the documents of each row if a row has several.
    fn several(&self) -> Option<&Rows<Vec<usize>>> {
        let documents = self.facts.documents.as_ref()?;
        (0..self.size.0).any(|row| documents.get(row).is_some_and(|list| list.len() > 1)).then_some(documents)
    }
}

/// The readings of a batch, at least one, and the reason for each meaning of an array without a name that was excluded.
#[derive(Clone, PartialEq, Debug)]
pub struct Readings {
    /// The readings. All differ.
    pub found: Vec<Reading>,
    /// The excluded meanings.
    pub refused: Vec<String>,
}

impl Readings {
    /// Returns the reading if there is only one.
    ///
    /// # Errors
    /// Returns an error with all readings if there are several.
    pub fn one(mut self) -> Result<Reading, Error> {
        if self.found.len() == 1 {
            return Ok(self.found.remove(0));
        }
        let listed = self.found.iter().zip(1..).map(|(reading, i)| format!("({i}) {}", reading.explanation()));
        refuse(format!(
            "the arrays have {} readings: {} Give each array its name, and attention_mask too (1 for tokens and 0 for \
             padding, as integers or booleans); for document numbers, segment_padding (0, or none)",
            self.found.len(),
            listed.collect::<Vec<_>>().join(" ")
        ))
    }
}

/// Returns the readings of the arrays of a batch. A single array without a name is read as each of its possible meanings.
/// Arrays with unknown names are ignored.
///
/// ```
/// use noren_mask::batch::{Entry, Options, read};
/// use noren_mask::Facts;
/// let ids = |values: &[f64]| {
///     let entry = Entry { name: Some("segment_ids".into()), shape: vec![values.len()], values: values.to_vec(), float: false };
///     read(&[entry], &Options::default())
/// };
/// assert_eq!(ids(&[1.0, 1.0, 2.0, 0.0])?.one()?.facts, Facts::new().lengths([3]).documents(vec![vec![2, 1]]));
/// assert_eq!(ids(&[0.0, 0.0, 1.0, 1.0])?.found.len(), 2); // 0 is padding, or the first document
/// # Ok::<(), noren_mask::Error>(())
/// ```
///
/// # Errors
/// Returns an error if an array is malformed, if arrays contradict each other, or if no array gives facts.
pub fn read(entries: &[Entry], options: &Options) -> Result<Readings, Error> {
    match entries {
        [entry] if entry.name.is_none() => nameless(entry, options),
        _ => Ok(Readings { found: named(entries, options)?, refused: Vec::new() }),
    }
}

/// Returns the contradiction between the arrays of a batch; `None` if they have a reading together, or if one of them has none alone.
pub fn contradiction(entries: &[Entry], options: &Options) -> Option<Error> {
    let alone = entries.iter().all(|entry| named(std::slice::from_ref(entry), options).is_ok());
    named(entries, options).err().filter(|_| alone)
}

fn named(entries: &[Entry], options: &Options) -> Result<Vec<Reading>, Error> {
    let mut parts = Vec::new();
    for entry in entries {
        if let Some((name, meaning)) = entry.name.as_deref().and_then(|name| Some((name, meaning(name)?))) {
            parts.push(Part::read(name, meaning, entry)?);
        }
    }
    let size = size_of(&parts)?;
    parts.retain(|part| part.meaning != Meaning::Tokens || options.pad_id.is_some());
    parts.sort_by_key(|part| part.meaning);
    let Some((source, size)) = size.filter(|_| !parts.is_empty()) else {
        return refuse(
            "the arrays give no facts for a mask: give attention_mask, position_ids, segment_ids, cu_seqlens, or input_ids \
             with the id of padding (pad_id)"
                .into(),
        );
    };
    let padded = options.known.real.is_some() || parts.iter().any(|part| part.meaning <= Meaning::Lengths);
    let batch = Batch { size, source, padded };
    let mut all: Vec<Vec<(&str, Alternative)>> = vec![Vec::new()];
    if let Some(real) = &options.known.real {
        let real = real_sets("facts", real, size.0, size.1 as u32)?;
        let lists = options.known.documents.as_ref();
        let lists = lists.map(|lists| (0..size.0).map(|row| lists.get(row).cloned().unwrap_or_default()).collect());
        let owners = lists.map_or(Owners::None, Owners::Lengths);
        all[0].push(("facts", Alternative { owners, ..Alternative::padding(real, "the facts of the batch") }));
    }
    // zeros of positions can be padding only if no number of a document contradicts this
    let numbered = parts.iter().any(|part| (Meaning::Documents..Meaning::Positions).contains(&part.meaning));
    for part in &parts {
        let padded = padded || part.meaning == Meaning::Positions && numbered;
        let readings = part.alternatives(options, Batch { padded, ..batch })?;
        let extended = all.iter().flat_map(|chosen| {
            readings.iter().map(|reading| [&chosen[..], &[(part.name, reading.clone())][..]].concat())
        });
        all = extended.collect();
    }
    let (mut found, mut problem): (Vec<Reading>, _) = (Vec::new(), None);
    for chosen in all {
        match batch.combine(&chosen) {
            Ok(reading) if found.iter().all(|other| other.facts != reading.facts) => found.push(reading),
            Ok(_) => {}
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    problem.filter(|_| found.is_empty()).map_or(Ok(found), Err)
}

/// Returns the name of the array that gives the size of the batch, with the size. Arrays of other sizes are an error.
fn size_of<'a>(parts: &[Part<'a>]) -> Result<Option<Named<'a, (usize, usize)>>, Error> {
    let ends: Vec<&Part<'_>> = parts.iter().filter(|part| part.meaning == Meaning::Ends).collect();
    if let Some(pair) = ends.windows(2).find(|pair| pair[0].rows != pair[1].rows) {
        return refuse(format!(
            "{} and {} define different documents: queries and keys are different sequences, which facts cannot express; give \
             only one of the two entries",
            pair[0].name, pair[1].name
        ));
    }
    let table = |part: &&Part<'_>| !matches!(part.meaning, Meaning::Ends | Meaning::Lengths | Meaning::Documents);
    let Some(first) = parts.iter().find(table).or(parts.first()) else { return Ok(None) };
    let (name, size) = (first.name, first.size());
    for part in parts.iter().filter(|part| part.meaning != Meaning::Ends) {
        let given = part.size();
        if given.0 != size.0 || table(&part) && given.1 != size.1 {
            let [given, size] = [given, size].map(|(rows, len)| [rows, len]);
            return refuse(format!(
                "{} has shape {given:?}, but {name} has shape {size:?}: give entries of one batch",
                part.name
            ));
        }
    }
    Ok(Some((name, size)))
}

impl Batch<'_> {
    /// Returns the reading of the batch in which each array has the chosen reading.
    fn combine(&self, chosen: &[(&str, Alternative)]) -> Result<Reading, Error> {
        let (rows, len) = self.size;
        let mut real: Option<(&str, &[IntervalSet])> = None;
        for (name, given) in chosen.iter().filter_map(|(name, a)| Some((*name, a.real.as_deref()?))) {
            let (other, known) = *real.get_or_insert((name, given));
            let differs = |row: &usize| known[*row] != given[*row];
            if let Some(row) = (0..rows).find(differs) {
                let differing = given[row].minus(&known[row]).union(&known[row].minus(&given[row]));
                let key = differing.covering_range().map_or(0, |keys| keys.start);
                let [ours, theirs] =
                    [given, known].map(|sets| if sets[row].contains(key) { "a token" } else { "padding" });
                return refuse(format!(
                    "{name} contradicts {other}: key {key} of batch row {row} is {ours} by {name}, but {theirs} by {other}: give \
                     only one of the two entries"
                ));
            }
        }
        let all = vec![IntervalSet::all(len as u32); rows];
        let tokens = real.map_or(&all[..], |(_, real)| real);
        let batch = Batch { padded: real.is_some(), ..*self };
        let (mut says, mut known) = (Vec::new(), None::<Named<'_, Vec<_>>>);
        for (name, reading) in chosen {
            let (owners, sentence) = reading.owners(name, batch, tokens)?;
            says.push(((*name).to_string(), sentence));
            let Some(owners) = owners else { continue };
            let (other, documents) = known.get_or_insert_with(|| (*name, owners.clone()));
            let lengths = |rows: &[Vec<Option<i64>>]| rows.iter().map(|row| lengths_of(row)).collect::<Vec<_>>();
            let (ours, theirs) = (lengths(&owners), lengths(documents));
            if let Some(row) = (0..rows).find(|row| ours[*row] != theirs[*row]) {
                return refuse(format!(
                    "{name} contradicts {other}: the documents of batch row {row} have lengths {:?} by {name}, but {:?} by {other}: \
                     give only one of the two entries",
                    ours[row], theirs[row]
                ));
            }
        }
        let mut facts = Facts::new();
        if let Some((_, real)) = real {
            facts.real = Some(real_tokens(real.to_vec(), len as u32));
            facts.table = Table(Some(("attention_mask", len)));
        }
        facts.documents = known.map(|(_, owners)| documents_of(owners, facts.real.as_ref(), len));
        Ok(Reading { facts, size: self.size, says })
    }
}

/// Reads an array without a name as each of its possible meanings.
fn nameless(entry: &Entry, options: &Options) -> Result<Readings, Error> {
    let values = &entry.values;
    let flat = entry.shape.len() == 1;
    let ends = flat && values.len() > 1 && values[0] == 0.0 && values.is_sorted_by(|a, b| a < b);
    let steps = values.windows(2).all(|pair| pair[1] - pair[0] == 1.0);
    let lists =
        values.len() > 1 && values.iter().all(|n| *n >= 1.0) && values.windows(2).all(|pair| pair[0] != pair[1]);
    // in an array without a name, numbers above 1 are the numbers of documents
    let numbers = values.iter().any(|value| *value > 1.0);
    let names = [
        ("attention_mask", !numbers && (!ends || steps)),
        ("position_ids", !ends || steps),
        ("segment_ids", !ends),
        ("cu_seqlens", ends),
        ("documents", lists),
        ("lengths", lists && flat),
    ];
    let (mut found, mut refused): (Vec<Reading>, Vec<String>) = (Vec::new(), Vec::new());
    for (name, _) in names.into_iter().filter(|(_, possible)| *possible) {
        match named(&[Entry { name: Some(name.into()), ..entry.clone() }], options) {
            Ok(readings) => {
                // positions without documents are a reading only beside ends of documents
                for reading in
                    readings.into_iter().filter(|r| ends || name != "position_ids" || r.facts.has_documents())
                {
                    let same = |other: &Reading| {
                        other.facts.real == reading.facts.real && other.several() == reading.several()
                    };
                    if !found.iter().any(same) {
                        found.push(reading);
                    }
                }
            }
            Err(Error::Fact { problem, .. }) => refused.push(format!("as {name}: {problem}")),
            Err(error) => return Err(error),
        }
    }
    match found.is_empty() {
        true => refuse(format!("the array without a name gives no facts: {}", refused.join("; "))),
        false => Ok(Readings { found, refused }),
    }
}
