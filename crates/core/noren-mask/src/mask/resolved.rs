//! [`ResolvedAtom`]: an atom for one batch row and head, in the form that planning uses. This form gives ranges of keys
//! instead of single cells.

use crate::mask::basis::{ByValue, Value};
use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use smallvec::SmallVec;
use std::ops::Range;

/// An atom for one batch row and head that has already read its facts. The atom gives planning the positions of the
/// keys that each query reads.
///
/// All positions have the meaning of the positions in [`Pair`](crate::atom::Pair). The library converts positions to
/// indices of rows and keys, also for ring buffers. Equal values must allow the same cells, because equal patterns
/// share a plan.
pub trait ResolvedAtom: Value {
    /// Calls `emit(start, end)` for each range `start..end` of key positions that the query at position `q` reads.
    /// Within `keys`, the ranges must contain exactly the positions that [`Atom::allows`](crate::atom::Atom::allows)
    /// allows. Positions outside of `keys` are ignored. The ranges may have any order and may overlap.
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64));

    /// Returns bounds on the keys that the queries at the positions `queries` read: the positions in `keys` that at
    /// least one of the queries reads, and the positions that every one of them reads. `queries` is not empty.
    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        let _ = (queries, keys);
        Reach::Unknown
    }

    /// Returns the next position after `q` at which the query may read other keys than the query at `q`, or `i64::MAX`
    /// if there is no such position.
    fn next_change(&self, q: i64) -> i64 {
        q.saturating_add(1)
    }

    /// Returns whether consecutive queries often read the same keys, as the queries of one document do. If true,
    /// planning ends tiles at the positions that [`next_change`](Self::next_change) returns, where the keys change.
    fn has_blocks(&self) -> bool {
        false
    }

    /// Returns bounds on the keys that the queries at the positions `queries` read, as [`bounds`](Self::bounds) does.
    /// The positions are ascending but not consecutive. After `None`, planning computes the rows one by one if
    /// [`has_blocks`](Self::has_blocks) is true; otherwise it uses the bounds of the smallest range that contains the
    /// queries.
    fn bounds_of(&self, queries: &[i64], keys: Range<i64>) -> Option<Reach> {
        let _ = (queries, keys);
        None
    }

    /// Returns an estimate of the number of ranges that [`row`](Self::row) emits for one query. The estimate is more
    /// than 1 only for an atom with many ranges per row whose [`bounds`](Self::bounds) return [`Reach::ByRows`], so
    /// that planning must evaluate every row. Planning subtracts this work from its budget.
    fn runs_per_row(&self) -> u64 {
        1
    }

    /// Returns the quantity to which the time of [`row`](Self::row) is proportional.
    fn row_work(&self) -> RowWork {
        RowWork::Runs
    }
}

/// Bounds on the keys that a group of queries reads, as positions of keys: `some` has every key that at least one of the
/// queries reads, and `every` has only keys that all of them read. Too many keys in `some`, or too few in `every`, only
/// make planning slower. Too few keys in `some`, or too many in `every`, make the plan wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Unknown bounds: a query may read any key, and no key is known to be read by every query.
    Unknown,
    /// No bounds. Planning computes the bounds itself with [`ResolvedAtom::row`], once for each group of consecutive
    /// queries that read the same keys.
    ByRows,
    /// Bounds as ranges of key positions. The ranges may have any order.
    Keys {
        /// Ranges that contain every key position that at least one of the queries reads. They may contain other positions.
        some: Vec<Range<i64>>,
        /// Ranges of key positions that all queries read. Positions that all queries read may be missing from the
        /// ranges.
        every: Vec<Range<i64>>,
    },
}

/// The quantity to which the time of [`ResolvedAtom::row`] is proportional. A slow atom is evaluated after other atoms,
/// or for fewer keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RowWork {
    /// The time is constant, because each query reads only a few ranges of keys.
    Runs,
    /// The time of [`ResolvedAtom::row`] is proportional to the number of ranges of keys that a query reads, which may
    /// be as large as the number of keys.
    ManyRuns,
    /// The time of [`ResolvedAtom::row`] is proportional to the number of keys in its argument `keys`.
    Keys,
}

/// A reference to an atom in the form that planning uses. Two references are equal if their atoms are equal.
pub(crate) type ResolvedRef = ByValue<dyn ResolvedAtom>;

impl ResolvedRef {
    /// Calls `emit(start, end)` for ranges of key indices that query row `row` may read within `keys.0..keys.1`.
    pub(crate) fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32)) {
        let q = frame.query(row);
        frame.pieces(keys, &mut |first, last, shift| {
            let piece = i64::from(first) + shift..i64::from(last) + shift;
            let inside = piece.clone();
            self.0.row(q, piece, &mut |start, end| emit_run(start..end, &inside, shift, emit));
        });
    }

    /// Returns bounds on the keys that the query rows `rows` read, as key indices. Returns `None` if the atom gives no
    /// bounds; the caller then computes them from each row.
    pub(crate) fn bounds(&self, frame: &Frame, rows: Range<u32>) -> Option<Bounds> {
        let queries = frame.query(rows.start)..frame.query(rows.end);
        by_piece(frame, |keys| self.0.bounds(queries.clone(), keys))
    }

    /// Returns the bounds of query rows that need not be consecutive: the keys that at least one of the rows may read,
    /// and the keys that all of them may read. Returns `None` if the atom does not compute such bounds.
    pub(crate) fn bounds_of(&self, frame: &Frame, rows: impl Iterator<Item = u32>) -> Option<Bounds> {
        let queries: SmallVec<[i64; 64]> = rows.map(|row| frame.query(row)).collect();
        by_piece(frame, |keys| self.0.bounds_of(&queries, keys).unwrap_or(Reach::ByRows))
    }

    /// Returns an estimate of the steps that [`bounds`](Self::bounds) needs for `rows`, to subtract from the budget.
    /// The number of rows after which the keys change is determined for the first row only, and assumed for all other
    /// rows.
    pub(crate) fn bounds_cost(&self, frame: &Frame, rows: &Range<u32>) -> u64 {
        let first = frame.query(rows.start);
        let block = self.0.next_change(first).saturating_sub(first).max(1) as u64;
        match self.0.runs_per_row() {
            1 => 0,
            runs => (rows.len() as u64 / block + 1).saturating_mul(runs),
        }
    }
}

type Runs = SmallVec<[Range<u32>; 8]>;

/// Returns bounds over all keys, as key indices. The frame divides the keys into runs of consecutive positions, and
/// `reach(run)` returns the bounds within one run. Returns `None` if `reach` returns [`Reach::ByRows`] for a run.
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

/// Calls `emit(start, end)` with the intersection of `run` and `piece`, two ranges of positions. `start` and `end` are
/// key indices: a position minus `shift`. If the intersection is empty, `emit` is not called.
fn emit_run(run: Range<i64>, piece: &Range<i64>, shift: i64, emit: &mut dyn FnMut(u32, u32)) {
    let (start, end) = (run.start.max(piece.start), run.end.min(piece.end));
    if start < end {
        emit((start - shift) as u32, (end - shift) as u32);
    }
}

/// An atom that evaluates its function `allows` for one cell at a time. It computes no bounds.
pub(crate) trait ByCell: Value {
    /// Calls `emit(start, end)` for ranges of key indices that query row `row` may read within `keys.0..keys.1`.
    fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32));
}
