//! [`Slice`]: rectangles and trapezoids that cover the allowed cells once (MagiAttention's attention slices).

use super::Runs;
use crate::plan::Plan;

/// How the keys of a slice move from row to row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SliceKind {
    /// Every row reads all keys of the slice.
    Full = 0,
    /// The last row reads all, each row before it one key less at the end.
    Causal = 1,
    /// The first row reads all, each row after it one key less at the beginning.
    InverseCausal = 2,
    /// Both: a band.
    BiCausal = 3,
}

/// Query rows and keys, and which of the cells between them are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// Query rows `[start, end)`.
    pub rows: [u32; 2],
    /// Keys `[start, end)`.
    pub keys: [u32; 2],
    /// Which of them.
    pub kind: SliceKind,
}

/// A slice that may go on.
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

    /// Whether `run`, of the next row, goes on with it.
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
    /// The allowed cells of pattern `pattern` as slices, each cell in exactly one, greedily from the first row on.
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
    /// When there is no such pattern.
    pub fn slices(&self, pattern: usize) -> Vec<Slice> {
        self.row_runs(pattern).slices()
    }
}

impl Runs {
    /// The cells that the lists hold, row by row, as slices; each cell is in exactly one, greedily from the first row on.
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
