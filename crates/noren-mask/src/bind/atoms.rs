//! What every atom of a mask needs from the facts and the shape.

use super::extent::{Extent, queries_end};
use super::sound::check_lengths;
use crate::Error;
use crate::facts::{Facts, RealTokens};
use crate::mask::{Arm, Mask, Node, Padding, PerRow};
use crate::resolve::{documents_start, sum};
use crate::set::{Selector, Set};
use crate::shape::Shape;

/// Refuses the first part of `mask` whose facts are missing or do not fit the shape.
pub(super) fn check_atoms(mask: &Mask, shape: &Shape, facts: &Facts) -> Result<(), Error> {
    Fit { mask, shape, facts }.check()?;
    mask.children().into_iter().try_for_each(|part| check_atoms(part, shape, facts))
}

/// One part of a mask beside the shape and the facts.
struct Fit<'a> {
    mask: &'a Mask,
    shape: &'a Shape,
    facts: &'a Facts,
}

impl Fit<'_> {
    fn check(&self) -> Result<(), Error> {
        match self.mask.node() {
            Node::Prefix { lengths: PerRow::Each(list) } => self.per_row("lengths", list.len()),
            Node::Keys(Set::Label(label)) | Node::Queries(Set::Label(label)) | Node::Global(Set::Label(label)) => {
                self.label(label)
            }
            Node::Padding(padding) => self.padding(padding),
            Node::Documents { lengths } => self.documents(lengths.as_ref()),
            Node::Clearance => self.clearance(),
            Node::Neighborhood { grid, .. } => self.neighborhood(grid),
            Node::Dense { name } => self.dense(name),
            Node::Closure { name } if !self.facts.closures.contains_key(name) => {
                self.missing(&format!("the closure {name:?}"), "add it with Facts::closure")
            }
            Node::Heads(arms) => self.arms(arms, "head", self.shape.head_count()),
            Node::Batch(arms) => self.arms(arms, "batch row", self.shape.batch_len()),
            Node::Layers(_) => self.missing("the layer", "pick one with `--layer` or Mask::at_layer"),
            _ => Ok(()),
        }
    }

    fn missing(&self, what: &str, fix: &str) -> Result<(), Error> {
        Err(Error::Missing { atom: self.mask.to_string(), what: what.into(), fix: fix.into() })
    }

    fn refuse(&self, problem: String) -> Result<(), Error> {
        Err(Error::atom(self.mask, problem))
    }

    fn rows(&self) -> std::ops::Range<usize> {
        0..self.shape.batch_len()
    }

    fn per_row(&self, what: &str, given: usize) -> Result<(), Error> {
        match self.shape.batch_len() {
            batch if batch == given => Ok(()),
            batch => {
                self.refuse(format!("the batch is {batch} but {what} are given for {given}: give one per batch row"))
            }
        }
    }

    fn label(&self, label: &str) -> Result<(), Error> {
        if self.facts.labels.contains_key(label) {
            return Ok(());
        }
        let known: Vec<_> = self.facts.label_names().map(|n| format!("{n:?}")).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        self.missing(
            &format!("the label {label:?}, which the facts do not declare (declared: {known})"),
            "add it to the facts' labels",
        )
    }

    fn padding(&self, padding: &Padding) -> Result<(), Error> {
        let (shape, facts) = (self.shape, self.facts);
        match (&padding.lengths, &facts.real) {
            (Some(lengths), _) => {
                self.per_row("lengths", lengths.len())?;
                check_lengths(lengths, shape.batch_len(), shape.kv_len(), "keys")
                    .or_else(|problem| self.refuse(problem))?;
            }
            (None, None) => {
                return self.missing("lengths", "give one per batch row, in the facts or as padding(lengths=[...])");
            }
            (None, Some(RealTokens::Keys(_))) if padding.side.is_some() => {
                return self.refuse("the facts list the real keys themselves: drop `side`".into());
            }
            (None, Some(_)) => {}
        }
        let aligned = |row| shape.query_offset(row) + shape.q_len() as i64 == shape.kv_len() as i64;
        if padding.both && facts.query_lengths.is_none() && !self.rows().all(aligned) {
            let fix = "queries and keys are different sequences: say how many queries are real";
            return self.missing("query_lengths", fix);
        }
        Ok(())
    }

    fn documents(&self, own: Option<&Vec<u64>>) -> Result<(), Error> {
        if own.is_none() && self.facts.documents.is_none() {
            return self.missing("documents", "give their lengths in the facts or as documents([...])");
        }
        for (row, extent) in Extent::rows(self.shape, self.facts).iter().enumerate() {
            let given = self.facts.documents.as_ref().and_then(|d| d.get(row));
            let sum = own.or(given).map_or(0, |lengths| sum(lengths));
            let begins_later = documents_start(self.facts, row, sum, self.shape.kv_len() as u32) > 0;
            if !begins_later || queries_end(self.shape, row) > self.shape.kv_len() as u64 {
                extent.check(self.mask, "the documents sum to", sum, row)?;
            }
        }
        Ok(())
    }

    fn clearance(&self) -> Result<(), Error> {
        let Some(levels) = &self.facts.levels else {
            return self.missing("levels", "give one per position in the facts");
        };
        Extent::rows(self.shape, self.facts).iter().enumerate().try_for_each(|(row, extent)| {
            let given = levels.get(row).map_or(0, Vec::len) as u64;
            extent.check(self.mask, "the levels cover", given, row)
        })
    }

    fn neighborhood(&self, grid: &[u64]) -> Result<(), Error> {
        let cells = grid.iter().fold(1u64, |n, g| n.saturating_mul(*g));
        Extent::rows(self.shape, self.facts).iter().enumerate().try_for_each(|(row, extent)| {
            // a grid may be larger than what of it has been made so far
            extent.check(self.mask, "the grid holds", cells.min(extent.all), row)
        })
    }

    fn dense(&self, name: &str) -> Result<(), Error> {
        let Some(array) = self.facts.arrays.get(name) else {
            return self.missing(&format!("the array {name:?}"), "add it to the facts' arrays");
        };
        let shape = self.shape;
        let (batch, heads) = (shape.batch_len(), shape.head_count());
        let [b, h, q, k] = array.shape();
        if (b == 1 || b == batch) && (h == 1 || h == heads) && (q, k) == (shape.q_len(), shape.kv_len()) {
            return Ok(());
        }
        let one_or = |n: usize| if n == 1 { "1".to_string() } else { format!("1 or {n}") };
        let (batch, heads) = (one_or(batch), one_or(heads));
        let needed = format!("[{batch}, {heads}, {}, {}]", shape.q_len(), shape.kv_len());
        self.refuse(format!("the array's shape is {:?} but {needed} is needed", array.shape()))
    }

    fn arms(&self, arms: &[Arm], what: &str, count: usize) -> Result<(), Error> {
        for arm in arms {
            let Selector::Spans(spans) = &arm.selector else { continue };
            for span in spans {
                let last = span.end.map_or(span.start, |e| e.saturating_sub(1));
                if last >= count as u64 && span.end != Some(span.start) {
                    let range = format!("indices run from 0 to {}", count - 1);
                    return self.refuse(format!("names {what} {last} but there are {count}: {range}"));
                }
            }
        }
        Ok(())
    }
}
