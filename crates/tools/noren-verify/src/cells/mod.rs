//! The definition of every elementary mask (atom) in two forms: for one cell, and as the keys of a query row.

pub(crate) mod leaf;
pub(crate) mod node;
pub(crate) mod philox;

use crate::cells::node::Node;
use crate::facts::frame::Frame;
use crate::read::refusal::Result;
use crate::runs::{Runs, holds, meet, minus, union};
use crate::work::Work;

/// Key positions have too many gaps if the largest position plus 1 is above `SPARSE * kv_len`. For the elementary masks
/// (atoms) `stride`, `neighborhood` and `random`, each key of a query row is then tested separately, instead of each
/// position.
const SPARSE: i64 = 4;

impl Node {
    /// Returns true if query row `i` may read key `j`.
    pub(crate) fn allowed(&self, frame: &Frame, i: i64, j: i64) -> bool {
        frame.key(j).is_some_and(|k| self.cell((i, frame.query(i)), (j, k)))
    }

    /// Returns whether a query may read a key. `query` is (query row, position), `key` is (index of the key, position).
    fn cell(&self, query: (i64, i64), key: (i64, i64)) -> bool {
        let (q, k) = (query.1, key.1);
        let part = |node: &Node| node.cell(query, key);
        match self {
            Node::Full => true,
            Node::None => false,
            Node::Window(left, right) => {
                left.is_none_or(|left| q - left <= k) && right.is_none_or(|right| k <= q + right)
            }
            Node::Chunk(size) => q.div_euclid(*size) == k.div_euclid(*size),
            Node::Stride(step) => (q - k) % step == 0,
            Node::Distances(list) => list.contains(&(q - k)),
            Node::Keys(set) => holds(set, k),
            Node::Queries(set) => holds(set, q),
            Node::RealKeys(set) => holds(set, key.0),
            Node::RealQueries(set) => holds(set, query.0),
            Node::Documents(spans) | Node::Spans(spans) => {
                spans.iter().any(|span| (span.0..span.1).contains(&q) && (span.0..span.1).contains(&k))
            }
            Node::Tree(tree) => tree.allowed(q, k),
            Node::Levels(levels) => levels.allowed(q, k),
            Node::Grid(grid) => grid.allowed(q, k),
            Node::Random { threshold, seed } => {
                u64::from(philox::cells(q, k.div_euclid(4), *seed)[k.rem_euclid(4) as usize]) < *threshold
            }
            Node::Dense(array, slice) => holds(array.row(*slice, query.0), key.0),
            Node::Not(inner) => !part(inner),
            Node::And(parts) => parts.iter().all(part),
            Node::Or(parts) => parts.iter().any(part),
            Node::Minus(parts) => part(&parts[0]) && !parts[1..].iter().any(part),
        }
    }

    /// Returns the keys that query row `i` may read, and subtracts the steps of the computation from `work`.
    pub(crate) fn row(&self, frame: &Frame, i: i64, work: &Work) -> Result<Runs> {
        work.spend(frame.pieces() + 4)?;
        let out = match self {
            Node::Not(inner) => minus(&frame.slots(), &inner.row(frame, i, work)?),
            Node::And(parts) => {
                let mut out = parts[0].row(frame, i, work)?;
                for part in &parts[1..] {
                    if !out.is_empty() {
                        out = meet(&out, &part.row_beside(&out, frame, i, work)?);
                    }
                }
                out
            }
            Node::Or(parts) => {
                let mut out = parts[0].row(frame, i, work)?;
                for part in &parts[1..] {
                    out = union(&out, &part.row_beside(&out, frame, i, work)?);
                }
                out
            }
            Node::Minus(parts) => {
                let mut out = parts[0].row(frame, i, work)?;
                for part in &parts[1..] {
                    if !out.is_empty() {
                        out = minus(&out, &part.row_beside(&out, frame, i, work)?);
                    }
                }
                out
            }
            atom => atom.row_of_atom(frame, i, work)?,
        };
        work.spend(out.len())?;
        Ok(out)
    }

    /// Returns the keys that query row `i` may read, from the definition of an elementary mask (atom). Tests each key
    /// separately if the mask is a combination of masks, or if the key positions have too many gaps.
    fn row_of_atom(&self, frame: &Frame, i: i64, work: &Work) -> Result<Runs> {
        let q = frame.query(i);
        let positions = |runs: &[(i64, i64)]| frame.keys(runs);
        let one_sided = |inside: bool| if inside { frame.slots() } else { Runs::new() };
        Ok(match self {
            Node::Full => frame.slots(),
            Node::None => Runs::new(),
            Node::Window(left, right) => {
                let start = left.map_or(0, |left| q - left);
                let end = right.map_or(i64::MAX, |right| q + right + 1);
                if start < end { positions(&[(start, end)]) } else { Runs::new() }
            }
            Node::Chunk(size) => {
                let start = q.div_euclid(*size) * size;
                positions(&[(start, start + size)])
            }
            Node::Stride(1) => frame.slots(),
            Node::Stride(_) | Node::Grid(_) | Node::Random { .. } if frame.key_end() > SPARSE * frame.kv_len => {
                self.row_by_cells(frame, i, work)?
            }
            Node::Stride(step) => {
                let end = frame.key_end();
                work.list(end / step + 1)?;
                let keys: Runs = (0..)
                    .map(|at| q.rem_euclid(*step) + at * step)
                    .take_while(|&k| k < end)
                    .map(|k| (k, k + 1))
                    .collect();
                positions(&keys)
            }
            Node::Distances(list) => {
                work.list(list.len() as i64)?;
                let keys: Runs = list.iter().rev().map(|distance| (q - distance, q - distance + 1)).collect();
                positions(&crate::runs::normal(keys))
            }
            Node::Keys(set) => {
                work.spend(set.len())?;
                positions(set)
            }
            Node::Queries(set) => one_sided(holds(set, q)),
            Node::RealKeys(set) => meet(set, &frame.slots()),
            Node::RealQueries(set) => one_sided(holds(set, i)),
            Node::Documents(spans) => {
                let at = spans.partition_point(|span| span.1 <= q);
                spans.get(at).filter(|span| span.0 <= q).map_or_else(Runs::new, |span| positions(&[*span]))
            }
            Node::Spans(spans) => {
                work.spend(spans.len())?;
                let around = spans.iter().copied().filter(|span| span.0 <= q && q < span.1).collect();
                positions(&crate::runs::normal(around))
            }
            Node::Tree(tree) => {
                let (runs, steps) = tree.row(q);
                work.spend(steps)?;
                positions(&runs)
            }
            Node::Levels(levels) => {
                let (runs, steps) = levels.row(q);
                work.spend(steps)?;
                positions(&runs)
            }
            Node::Grid(grid) => {
                work.list(grid.most_runs(frame.key_end()))?;
                let (runs, steps) = grid.row(q, frame.key_end());
                work.spend(steps)?;
                positions(&runs)
            }
            Node::Random { threshold, seed } => {
                work.list(frame.key_end())?;
                work.spend(2 * frame.kv_len as usize)?;
                positions(&random_row(q, frame.key_end(), *threshold, *seed))
            }
            Node::Dense(array, slice) => meet(array.row(*slice, i), &frame.slots()),
            Node::Not(_) | Node::And(_) | Node::Or(_) | Node::Minus(_) => self.row_by_cells(frame, i, work)?,
        })
    }

    /// Returns the keys that query row `i` may read. `other` is a set of keys that the caller keeps in memory
    /// meanwhile; during the call, its size counts towards the memory limit of `work`.
    fn row_beside(&self, other: &Runs, frame: &Frame, i: i64, work: &Work) -> Result<Runs> {
        let space = work.space();
        work.keep(other.len())?;
        let out = self.row(frame, i, work);
        work.reset(space);
        out
    }

    /// Returns the keys that query row `i` may read. Tests each key separately.
    fn row_by_cells(&self, frame: &Frame, i: i64, work: &Work) -> Result<Runs> {
        work.list(frame.kv_len)?;
        let mut out = Runs::new();
        for j in (0..frame.kv_len).filter(|&j| self.allowed(frame, i, j)) {
            match out.last_mut() {
                Some(last) if last.1 == j => last.1 = j + 1,
                _ => out.push((j, j + 1)),
            }
        }
        Ok(out)
    }
}

/// Returns the key positions below `end` that the query at position `q` may read in the elementary mask (atom)
/// `random`.
fn random_row(q: i64, end: i64, threshold: u64, seed: u64) -> Runs {
    let mut out = Runs::new();
    for group in 0..(end + 3) / 4 {
        let words = philox::cells(q, group, seed);
        for (at, word) in words.iter().enumerate() {
            let k = group * 4 + at as i64;
            if u64::from(*word) < threshold && k < end {
                match out.last_mut() {
                    Some(last) if last.1 == k => last.1 = k + 1,
                    _ => out.push((k, k + 1)),
                }
            }
        }
    }
    out
}
