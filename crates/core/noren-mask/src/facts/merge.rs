//! The union of two sets of facts.

use super::Facts;
use crate::Error;
use std::collections::BTreeMap;

impl Facts {
    /// Returns these facts and the facts of `other` together.
    ///
    /// ```
    /// use noren_mask::Facts;
    /// let both = Facts::new().lengths([5, 3]).merge(&Facts::new().label("pii", [3..4]))?;
    /// assert_eq!(both, Facts::new().lengths([5, 3]).label("pii", [3..4]));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the two give different values for one fact, or for a label or array of the same
    /// name. Lengths and lists of non-padding keys are different values, even if they describe the same padding.
    pub fn merge(mut self, other: &Facts) -> Result<Facts, Error> {
        one("lengths or real_keys", &mut self.real, &other.real)?;
        self.table.0 = self.table.0.or(other.table.0);
        one("query_lengths", &mut self.query_lengths, &other.query_lengths)?;
        one("documents", &mut self.documents, &other.documents)?;
        one("levels", &mut self.levels, &other.levels)?;
        if (self.positions.is_some() && other.runs.is_some()) || (self.runs.is_some() && other.positions.is_some()) {
            return Err(twice("positions"));
        }
        one("positions", &mut self.positions, &other.positions)?;
        one("positions", &mut self.runs, &other.runs)?;
        named("labels", &mut self.labels, &other.labels)?;
        named("arrays", &mut self.arrays, &other.arrays)?;
        Ok(self)
    }
}

fn twice(name: &str) -> Error {
    Error::fact(
        name,
        "the two sets of facts give different values for this fact: give the fact in only one of the two sets"
            .to_owned(),
    )
}

fn one<T: Clone + PartialEq>(name: &str, into: &mut Option<T>, other: &Option<T>) -> Result<(), Error> {
    match (&*into, other) {
        (Some(mine), Some(theirs)) if mine != theirs => Err(twice(name)),
        (None, Some(theirs)) => {
            *into = Some(theirs.clone());
            Ok(())
        }
        _ => Ok(()),
    }
}

fn named<T: Clone + PartialEq>(
    what: &str,
    into: &mut BTreeMap<String, T>,
    other: &BTreeMap<String, T>,
) -> Result<(), Error> {
    for (name, theirs) in other {
        match into.get(name) {
            Some(mine) if mine != theirs => return Err(twice(&format!("{what}: {name}"))),
            Some(_) => {}
            None => {
                into.insert(name.clone(), theirs.clone());
            }
        }
    }
    Ok(())
}
