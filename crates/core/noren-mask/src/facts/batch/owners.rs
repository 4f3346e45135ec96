//! The document of each token, from the arrays that can give it.

use super::given::{Batch, refuse};
use crate::Error;
use crate::facts::{position_owners, segment_owners};
use crate::sets::interval::IntervalSet;

/// One reading of one array.
#[derive(Clone)]
pub(super) struct Alternative {
    /// The non-padding tokens of each row, if the reading gives them.
    pub(super) real: Option<Vec<IntervalSet>>,
    pub(super) owners: Owners,
    /// The explanation, before the number of documents, and after it.
    pub(super) says: String,
    pub(super) end: String,
}

impl Alternative {
    pub(super) fn padding(real: Vec<IntervalSet>, says: &str) -> Self {
        Alternative { real: Some(real), owners: Owners::None, says: says.into(), end: String::new() }
    }
}

/// The data from which a reading gives the documents of tokens.
#[derive(Clone)]
pub(super) enum Owners {
    None,
    Numbers(Vec<Vec<i64>>),
    Positions(Vec<Vec<i64>>),
    Lengths(Vec<Vec<usize>>),
    /// The lengths of the documents of all rows, without padding.
    Ends(Vec<usize>),
}

/// For each token of a row, the number of its document, or `None` for padding.
type OwnersOfRow = Vec<Option<i64>>;

impl Alternative {
    /// Returns the document of each token if the reading gives documents, and the explanation of the reading. `real` is
    /// the non-padding tokens of each row.
    pub(super) fn owners(
        &self,
        name: &str,
        batch: Batch<'_>,
        real: &[IntervalSet],
    ) -> Result<(Option<Vec<OwnersOfRow>>, String), Error> {
        let kept = |row: usize| real[row].iter().flat_map(|run| run.start as usize..run.end as usize);
        let is_kept = |row: usize, key: usize| real[row].contains(key as u32);
        let place = |lists: &[Vec<usize>]| {
            lists.iter().enumerate().map(|(row, list)| placed(list, kept(row), batch.size.1)).collect::<Vec<_>>()
        };
        let found: Vec<OwnersOfRow> = match &self.owners {
            Owners::None => return Ok((None, self.says.clone())),
            Owners::Lengths(lists) => place(lists),
            Owners::Numbers(rows) => {
                let owner = |(row, ids): (usize, &Vec<i64>)| segment_owners(name, row, ids, &|key| is_kept(row, key));
                rows.iter().enumerate().map(owner).collect::<Result<_, _>>()?
            }
            Owners::Positions(rows) => {
                let whole = |row: usize| {
                    counted(&rows[row]) || counted(&kept(row).map(|key| rows[row][key]).collect::<Vec<_>>())
                };
                if (0..rows.len()).all(whole) {
                    let says = "positions never begin again at 0, so that they define no documents";
                    return Ok((None, format!("{says}{}", self.end)));
                }
                let owner = |(row, ids): (usize, &Vec<i64>)| match counted(ids) {
                    true => Ok((0..ids.len()).map(|key| is_kept(row, key).then_some(0)).collect()),
                    false => position_owners(row, ids, batch.padded.then_some(&real[row])),
                };
                rows.iter().enumerate().map(owner).collect::<Result<_, _>>()?
            }
            Owners::Ends(lengths) => {
                let counts: Vec<usize> = real.iter().map(|keys| keys.count() as usize).collect();
                let Some(lists) = by_row(lengths, &counts) else {
                    return refuse(format!(
                        "{name} ends at {}, but {} has {} tokens that are not padding, in rows of {counts:?}: give cumulative lengths \
                         of the tokens without padding, which end at the end of each row",
                        lengths.iter().sum::<usize>(),
                        batch.source,
                        counts.iter().sum::<usize>()
                    ));
                };
                if counts.len() > 1 && lists.iter().all(|list| list.len() <= 1) {
                    return Ok((None, format!("0, and then the ends of the {} rows without padding", counts.len())));
                }
                place(&lists)
            }
        };
        let count: usize = found.iter().map(|row| lengths_of(row).len()).sum();
        let rows = if found.len() == 1 { "1 row".to_string() } else { format!("{} rows", found.len()) };
        Ok((Some(found), format!("{}, {count} in {rows}{}", self.says, self.end)))
    }
}

/// Returns whether positions rise by 1 from token to token.
pub(super) fn counted(row: &[i64]) -> bool {
    row.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
}

/// Returns the documents of each row if the documents with the given lengths fill the rows in order. `counts` is the
/// number of tokens of each row.
fn by_row(lengths: &[usize], counts: &[usize]) -> Option<Vec<Vec<usize>>> {
    let mut rest = lengths.iter().copied().filter(|n| *n > 0);
    let mut lists = Vec::new();
    for count in counts {
        let (mut list, mut left) = (Vec::new(), *count);
        while left > 0 {
            list.push(rest.next().filter(|n| *n <= left)?);
            left -= list[list.len() - 1];
        }
        lists.push(list);
    }
    rest.next().is_none().then_some(lists)
}

/// Returns the document of each of `len` tokens of a row, for documents with the given lengths at the keys `kept`.
fn placed(lengths: &[usize], kept: impl Iterator<Item = usize>, len: usize) -> OwnersOfRow {
    let mut owners = vec![None; len];
    let documents = lengths.iter().zip(0i64..).flat_map(|(n, document)| std::iter::repeat_n(document, *n));
    kept.zip(documents).for_each(|(key, document)| owners[key] = Some(document));
    owners
}

/// Returns the lengths of the documents of a row, without padding.
pub(super) fn lengths_of(owners: &[Option<i64>]) -> Vec<usize> {
    let tokens: Vec<i64> = owners.iter().flatten().copied().collect();
    tokens.chunk_by(|a, b| a == b).map(|run| run.len()).collect()
}
