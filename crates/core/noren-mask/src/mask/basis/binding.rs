//! [`Binding`]: an atom together with its shape and its facts.

use super::extent::{Extent, queries_end};
use super::limits::check_lengths;
use crate::Error;
use crate::facts::Facts;
use crate::facts::resolve::{documents_start, sum};
use crate::facts::shape::Shape;
use std::fmt::Display;

/// An atom together with a shape and facts. [`Atom::fits`](crate::atom::Atom::fits) gets this value and checks that the
/// shape and the facts fit the atom. The methods return errors that name the atom.
pub struct Binding<'a> {
    pub(crate) atom: &'a dyn Display,
    pub(crate) shape: &'a Shape,
    pub(crate) facts: &'a Facts,
}

impl Binding<'_> {
    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        self.shape
    }

    /// Returns the facts.
    pub fn facts(&self) -> &Facts {
        self.facts
    }

    /// Returns an error that the atom needs `what`, which the facts do not have. `fix` is the advice in the error.
    ///
    /// # Errors
    /// Returns an error in every case.
    pub fn missing(&self, what: &str, fix: &str) -> Result<(), Error> {
        Err(Error::Missing { part: self.atom.to_string(), what: what.into(), fix: fix.into() })
    }

    /// Returns an error that the shape or the facts do not fit the atom. `problem` describes the problem and the fix.
    ///
    /// # Errors
    /// Returns an error in every case.
    pub fn refuse(&self, problem: impl Into<String>) -> Result<(), Error> {
        Err(Error::atom(self.atom, problem))
    }

    /// Checks that a list has one entry per batch row. `given` is the number of entries of the list, and `what` names
    /// the entries in the error.
    ///
    /// # Errors
    /// Returns an error if `given` is not the number of batch rows.
    pub fn per_row(&self, what: &str, given: usize) -> Result<(), Error> {
        match self.shape.batch_len() {
            batch if batch == given => Ok(()),
            batch => self.refuse(format!(
                "the batch has {batch} rows but {what} are given for {given} rows: give one entry per batch row"
            )),
        }
    }

    /// Checks that the facts declare `label`.
    ///
    /// # Errors
    /// Returns an error if the facts do not declare the label.
    pub fn label(&self, label: &str) -> Result<(), Error> {
        if self.facts.labels.contains_key(label) {
            return Ok(());
        }
        let known: Vec<_> = self.facts.label_names().map(|n| format!("{n:?}")).collect();
        let fix = match known.is_empty() {
            true => format!("the facts declare no label: add {label:?} to the labels of the facts"),
            false => {
                format!("the facts declare only the labels {}: add {label:?} to them", known.join(", "))
            }
        };
        self.missing(&format!("the label {label:?}"), &fix)
    }

    /// Checks that `lengths` has one length per batch row, and that no length exceeds the number of keys.
    pub(crate) fn lengths_of_keys(&self, lengths: &[usize]) -> Result<(), Error> {
        check_lengths(lengths, self.shape.batch_len(), self.shape.kv_len(), "keys")
            .or_else(|problem| self.refuse(problem))
    }

    /// Calls `check` for each batch row, with the index of the batch row and the numbers of positions that a list for
    /// this batch row may cover.
    pub(crate) fn each_row(&self, mut check: impl FnMut(usize, &Extent) -> Result<(), Error>) -> Result<(), Error> {
        Extent::rows(self.shape, self.facts).iter().enumerate().try_for_each(|(row, extent)| check(row, extent))
    }

    /// Checks that the documents of each batch row cover an accepted number of positions. `own` is the document lengths
    /// in the parameters of the atom; `None` means that the facts give the document lengths.
    pub(crate) fn documents(&self, own: Option<&[usize]>) -> Result<(), Error> {
        let kv_len = self.shape.kv_len();
        self.each_row(|row, extent| {
            let given = self.facts.documents.as_ref().and_then(|d| d.get(row));
            let sum = own.or(given.map(Vec::as_slice)).map_or(0, sum);
            let begins_later = documents_start(self.facts, row, sum, kv_len as u32) > 0;
            if begins_later && queries_end(self.shape, row) <= kv_len {
                return Ok(());
            }
            extent.check(self.atom, "documents", sum, row)
        })
    }
}
