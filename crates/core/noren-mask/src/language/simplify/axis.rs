//! Simplification of atoms that depend on one number only: the distance `k - q`, the key, or the query. Each such atom
//! is a set of integers, so several atoms that depend on the same number can be joined into one set.

use crate::atoms;
use crate::mask::basis::{Axis, Line, Runs};
use crate::mask::{Mask, Node, Simplified};
use crate::sets::set::Positions;

/// The three numbers on which atoms can depend: the distance, the key and the query. Atoms that depend on the same
/// number are joined into one set. A canonical form contains the joined sets in this order.
pub(super) const AXES: [Axis; 3] = [Axis::Distance, Axis::Key, Axis::Query];

/// The operator that joins masks: `&` or `|`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Join {
    All,
    Any,
}

impl Join {
    pub(super) fn other(self) -> Self {
        if self == Join::All { Join::Any } else { Join::All }
    }

    pub(super) fn of(self, masks: Vec<Mask>) -> Mask {
        if self == Join::All { Mask::all(masks) } else { Mask::any(masks) }
    }

    /// Returns the mask that, as one operand, already determines the result of this operator: `none` for `&`, and
    /// `full` for `|`.
    pub(super) fn zero(self) -> Mask {
        Mask::new(if self == Join::All { Node::None } else { Node::Full })
    }
}

/// Functions of an [`Axis`] (distance, key or query): they join sets of its numbers, and write such a set as masks.
pub(super) trait Joined: Sized {
    fn join<'a>(self, join: Join, sets: impl IntoIterator<Item = &'a Runs>) -> Runs;
    fn write(self, runs: &Runs, join: Join) -> Vec<Mask>;
}

impl Joined for Axis {
    /// Returns the intersection (for `&`) or the union (for `|`) of `sets`.
    fn join<'a>(self, join: Join, sets: impl IntoIterator<Item = &'a Runs>) -> Runs {
        match join {
            Join::Any => Runs::of(sets.into_iter().flat_map(|set| set.as_slice().iter().copied())),
            Join::All => {
                let outside: Vec<Runs> = sets.into_iter().map(|set| self.complement(set)).collect();
                self.complement(&self.join(Join::Any, &outside))
            }
        }
    }

    /// Returns masks that, combined with the operator `join`, allow exactly the distances, keys or queries in `runs`.
    /// The list is empty if `join` is `&` and `runs` contains all values, or `join` is `|` and `runs` is empty.
    fn write(self, runs: &Runs, join: Join) -> Vec<Mask> {
        if runs.is_empty() {
            return if join == Join::All { vec![join.zero()] } else { Vec::new() };
        }
        if self.is_all(runs) {
            return if join == Join::Any { vec![join.zero()] } else { Vec::new() };
        }
        match self {
            Axis::Key => vec![atoms::keys(Positions::Spans(runs.spans()))],
            Axis::Query if runs.as_slice()[0].0 < 0 => {
                vec![!atoms::queries(Positions::Spans(self.complement(runs).spans()))]
            }
            Axis::Query => vec![atoms::queries(Positions::Spans(runs.spans()))],
            Axis::Distance => write_bands(runs.as_slice(), join),
        }
    }
}

/// Returns bands that, combined with the operator `join`, allow exactly the distances in `runs`. For `|`, the result
/// usually has one band per run. For `&`, the result has one band from the first to the last distance, and for each gap
/// between two runs the complement of a band.
fn write_bands(runs: &[(i64, i64)], join: Join) -> Vec<Mask> {
    let (first, last) = (runs[0], runs[runs.len() - 1]);
    let holes = runs.windows(2).map(|pair| (pair[0].1 + 1, pair[1].0 - 1));
    if join == Join::All {
        let covering = (first.0 != i64::MIN || last.1 != i64::MAX).then(|| band(first.0, last.1));
        return covering.into_iter().chain(holes.map(|(first, last)| !band(first, last))).collect();
    }
    if first.0 != i64::MIN || last.1 != i64::MAX {
        return runs.iter().map(|&(first, last)| band(first, last)).collect();
    }
    // Both ends are open: everything except the inner range, and the runs within that range.
    let inner = &runs[1..runs.len() - 1];
    inner.iter().map(|&(first, last)| band(first, last)).chain([!band(first.1 + 1, last.0 - 1)]).collect()
}

/// Returns the mask of the cells with `first <= k - q <= last`, as `causal`, `sliding` or `window`.
fn band(first: i64, last: i64) -> Mask {
    let left = (first != i64::MIN).then(|| -first);
    let right = (last != i64::MAX).then_some(last);
    match (left, right) {
        (None, Some(offset)) => atoms::causal_offset(offset),
        (Some(left), Some(0)) => atoms::sliding(left as usize + 1),
        _ => atoms::window(left, right),
    }
}

/// Returns (axis, set) if the cells of the mask depend on one number only: a distance, a key or a query. The set
/// contains the distances, keys or queries that the mask allows. The mask must be an atom or the complement of an atom,
/// for example `causal` or `!keys(0..4)`. Returns `None` for all other masks.
pub(super) fn read(mask: &Mask) -> Option<(Axis, Runs)> {
    match mask.node() {
        Node::Not(inner) => {
            let (axis, runs) = read_atom(inner)?;
            let outside = axis.complement(&runs);
            Some((axis, outside))
        }
        _ => read_atom(mask),
    }
}

fn read_atom(mask: &Mask) -> Option<(Axis, Runs)> {
    let atom = mask.atom()?;
    match atom.simplify() {
        // An atom that `bind` refuses has no set; this check is last, because it reads long lists.
        Simplified::Line(Line { axis, runs }) if atom.check().is_ok() => Some((axis, runs)),
        _ => None,
    }
}

/// Returns the complement of a mask: `!a` for `a`, and `a` for `!a`.
pub(super) fn complement(literal: &Mask) -> Mask {
    match literal.node() {
        Node::Not(inner) => inner.clone(),
        _ => !literal.clone(),
    }
}
