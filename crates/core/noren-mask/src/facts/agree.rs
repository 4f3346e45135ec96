//! Checks of facts that several inputs give, such as lengths and token ids. Inputs that do not agree give an error.

use super::import::real_sets;
use super::{Facts, RealTokens, Table};
use crate::Error;
use crate::sets::scalar::{Rows, Side};

/// The non-padding tokens that several inputs give. The inputs must agree; each has batch rows of a known length.
#[derive(Default)]
pub(super) struct Claims {
    first: Option<Claim>,
}

struct Claim {
    name: &'static str,
    real: RealTokens,
    len: usize,
}

impl Claims {
    /// Returns true if at least one input (such as a padding mask or token ids) gave non-padding tokens.
    pub(super) fn any(&self) -> bool {
        self.first.is_some()
    }

    /// Adds the non-padding tokens of `facts`, which were read from the input `name` with batch rows of `len` keys.
    /// Returns an error if they contradict the inputs that were added before.
    pub(super) fn add(&mut self, name: &'static str, facts: Facts, len: usize) -> Result<(), Error> {
        let Some(real) = facts.real else { return Ok(()) };
        match &self.first {
            None => self.first = Some(Claim { name, real, len }),
            Some(first) if first.len != len => {
                return Err(Error::fact(
                    name,
                    format!(
                        "the rows have {len} keys but those of {} have {}: give rows of equal length",
                        first.name, first.len
                    ),
                ));
            }
            Some(first) => first.compare(name, &real)?,
        }
        Ok(())
    }

    /// Returns the name and the number of keys of the first input (such as a padding mask or token ids) that gives
    /// non-padding tokens.
    pub(super) fn table(&self) -> Table {
        Table(self.first.as_ref().map(|claim| (claim.name, claim.len)))
    }

    /// Returns the non-padding tokens from all inputs and from the facts `lengths`, `real_keys` (`keys`) and `side`. A
    /// fact that was not given is `None`. Returns an error if two of them contradict each other.
    pub(super) fn settle(
        self,
        lengths: Option<Vec<usize>>,
        keys: Option<Vec<crate::sets::interval::IntervalSet>>,
        side: Option<Side>,
    ) -> Result<Option<RealTokens>, Error> {
        match (self.first, lengths, keys) {
            (_, Some(_), Some(_)) => Err(Error::fact(
                "real_keys",
                "`lengths` and `real_keys` are both given: give only one of the two facts",
            )),
            (None, Some(lengths), None) => Ok(Some(RealTokens::Lengths { lengths, side: side.unwrap_or_default() })),
            (Some(claim), Some(lengths), None) => {
                claim.compare_lengths(&lengths)?;
                claim.turn(side).map(Some)
            }
            (Some(claim), None, None) => claim.turn(side).map(Some),
            (_, None, Some(_)) if side.is_some() => {
                Err(Error::fact("side", "`real_keys` already defines where the padding is: remove `side`"))
            }
            (claim, None, Some(keys)) => {
                let keys = RealTokens::Keys(keys);
                claim.map_or(Ok(()), |claim| claim.compare("real_keys", &keys))?;
                Ok(Some(keys))
            }
            (None, None, None) if side.is_some() => {
                Err(Error::fact("side", "the side of the padding has no effect without `lengths`: give `lengths` too"))
            }
            (None, None, None) => Ok(None),
        }
    }
}

impl Claim {
    fn compare(&self, name: &str, real: &RealTokens) -> Result<(), Error> {
        let len = self.len as u32;
        let batch = match &self.real {
            RealTokens::Lengths { lengths, .. } => lengths.len(),
            RealTokens::Keys(keys) => keys.len(),
        };
        let theirs = real_sets(self.name, real, batch, len)?;
        let ours = real_sets(self.name, &self.real, batch, len)?;
        for (row, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            for (real, padding, more) in [(self.name, name, a.minus(b)), (name, self.name, b.minus(a))] {
                if let Some(covering) = more.covering_range() {
                    return Err(Error::fact(
                        name,
                        format!(
                            "this fact contradicts {}: key {} of batch row {row} is a real token in {real} and padding in {padding}",
                            self.name, covering.start
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    fn compare_lengths(&self, lengths: &[usize]) -> Result<(), Error> {
        let name = self.name;
        let refuse = |problem: String| Err(Error::fact("lengths", problem));
        let RealTokens::Lengths { lengths: ours, .. } = &self.real else {
            return refuse(format!(
                "{name} has padding that is not at one end, which lengths cannot describe: remove `lengths`"
            ));
        };
        if ours.len() != lengths.len() {
            return refuse(format!(
                "{} lengths are given but {name} has {} batch rows: give one length per batch row",
                lengths.len(),
                ours.len()
            ));
        }
        match lengths.iter().zip(ours).enumerate().find(|(_, (a, b))| a != b) {
            Some((row, (said, counted))) => refuse(format!(
                "the length of batch row {row} is {said}, but {name} has {counted} real tokens in this batch row: give only \
                 one of the two facts"
            )),
            None => Ok(()),
        }
    }

    /// Checks that the padding is at `side`, and returns the non-padding tokens. `None` skips the check. Returns an
    /// error if the padding is at the other side.
    fn turn(self, side: Option<Side>) -> Result<RealTokens, Error> {
        let Some(side) = side else { return Ok(self.real) };
        let shown = if side == Side::Left { "left" } else { "right" };
        let refuse = |row: usize| {
            Err(Error::fact(
                "side",
                format!(
                    "the given side is {shown:?} but {} has the padding of batch row {row} at the other end",
                    self.name
                ),
            ))
        };
        match self.real {
            RealTokens::Keys(_) => Err(Error::fact(
                "side",
                format!(
                    "the given side is {shown:?} but the padding in {} is not at one end: remove `side`",
                    self.name
                ),
            )),
            RealTokens::Lengths { ref lengths, side: found } if found != side => {
                match lengths.iter().position(|n| *n > 0 && *n < self.len) {
                    Some(row) => refuse(row),
                    None => Ok(RealTokens::Lengths { lengths: lengths.clone(), side }),
                }
            }
            real => Ok(real),
        }
    }
}

/// Returns the documents on which all `sources` agree, or `None` if there are no sources. A source is (name of the
/// input, document lengths). Returns an error if two sources give different documents.
pub(super) fn same_documents(sources: Vec<(&str, Rows<Vec<usize>>)>) -> Result<Option<Rows<Vec<usize>>>, Error> {
    let mut sources = sources.into_iter();
    let Some((name, first)) = sources.next() else { return Ok(None) };
    for (other, documents) in sources {
        let rows = first.rows().or(documents.rows()).unwrap_or(1).max(documents.rows().unwrap_or(1));
        for row in 0..rows {
            let (ours, theirs) = (nonempty(&first, row), nonempty(&documents, row));
            if ours != theirs {
                return Err(Error::fact(
                    other,
                    format!(
                        "this fact contradicts {name}: the documents of batch row {row} are {} in this fact and {} in the other \
                         fact; give only one of the two facts",
                        shown(theirs),
                        shown(ours)
                    ),
                ));
            }
        }
    }
    Ok(Some(first))
}

fn nonempty(documents: &Rows<Vec<usize>>, row: usize) -> Option<Vec<usize>> {
    Some(documents.get(row)?.iter().copied().filter(|n| *n > 0).collect())
}

/// Returns the first lengths of a list as text for a message.
fn shown(lengths: Option<Vec<usize>>) -> String {
    match lengths {
        None => "missing".into(),
        Some(list) if list.len() <= 8 => format!("{list:?}"),
        Some(list) => format!("{:?} and {} more", &list[..8], list.len() - 8),
    }
}
