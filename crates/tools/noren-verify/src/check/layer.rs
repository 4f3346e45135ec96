//! [`Layer`]: the tokens that each token reads in one layer of one batch row, over all heads. A layer checks one step
//! of a certificate: whether the tokens that are influenced after the layer follow from those influenced before the
//! layer.

use crate::cells::node::{Node, World};
use crate::facts::frame::Frame;
use crate::read::expr::{By, Expr};
use crate::read::refusal::Result;
use crate::runs::{Runs, coarse, first_common, holds, minus, union};
use crate::work::Work;

/// The number of query rows in one group of an `Index`. The keys of these query rows are joined to one set.
const BLOCK: i64 = 32;

/// The maximum number of ranges in one set of an `Index`. If a set has more ranges, the ranges with the narrowest gaps
/// between them are joined; the set then also contains the keys in these gaps.
const COARSE: usize = 16;

/// The maximum number of stored masks with which the mask of a head is compared, so that equal masks are stored once.
const MOST_COMPARED: usize = 64;

/// The mask of one layer in one batch row.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The distinct masks of the heads.
    heads: Vec<Node>,
    /// True if query rows without allowed keys read all keys, false if they read nothing.
    finite: bool,
    /// The keys that the query rows read; `None` until a check needs them.
    index: Option<Index>,
}

/// The keys that each query row reads, and sets of keys for groups of query rows, with which a search skips many rows.
#[derive(Debug)]
struct Index {
    /// The keys that each query row reads; `None` if the keys of all rows take too much memory.
    rows: Option<Vec<Runs>>,
    /// A binary tree of sets of keys, with which a search for the rows that read a key skips many rows. `sums[0]` has
    /// one set for each group of `BLOCK` query rows: the keys that at least one of these rows reads. `sums[n + 1]` has
    /// one set for each two neighbouring sets of `sums[n]`: the union of these sets. A set may contain additional keys.
    sums: Vec<Vec<Runs>>,
}

impl Layer {
    /// Resolves `expr` for the batch row of `frame` and for each head. Equal masks are stored once. Errors contain
    /// `field`, the path of the mask in the certificate.
    pub(crate) fn new(world: &World<'_>, expr: &Expr, frame: &Frame, finite: bool, field: &str) -> Result<Self> {
        let alone = !by_head(expr) && !world.facts.arrays.iter().any(|array| array.1.by_head());
        let mut heads: Vec<Node> = Vec::new();
        for head in 0..if alone { 1 } else { world.shape.heads } {
            world.work.spend(heads.len())?;
            let node = world.resolve(expr, frame, head, field)?;
            if !heads.iter().take(MOST_COMPARED).any(|other| *other == node) {
                heads.push(node);
            }
        }
        Ok(Self { heads, finite, index: None })
    }

    /// Returns the minimum number of computation steps for one check of this layer: the check that the tokens
    /// influenced before the layer lead to the tokens influenced after it.
    pub(crate) fn least_steps(&self, frame: &Frame) -> u128 {
        frame.q_len as u128 * self.heads.len() as u128
    }

    /// Returns true if query row `i` reads key `j` in at least one head.
    pub(crate) fn reads(&self, frame: &Frame, i: i64, j: i64, work: &Work) -> Result<bool> {
        for head in &self.heads {
            let row = head.row(frame, i, work)?;
            if holds(&row, j) || (self.finite && row.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the keys that query row `i` reads in at least one head.
    fn row(&self, frame: &Frame, i: i64, work: &Work) -> Result<Runs> {
        let mut out = Runs::new();
        for head in &self.heads {
            let row = head.row(frame, i, work)?;
            if row.is_empty() && self.finite {
                return Ok(vec![(0, frame.kv_len)]);
            }
            out = if out.is_empty() { row } else { union(&out, &row) };
        }
        Ok(out)
    }

    /// Returns the first key of `set` that query row `i` reads in at least one head; `None` if the query row reads no
    /// key of `set`.
    fn first_read(&self, frame: &Frame, i: i64, set: &Runs, work: &Work) -> Result<Option<i64>> {
        let stored = self.index.as_ref().and_then(|index| index.rows.as_ref());
        let made;
        let row = match stored {
            Some(rows) => &rows[i as usize],
            None => {
                made = self.row(frame, i, work)?;
                &made
            }
        };
        work.spend(row.len().min(set.len()))?;
        Ok(first_common(row, set))
    }

    /// Computes the field `index`, the keys of all query rows, if it was not computed before.
    fn prepare(&mut self, frame: &Frame, work: &Work) -> Result<()> {
        if self.index.is_some() {
            return Ok(());
        }
        let mut index = Index { rows: Some(Vec::new()), sums: vec![Vec::new()] };
        for first in (0..frame.q_len).step_by(BLOCK as usize) {
            let mut sum = Runs::new();
            for i in first..(first + BLOCK).min(frame.q_len) {
                let row = self.row(frame, i, work)?;
                work.spend(row.len() + sum.len())?;
                if sum.last() != row.last() || sum.len() != row.len() || sum != row {
                    sum = coarse(union(&sum, &row), COARSE);
                }
                if index.rows.is_some() && work.may_keep(row.len() + 2) {
                    index.rows.iter_mut().for_each(|rows| rows.push(row.clone()));
                } else {
                    index.rows = None;
                }
            }
            work.keep(2 * sum.len())?;
            index.sums[0].push(sum);
        }
        while index.sums[index.sums.len() - 1].len() > 1 {
            let below = &index.sums[index.sums.len() - 1];
            let join =
                |pair: &[Runs]| pair.get(1).map_or_else(|| pair[0].clone(), |b| coarse(union(&pair[0], b), COARSE));
            let sums: Vec<Runs> = below.chunks(2).map(join).collect();
            index.sums.push(sums);
        }
        self.index = Some(index);
        Ok(())
    }

    /// Clears the field `index`, the keys of all query rows, to free its memory.
    pub(crate) fn forget(&mut self) {
        self.index = None;
    }

    /// Checks one step of a certificate. `from` are the tokens that are influenced before this layer, and `to` the
    /// tokens that are influenced after this layer: `to` must contain the tokens of `from`, the tokens that read a
    /// token of `from`, and no other tokens. Earlier checks have shown that query rows outside `to` do not read the
    /// tokens of `done`. The inner error describes a missing or an additional token. The outer error means that the
    /// check exceeds its limit of steps or memory.
    pub(crate) fn step(
        &mut self,
        frame: &Frame,
        from: &Runs,
        to: &Runs,
        done: &Runs,
        work: &Work,
    ) -> Result<std::result::Result<(), String>> {
        work.spend(from.len() + to.len() + done.len())?;
        if let Some(&(lost, _)) = minus(from, to).first() {
            return Ok(Err(format!("token {lost} is missing, but it was influenced before this layer")));
        }
        let fresh = minus(from, done);
        let gained = minus(to, from);
        if fresh.is_empty() && gained.is_empty() {
            return Ok(Ok(()));
        }
        self.prepare(frame, work)?;
        for t in gained.iter().flat_map(|run| run.0..run.1) {
            let read = match frame.row_of(t) {
                Some(i) => self.first_read(frame, i, from, work)?,
                None => None,
            };
            if read.is_none() {
                return Ok(Err(format!(
                    "the layer adds token {t} to the influenced tokens, but this token reads none of the tokens that were influenced before"
                )));
            }
        }
        let top = self.index.as_ref().map_or(0, |index| index.sums.len() - 1);
        let missed = if fresh.is_empty() { None } else { self.missed(frame, &fresh, to, (top, 0), work)? };
        Ok(match missed {
            Some((t, k)) => {
                Err(format!("token {t} is missing, but it reads token {k}, which was influenced before this layer"))
            }
            None => Ok(()),
        })
    }

    /// Searches for a token that is not in `to` and reads a token of `fresh`. Returns the pair `(reading token, token
    /// of fresh)`, or `None`. `at` is `(level, number)`: the search covers only the query rows of the set
    /// `sums[level][number]` of the index.
    fn missed(
        &self,
        frame: &Frame,
        fresh: &Runs,
        to: &Runs,
        at: (usize, usize),
        work: &Work,
    ) -> Result<Option<(i64, i64)>> {
        let Some(index) = &self.index else { return Ok(None) };
        let (level, number) = at;
        let Some(sum) = index.sums[level].get(number) else { return Ok(None) };
        work.spend(sum.len().min(fresh.len()))?;
        let first = number as i64 * (BLOCK << level);
        let end = (first + (BLOCK << level)).min(frame.q_len);
        if first_common(sum, fresh).is_none() || frame.all_within(first, end, to) {
            return Ok(None);
        }
        if level > 0 {
            let left = self.missed(frame, fresh, to, (level - 1, 2 * number), work)?;
            return if left.is_some() {
                Ok(left)
            } else {
                self.missed(frame, fresh, to, (level - 1, 2 * number + 1), work)
            };
        }
        for i in first..end {
            let token = frame.key_at(frame.query(i)).filter(|&token| !holds(to, token));
            if let Some(token) = token
                && let Some(key) = self.first_read(frame, i, fresh, work)?
            {
                return Ok(Some((token, key)));
            }
        }
        Ok(None)
    }
}

/// Returns true if the mask contains `heads(...)`, so that heads may have different masks.
fn by_head(expr: &Expr) -> bool {
    match expr {
        Expr::Arms(By::Head, _) => true,
        Expr::Arms(_, arms) => arms.iter().any(|arm| by_head(&arm.1)),
        Expr::Not(part) => by_head(part),
        Expr::And(parts) | Expr::Or(parts) | Expr::Minus(parts) => parts.iter().any(by_head),
        _ => false,
    }
}
