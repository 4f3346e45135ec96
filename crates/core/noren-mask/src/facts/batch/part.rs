//! One array of a batch, and its readings.

use super::given::{Batch, Entry, Meaning, Options, refuse};
use super::owners::{Alternative, Owners, counted};
use crate::Error;
use crate::facts::array::{ADDITIVE, additive_keep};
use crate::facts::shape::Shape;
use crate::facts::{Facts, real_sets};
use crate::sets::interval::IntervalSet;
use std::ops::Range;

/// An array with a known name, as whole numbers.
pub(super) struct Part<'a> {
    pub(super) name: &'a str,
    pub(super) meaning: Meaning,
    pub(super) rows: Vec<Vec<i64>>,
    /// The numbers may be added to scores: 0 for a token, and -1 in place of any other number.
    added: bool,
}

impl<'a> Part<'a> {
    pub(super) fn read(name: &'a str, meaning: Meaning, entry: &Entry) -> Result<Self, Error> {
        let shape = &entry.shape;
        let flags = matches!(meaning, Meaning::Keep | Meaning::Drop | Meaning::Padding);
        let len = match shape[..] {
            _ if matches!(meaning, Meaning::Ends | Meaning::Lengths) => entry.values.len(),
            [len] | [_, len] => len,
            [_, 1, 1, len] if flags => len,
            _ => {
                let why = match meaning {
                    Meaning::Positions => {
                        "positions in several dimensions (of images) do not define documents: leave out this entry"
                    }
                    Meaning::Keep => "a mask of queries and keys is not a fact: give it as keep=, drop= or additive=",
                    _ => "give [batch, length]",
                };
                return refuse(format!("{name} has shape {shape:?}, not [batch, length]: {why}"));
            }
        };
        if entry.values.is_empty() || len > Shape::MAX_LEN {
            return refuse(format!(
                "{name} has shape {shape:?}: give at least one row with one token, and at most {} tokens",
                Shape::MAX_LEN
            ));
        }
        let added = meaning == Meaning::Keep && entry.float && entry.values.iter().all(|value| *value <= 0.0);
        let whole = |value: &f64| match (added, additive_keep(*value)) {
            (true, Some(keep)) => Ok(i64::from(keep) - 1),
            (true, None) => refuse(format!("{name} holds {value}, which is added to scores: {ADDITIVE}")),
            (false, _) if value.fract() == 0.0 && value.abs() < 9e15 => Ok(*value as i64),
            (false, _) => refuse(format!("{name} holds {value}: give whole numbers of less than 9e15")),
        };
        let rows = entry.values.chunks(len).map(|row| row.iter().map(whole).collect()).collect::<Result<_, _>>()?;
        let part = Part { name, meaning, rows, added };
        let counts = matches!(meaning, Meaning::Lengths | Meaning::Documents | Meaning::Drop | Meaning::Padding);
        match part.has(|value| value < 0).filter(|_| counts) {
            Some(negative) => refuse(format!("{name} holds {negative}: give numbers of at least 0")),
            None => Ok(part),
        }
    }

    /// Returns the number of batch rows and the number of tokens of each. Arrays that are not tables give the least
    /// number of tokens.
    pub(super) fn size(&self) -> (usize, usize) {
        let first = &self.rows[0];
        match self.meaning {
            Meaning::Ends => (1, first[first.len() - 1].max(1) as usize),
            Meaning::Lengths => (first.len(), first.iter().copied().max().unwrap_or(0).max(1) as usize),
            Meaning::Documents => {
                let most = self.rows.iter().map(|row| row.iter().sum::<i64>()).max().unwrap_or(0);
                (self.rows.len(), most.max(1) as usize)
            }
            _ => (self.rows.len(), first.len()),
        }
    }

    /// Returns the set of keys of each row for whose values `keep` is true.
    fn keys(&self, keep: impl Fn(i64) -> bool) -> Vec<IntervalSet> {
        let set = |row: &Vec<i64>| {
            row.iter().zip(0u32..).filter(|(value, _)| keep(**value)).map(|(_, key)| key..key + 1).collect()
        };
        self.rows.iter().map(set).collect()
    }

    /// Returns one range of keys of each row.
    fn ranges(&self, range: impl Fn(&[i64]) -> Range<usize>) -> Vec<IntervalSet> {
        let set = |row: &Vec<i64>| {
            let range = range(row);
            IntervalSet::from(range.start as u32..range.end as u32)
        };
        self.rows.iter().map(set).collect()
    }

    fn has(&self, test: impl Fn(i64) -> bool) -> Option<i64> {
        self.rows.iter().flatten().copied().find(|value| test(*value))
    }

    /// Returns the readings of the array in a batch.
    pub(super) fn alternatives(&self, options: &Options, batch: Batch<'_>) -> Result<Vec<Alternative>, Error> {
        let (name, len) = (self.name, batch.size.1);
        Ok(match self.meaning {
            Meaning::Keep => return self.keep(),
            Meaning::Segments | Meaning::SegmentsFromZero => return self.segments(options, batch.padded),
            Meaning::Positions => return self.positions(batch.padded),
            Meaning::Drop | Meaning::Padding => {
                if let Some(other) = self.has(|value| value > 1) {
                    return refuse(format!("{name} holds {other}: give 1 for padding and 0 for tokens"));
                }
                let drop = (self.keys(|value| value == 0), "1 is padding and 0 is a token");
                let keep = (self.keys(|value| value == 1), "1 is a token and 0 is padding");
                let both = self.meaning == Meaning::Padding;
                let mut readings = if both { vec![keep, drop] } else { vec![drop] };
                // each row has tokens, unless neither reading gives every row some
                let full = |(real, _): &(Vec<IntervalSet>, &str)| !real.iter().any(IntervalSet::is_empty);
                if readings.iter().any(full) {
                    readings.retain(full);
                }
                readings.into_iter().map(|(real, says)| Alternative::padding(real, says)).collect()
            }
            Meaning::Tokens => {
                let pad = options.pad_id.unwrap_or_default();
                let facts = Facts::from_token_ids(&self.rows, pad)?;
                let real = facts.real.map(|real| real_sets(name, &real, self.rows.len(), len as u32)).transpose()?;
                vec![Alternative::padding(real.unwrap_or_default(), &format!("id {pad} is padding"))]
            }
            Meaning::Lengths | Meaning::Documents => {
                let list = |row: &Vec<i64>| row.iter().map(|n| *n as usize).collect::<Vec<_>>();
                let documents = self.meaning == Meaning::Documents;
                let rows: Vec<Vec<usize>> = match documents {
                    true => self.rows.iter().map(list).collect(),
                    false => self.rows[0].iter().map(|n| vec![*n as usize]).collect(),
                };
                let sums: Vec<usize> = rows.iter().map(|row| row.iter().sum()).collect();
                if let Some(long) = sums.iter().find(|sum| **sum > len) {
                    return refuse(format!("{name} gives {long} tokens in a row, but the rows have {len} tokens"));
                }
                let real = || sums.iter().map(|n| IntervalSet::from(0..*n as u32)).collect();
                vec![Alternative {
                    real: (!documents || sums.iter().any(|sum| *sum < len)).then(real),
                    owners: if documents { Owners::Lengths(rows) } else { Owners::None },
                    says: if documents { "the length of each packed document" } else { "the tokens of each batch row" }
                        .into(),
                    end: String::new(),
                }]
            }
            Meaning::Ends => {
                let documents = Facts::from_cu_seqlens(&self.rows[0])?.documents;
                let owners = Owners::Ends(documents.and_then(|lists| lists.get(0).cloned()).unwrap_or_default());
                vec![Alternative {
                    real: None,
                    owners,
                    says: "0, and then the ends of packed documents".into(),
                    end: String::new(),
                }]
            }
        })
    }

    fn keep(&self) -> Result<Vec<Alternative>, Error> {
        let name = self.name;
        let added = || {
            let says = "the numbers are added to scores: 0 is a token, and the lowest number is padding";
            Alternative::padding(self.keys(|value| value == 0), says)
        };
        if let Some(negative) = self.has(|value| value < 0) {
            return match self.added {
                true => Ok(vec![added()]),
                false => refuse(format!(
                    "{name} holds {negative}: give 1 for tokens and 0 for padding, or numbers of packed documents from 1; give \
                     numbers that are added to scores as floats"
                )),
            };
        }
        let real = self.keys(|value| value != 0);
        if self.has(|value| value > 1).is_none() {
            let all: usize = self.rows.iter().map(Vec::len).sum();
            let padding = all as u64 - real.iter().map(IntervalSet::count).sum::<u64>();
            let says = format!("1 is a token and 0 is padding; {padding} of {all} entries are padding");
            let kept = Alternative::padding(real, &says);
            return Ok(if self.added { vec![kept, added()] } else { vec![kept] });
        }
        for (row, line) in self.rows.iter().enumerate() {
            let ids: Vec<i64> = line.iter().copied().filter(|id| *id != 0).collect();
            let firsts: Vec<i64> = ids.chunk_by(|a, b| a == b).map(|run| run[0]).collect();
            if firsts.iter().zip(1..).any(|(id, count)| *id != count) {
                return refuse(format!(
                    "{name} holds {firsts:?} in batch row {row}: give 1 for tokens and 0 for padding, or numbers of packed \
                     documents that count from 1; give other ids as segment_ids"
                ));
            }
        }
        Ok(vec![self.numbered(Some(real), "0 marks padding")])
    }

    /// Returns the reading of document numbers in which `real` are the non-padding tokens.
    fn numbered(&self, real: Option<Vec<IntervalSet>>, end: &str) -> Alternative {
        let says = "the number of the document of each token";
        Alternative { real, owners: Owners::Numbers(self.rows.clone()), says: says.into(), end: format!("; {end}") }
    }

    fn segments(&self, options: &Options, padded: bool) -> Result<Vec<Alternative>, Error> {
        let without = |id: i64| self.numbered(Some(self.keys(|other| other != id)), &format!("{id} marks padding"));
        let all = || self.numbered(None, "no number marks padding");
        if let Some(given) = options.segment_padding {
            return Ok(vec![given.map_or_else(all, without)]);
        }
        if let Some(negative) = self.has(|id| id < -1) {
            return refuse(format!("{} holds {negative}: give numbers of 0 or more, with -1 for padding", self.name));
        }
        let first = |row: &[i64]| row.iter().position(|id| *id != 0).unwrap_or(row.len());
        let leading = self.rows.iter().any(|row| row[0] == 0);
        let later = self.rows.iter().any(|row| row[first(row)..].contains(&0));
        Ok(match (leading, later) {
            _ if self.has(|id| id == -1).is_some() => vec![without(-1)],
            (false, false) => vec![all()],
            _ if padded => vec![all(), without(0)],
            (true, false) if self.meaning == Meaning::SegmentsFromZero => vec![all()],
            (true, false) => vec![without(0), all()],
            (false, true) => vec![without(0)],
            (true, true) => {
                let leading = self.ranges(|row| 0..first(row));
                let real = self.keys(|id| id != 0).iter().zip(&leading).map(|(a, b)| a.union(b)).collect();
                vec![
                    without(0),
                    self.numbered(Some(real), "0 marks the first document of a row, and padding after other numbers"),
                ]
            }
        })
    }

    fn positions(&self, padded: bool) -> Result<Vec<Alternative>, Error> {
        let reading = |real: Option<Vec<IntervalSet>>, end: &str| Alternative {
            real,
            owners: Owners::Positions(self.rows.clone()),
            says: "positions begin again at 0 in each packed document".into(),
            end: end.into(),
        };
        let mut found = vec![reading(None, "")];
        if padded {
            return Ok(found);
        }
        if self.rows.iter().all(|row| counted(row)) {
            let Some(row) = self.rows.iter().find(|row| row[0] != 0) else { return Ok(found) };
            return refuse(format!(
                "{} begin at {} and never begin again, which has two readings: the tokens continue those of a cache (give the \
                 position of the first query as query_offset), or there is padding before the first token (give attention_mask \
                 too)",
                self.name, row[0]
            ));
        }
        if self.rows.iter().any(|row| row.len() > 1 && row.ends_with(&[0])) {
            let real = self.ranges(|row| 0..row.iter().rposition(|position| *position != 0).map_or(0, |last| last + 1));
            found.push(reading(Some(real), "; zeros at the end of a row are padding"));
        }
        if self.rows.iter().any(|row| row.starts_with(&[0, 0])) {
            let begin =
                |row: &[i64]| row.iter().position(|position| *position != 0).unwrap_or(row.len()).saturating_sub(1);
            let real = self.ranges(|row| begin(row)..row.len());
            found.push(reading(Some(real), "; zeros before the first document are padding"));
        }
        if found.len() > 1 {
            found[0].end = "; no token is padding".into();
        }
        Ok(found)
    }
}
