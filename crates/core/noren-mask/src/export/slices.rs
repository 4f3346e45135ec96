//! [`Slice`]: a rectangle or trapezoid of allowed cells, as in the attention slices of MagiAttention. The slices of a
//! plan contain each allowed cell exactly once.

use super::Runs;
use crate::plan::Plan;

/// The shape of a [`Slice`]: how the keys that a query row reads change from row to row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SliceKind {
    /// Every query row of the slice reads all keys of the slice.
    Full = 0,
    /// The last query row of the slice reads all keys of the slice. Each other row reads one key less than the row
    /// after it, at the end of the range.
    Causal = 1,
    /// The first query row of the slice reads all keys of the slice. Each other row reads one key less than the row
    /// before it, at the beginning of the range.
    InverseCausal = 2,
    /// A band: the keys of each query row begin and end one key later than the keys of the row before.
    BiCausal = 3,
}

/// A range of query rows, a range of keys, and the shape of the allowed cells between them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// Query rows `[start, end)`.
    pub rows: [u32; 2],
    /// Keys `[start, end)`.
    pub keys: [u32; 2],
    /// The shape of the allowed cells.
    pub kind: SliceKind,
}

/// A [`Slice`] that is not finished, because the next query row may extend it.
struct Open {
    first: u32,
    last: [u32; 2],
    start: u32,
    step: Option<[u32; 2]>,
}

impl Open {
    fn close(self, end: u32) -> Slice {
        let kind = match self.step {
            None | Some([0, 0]) => SliceKind::Full,
            Some([0, _]) => SliceKind::Causal,
            Some([_, 0]) => SliceKind::InverseCausal,
            Some(_) => SliceKind::BiCausal,
        };
        Slice { rows: [self.first, end], keys: [self.start, self.last[1]], kind }
    }

    /// Extends the slice by the next query row if `run`, the keys of that row, fits; returns whether it fits. The start
    /// and the end of `run` must each be 0 or 1 keys after those of the row before, with the same two steps as in all
    /// earlier rows.
    fn takes(&mut self, run: [u32; 2]) -> bool {
        let steps = [run[0].wrapping_sub(self.last[0]), run[1].wrapping_sub(self.last[1])];
        let goes_on = steps.iter().all(|step| *step <= 1) && self.step.is_none_or(|step| step == steps);
        if goes_on {
            (self.step, self.last) = (Some(steps), run);
        }
        goes_on
    }
}

impl Plan {
    /// Returns the allowed cells of pattern `pattern` (the set of cells of a batch row and head) as slices (rectangles
    /// and trapezoids of cells). Each allowed cell is in exactly one slice. The slices are built greedily from the
    /// first query row on, so a smaller number of slices may be possible.
    ///
    /// ```
    /// use noren_mask::{Facts, Shape, SliceKind, atoms::*};
    /// let plan = causal().bind(&Shape::square(1 << 12), &Facts::new())?.plan();
    /// let slices = plan.slices(0);
    /// assert_eq!((slices.len(), slices[0].rows, slices[0].kind), (1, [0, 4096], SliceKind::Causal));
    /// # Ok::<(), noren_mask::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the plan has no pattern with this index.
    pub fn slices(&self, pattern: usize) -> Vec<Slice> {
        self.row_runs(pattern).slices()
    }
}

impl Runs {
    /// Returns the allowed cells as slices (rectangles and trapezoids of cells). List `i` of these runs must have the
    /// keys that query row `i` reads. Each allowed cell is in exactly one slice. The slices are built greedily from the
    /// first query row on, so a smaller number of slices may be possible.
    ///
    /// ```
    /// use noren_mask::{Runs, SliceKind};
    /// let rows = Runs { indptr: vec![0, 1, 2], runs: vec![[0, 1], [0, 2]] };
    /// assert_eq!(rows.slices()[0].kind, SliceKind::Causal);
    /// ```
    pub fn slices(&self) -> Vec<Slice> {
        let mut out = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        for (row, runs) in self.lists().enumerate() {
            let mut next = Vec::with_capacity(runs.len());
            let mut before = std::mem::take(&mut open).into_iter().peekable();
            for run in runs {
                while let Some(gone) = before.next_if(|slice| slice.last[1] < run[0]) {
                    out.push(gone.close(row as u32));
                }
                let mut slice = before.next_if(|slice| slice.last[0] <= run[1]);
                if slice.as_mut().is_some_and(|slice| slice.takes(*run)) {
                    next.extend(slice);
                } else {
                    out.extend(slice.map(|slice| slice.close(row as u32)));
                    next.push(Open { first: row as u32, last: *run, start: run[0], step: None });
                }
            }
            out.extend(before.map(|slice| slice.close(row as u32)));
            open = next;
        }
        let end = self.indptr.len() as u32 - 1;
        out.extend(open.into_iter().map(|slice| slice.close(end)));
        out
    }
}
