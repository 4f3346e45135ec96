//! [`ResolvedAtom`]: the cells of an atom in the form that planning asks.

use crate::basis::Value;
use crate::bounds::Bounds;
use crate::frame::Frame;
use crate::interval::IntervalSet;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// An atom for one batch row and head, with its facts looked up: which positions each query position reads.
///
/// Positions are those of [`Pair`](crate::atom::Pair): the library maps them to rows and keys, ring buffers included. Two values that are
/// equal must allow the same cells; patterns that are equal share a plan.
pub trait ResolvedAtom: Value {
    /// Calls `emit(start, end)` for runs of positions that the query at position `q` reads, exactly those that
    /// [`Atom::allows`](crate::atom::Atom::allows) allows. Only what lies in `keys` is used. Runs come in any order and may overlap.
    fn row(&self, q: i64, keys: Range<i64>, emit: &mut dyn FnMut(i64, i64));

    /// Which positions of `keys` some query and which every query at the positions `queries`, which are not empty, reads.
    fn bounds(&self, queries: Range<i64>, keys: Range<i64>) -> Reach {
        let _ = (queries, keys);
        Reach::Unknown
    }

    /// The first position after `q` whose query may read other keys than the one at `q`; `i64::MAX` when there is none.
    fn next_change(&self, q: i64) -> i64 {
        q.saturating_add(1)
    }

    /// Whether rows change in blocks ([`next_change`](Self::next_change)), at whose borders tiles should end.
    fn has_blocks(&self) -> bool {
        false
    }

    /// Bounds of the queries at some positions, ascending and with gaps. `None` takes them one by one where rows change in blocks,
    /// and else those of the range that encloses them.
    fn bounds_of(&self, queries: &[i64], keys: Range<i64>) -> Option<Reach> {
        let _ = (queries, keys);
        None
    }

    /// The number of runs of a row, where [`bounds`](Self::bounds) takes rows one by one and the runs may be many: planning counts
    /// them against its budget.
    fn runs_per_row(&self) -> u64 {
        1
    }

    /// What the time of [`row`](Self::row) grows with.
    fn row_work(&self) -> RowWork {
        RowWork::Runs
    }
}

/// Bounds of some rows, as positions of keys in any order. Inexact bounds cost time; wrong ones make a wrong plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Some row may read every key, and no key is read by every row.
    Unknown,
    /// The union and the intersection of the rows, looked at one by one, blocks of equal rows once.
    ByRows,
    /// These runs.
    Keys {
        /// At least what any of the rows reads.
        some: Vec<Range<i64>>,
        /// At most what each of the rows reads.
        every: Vec<Range<i64>>,
    },
}

/// The number that the time of [`ResolvedAtom::row`] is proportional to. Planning evaluates the parts with the smallest one first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RowWork {
    /// A few runs of keys.
    Runs,
    /// Many runs of keys, as many as the sequence is long.
    ManyRuns,
    /// Every key of the range that is asked for.
    Keys,
}

/// A resolved atom that is shared; it compares by value.
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
    /// The keys of query row `row` within `keys`, as indices.
    pub(crate) fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32)) {
        let q = frame.query(row);
        frame.pieces(keys, &mut |first, last, shift| {
            let piece = i64::from(first) + shift..i64::from(last) + shift;
            let inside = piece.clone();
            self.0.row(q, piece, &mut |start, end| emit_run(start..end, &inside, shift, emit));
        });
    }

    /// Bounds of `rows`; `None` when they are those of the rows one by one.
    pub(crate) fn bounds(&self, frame: &Frame, rows: Range<u32>) -> Option<Bounds> {
        let queries = frame.query(rows.start)..frame.query(rows.end);
        by_piece(frame, |keys| self.0.bounds(queries.clone(), keys))
    }

    /// Bounds of rows with gaps between them; `None` when the atom has none for these.
    pub(crate) fn bounds_of(&self, frame: &Frame, rows: impl Iterator<Item = u32>) -> Option<Bounds> {
        let queries: SmallVec<[i64; 64]> = rows.map(|row| frame.query(row)).collect();
        by_piece(frame, |keys| self.0.bounds_of(&queries, keys).unwrap_or(Reach::ByRows))
    }

    /// The position from which rows may differ from the one at `q`.
    pub(crate) fn next_change(&self, q: i64) -> i64 {
        self.0.next_change(q)
    }

    pub(crate) fn has_blocks(&self) -> bool {
        self.0.has_blocks()
    }

    /// Steps that bounds of some rows take, by the length of their first block.
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

/// Bounds over all keys from those over runs of neighbouring positions; `None` when some are those of the rows one by one.
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

/// Calls `emit` with the part of `run` inside `piece`, whose positions are indices plus `shift`.
fn emit_run(run: Range<i64>, piece: &Range<i64>, shift: i64, emit: &mut dyn FnMut(u32, u32)) {
    let (start, end) = (run.start.max(piece.start), run.end.min(piece.end));
    if start < end {
        emit((start - shift) as u32, (end - shift) as u32);
    }
}

/// An atom of a pattern without runs or bounds: it gives its cells one by one, by indices.
pub(crate) trait ByCell: Value {
    /// The keys of query row `row` within `keys`.
    fn row(&self, frame: &Frame, row: u32, keys: (u32, u32), emit: &mut dyn FnMut(u32, u32));
}

/// A shared [`ByCell`]; it compares by value.
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
