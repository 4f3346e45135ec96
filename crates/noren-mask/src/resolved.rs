//! [`ResolvedAtom`]: the cells of an atom in the form that planning uses.

use crate::basis::Value;
use crate::bounds::Bounds;
use crate::frame::Frame;
use crate::interval::IntervalSet;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// An atom for one batch row and head, with its facts: the positions that each query position reads.
///
/// Positions are those of [`Pair`](crate::atom::Pair). The library maps them to rows and keys, also for ring buffers.
/// Equal values must allow the same cells, because equal patterns share a plan.
pub trait ResolvedAtom: Value {
    /// Calls `emit(start, end)` for runs of positions that the query at position `q` reads. These must be exactly the
    /// positions that [`Atom::allows`](crate::atom::Atom::allows) allows. Positions outside of `keys` are ignored. Runs
    /// may have any order and may overlap.
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64));

    /// Returns the positions of `keys` that at least one query reads, and those that every query reads. `queries` is
    /// not empty.
    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        let _ = (queries, keys);
        Reach::Unknown
    }

    /// Returns the first position after `q` whose query may read other keys than the query at `q`, or `i64::MAX` if
    /// there is none.
    fn next_change(&self, q: i64) -> i64 {
        q.saturating_add(1)
    }

    /// Returns whether rows change in blocks (see [`next_change`](Self::next_change)). Tiles should end at the borders
    /// of blocks.
    fn has_blocks(&self) -> bool {
        false
    }

    /// Returns the bounds of the queries at these positions, which ascend and have gaps. For `None`, planning takes the
    /// rows one by one if they change in blocks, and otherwise the bounds of their enclosing range.
    fn bounds_of(&self, queries: &[i64], keys: Range<i64>) -> Option<Reach> {
        let _ = (queries, keys);
        None
    }

    /// Returns the number of runs of a row, if [`bounds`](Self::bounds) takes rows one by one and may have many runs.
    /// Planning subtracts the runs from its budget.
    fn runs_per_row(&self) -> u64 {
        1
    }

    /// Returns the number to which the time of [`row`](Self::row) is proportional.
    fn row_work(&self) -> RowWork {
        RowWork::Runs
    }
}

/// Bounds of some rows, as positions of keys in any order. Bounds that are not exact cost time. Wrong bounds make a
/// wrong plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Unknown bounds: a row may read any key, and no key is known to be read by every row.
    Unknown,
    /// Bounds that planning computes exactly, row by row, or block by block if the rows of a block are equal.
    ByRows,
    /// The bounds as runs of positions.
    Keys {
        /// All positions that at least one row reads; may contain more.
        some: Vec<Range<i64>>,
        /// Positions that every row reads; may omit some.
        every: Vec<Range<i64>>,
    },
}

/// The number to which the time of [`ResolvedAtom::row`] is proportional. Planning evaluates the parts with the
/// smallest number first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RowWork {
    /// Constant: a row is a few runs of keys.
    Runs,
    /// The number of runs of a row, which may be as large as the number of keys.
    ManyRuns,
    /// The number of keys in the range `keys` that is passed to [`ResolvedAtom::row`].
    Keys,
}

/// A shared resolved atom, compared by value.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedRef(pub(crate) Arc<dyn ResolvedAtom>);

impl PartialEq for ResolvedRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.equals(other.0.as_any())
    }
}

impl Eq for ResolvedRef {}

impl Hash for ResolvedRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_any().type_id().hash(state);
        self.0.hash_to(state);
    }
}

impl ResolvedRef {
    /// Calls `emit` with the keys of query row `row` within `keys`, as indices.
    pub(crate) fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32)) {
        let q = frame.query(row);
        frame.pieces(keys, &mut |first, last, shift| {
            let piece = i64::from(first) + shift..i64::from(last) + shift;
            let inside = piece.clone();
            self.0.row(q, piece, &mut |start, end| emit_run(start..end, &inside, shift, emit));
        });
    }

    /// Returns the bounds of `rows`, or `None` if the rows must be taken one by one.
    pub(crate) fn bounds(&self, frame: &Frame, rows: Range<u32>) -> Option<Bounds> {
        let queries = frame.query(rows.start)..frame.query(rows.end);
        by_piece(frame, |keys| self.0.bounds(queries.clone(), keys))
    }

    /// Returns the bounds of rows with gaps, or `None` if the atom has no such bounds.
    pub(crate) fn bounds_of(&self, frame: &Frame, rows: impl Iterator<Item = u32>) -> Option<Bounds> {
        let queries: SmallVec<[i64; 64]> = rows.map(|row| frame.query(row)).collect();
        by_piece(frame, |keys| self.0.bounds_of(&queries, keys).unwrap_or(Reach::ByRows))
    }

    /// Returns the first position after `q` whose query may read other keys than the query at position `q`.
    pub(crate) fn next_change(&self, q: i64) -> i64 {
        self.0.next_change(q)
    }

    pub(crate) fn has_blocks(&self) -> bool {
        self.0.has_blocks()
    }

    /// Returns the estimated number of steps to compute the bounds of `rows`. The estimate assumes that all blocks of
    /// rows are as long as the first block.
    pub(crate) fn bounds_cost(&self, frame: &Frame, rows: &Range<u32>) -> u64 {
        let first = frame.query(rows.start);
        let block = self.0.next_change(first).saturating_sub(first).max(1) as u64;
        match self.0.runs_per_row() {
            1 => 0,
            runs => (rows.len() as u64 / block + 1).saturating_mul(runs),
        }
    }

    pub(crate) fn row_work(&self) -> RowWork {
        self.0.row_work()
    }
}

type Runs = SmallVec<[Range<u32>; 8]>;

/// Returns the bounds over all keys. `reach` returns the bounds over one run of consecutive positions. Returns `None`
/// if `reach` requires bounds row by row for at least one run.
fn by_piece(frame: &Frame, reach: impl Fn(Range<i64>) -> Reach) -> Option<Bounds> {
    let (mut upper, mut lower) = (Runs::new(), Runs::new());
    let mut by_rows = false;
    frame.pieces((0, frame.kv_len), &mut |first, last, shift| {
        if by_rows {
            return;
        }
        let piece = i64::from(first) + shift..i64::from(last) + shift;
        match reach(piece.clone()) {
            Reach::Unknown => upper.push(first..last),
            Reach::ByRows => by_rows = true,
            Reach::Keys { some, every } => {
                let each = |runs: Vec<Range<i64>>, to: &mut Runs| {
                    runs.into_iter().for_each(|run| emit_run(run, &piece, shift, &mut |a, z| to.push(a..z)));
                };
                each(some, &mut upper);
                each(every, &mut lower);
            }
        }
    });
    let set = |runs: Runs| runs.into_iter().collect::<IntervalSet>();
    (!by_rows).then(|| Bounds { upper: set(upper), lower: set(lower) })
}

/// Calls `emit` with the intersection of `run` and `piece`, as indices: index = position - `shift`.
fn emit_run(run: Range<i64>, piece: &Range<i64>, shift: i64, emit: &mut dyn FnMut(u32, u32)) {
    let (start, end) = (run.start.max(piece.start), run.end.min(piece.end));
    if start < end {
        emit((start - shift) as u32, (end - shift) as u32);
    }
}

/// An atom of a pattern that decides each cell separately, by index. The atom gives no runs and no bounds.
pub(crate) trait ByCell: Value {
    /// Calls `emit` with the keys of query row `row` within `keys`.
    fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32));
}

/// A shared [`ByCell`], compared by value.
#[derive(Clone, Debug)]
pub(crate) struct ByCellRef(pub(crate) Arc<dyn ByCell>);

impl PartialEq for ByCellRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.equals(other.0.as_any())
    }
}

impl Eq for ByCellRef {}

impl Hash for ByCellRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_any().type_id().hash(state);
        self.0.hash_to(state);
    }
}
