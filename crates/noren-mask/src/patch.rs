//! Query rows of a grid by patches: the rows of a tile are neighbors in every dimension, and read about the same keys.
//!
//! Ninety-six queries of one line of a grid read windows that reach above and below the line: fourteen times the keys that
//! each of them may read, where windows are 7 by 7. Twelve queries of a patch of 3 by 4 read less than twice as many.

use crate::frame::Frame;
use crate::interval::IntervalSet;
use crate::leaf::Neighborhood;
use crate::order::Order;
use crate::pattern::Pattern;

/// Orders hold a run for each line of a patch: grids of more positions are planned in place.
const MOST_ROWS: u32 = 1 << 24;

/// Grid lengths and the lengths of a patch, slowest dimension first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patches {
    pub(crate) grid: [i64; 3],
    pub(crate) patch: [i64; 3],
}

impl Patches {
    /// Patches for the first neighborhood of the pattern in more than one dimension: as many rows as fit in `block_q`, while
    /// all keys that they read together are at most twice those of one row.
    pub(crate) fn of(pattern: &Pattern, frame: &Frame, block_q: u32) -> Option<Patches> {
        match pattern {
            Pattern::Neighborhood(grid) if frame.q_len <= MOST_ROWS => Patches::of_grid(grid, block_q),
            Pattern::And(parts) | Pattern::Or(parts) => parts.iter().find_map(|part| Patches::of(part, frame, block_q)),
            _ => None,
        }
    }

    fn of_grid(grid: &Neighborhood, block_q: u32) -> Option<Patches> {
        let dims = grid.dims();
        if dims.iter().any(|[.., dilation]| *dilation != 1)
            || dims.iter().filter(|[len, size, _]| *len > 1 && *size > 1).count() < 2
        {
            return None;
        }
        let window: i64 = dims.iter().map(|[_, size, _]| size).product();
        // a little below twice, for rows at the borders of a sequence that are fewer
        let limit = window * 31 / 16;
        let most = |dim: usize| dims[dim][0].min(i64::from(block_q)).min(64);
        // rows, keys that they read negated, and the patch
        let mut best: Option<(i64, i64, [i64; 3])> = None;
        for z in 1..=most(0) {
            for y in 1..=most(1).min(i64::from(block_q) / z) {
                let lines = (z + dims[0][1] - 1) * (y + dims[1][1] - 1);
                let x = (limit / lines - dims[2][1] + 1).min(most(2)).min(i64::from(block_q) / (z * y));
                if x > 0 {
                    best = best.max(Some((z * y * x, -lines * (x + dims[2][1] - 1), [z, y, x])));
                }
            }
        }
        best.filter(|best| best.0 > 1).map(|best| Patches { grid: dims.map(|dim| dim[0]), patch: best.2 })
    }

    /// The query rows patch by patch, each a group; rows outside the grid come first and last.
    pub(crate) fn order(&self, frame: &Frame) -> Order {
        let Patches { grid: [d0, d1, d2], patch: [p0, p1, p2] } = *self;
        let row = |position: i64| (position - frame.offset).clamp(0, i64::from(frame.q_len)) as u32;
        let cells = d0 * d1 * d2;
        let (first, end) = (frame.offset.max(0), (frame.offset + i64::from(frame.q_len)).min(cells));
        let mut groups: Vec<IntervalSet> = vec![(0..row(0)).into()];
        if first < end {
            let planes = first / (d1 * d2)..(end - 1) / (d1 * d2) + 1;
            for z in (planes.start / p0 * p0..planes.end).step_by(p0 as usize) {
                for y in (0..d1).step_by(p1 as usize) {
                    for x in (0..d2).step_by(p2 as usize) {
                        let mut rows = IntervalSet::new();
                        for line in
                            (z..d0.min(z + p0)).flat_map(|z| (y..d1.min(y + p1)).map(move |y| (z * d1 + y) * d2))
                        {
                            rows.push(row(line + x), row(line + d2.min(x + p2)));
                        }
                        groups.push(rows);
                    }
                }
            }
        }
        groups.push((row(cells)..frame.q_len).into());
        Order::of_groups(&groups)
    }
}
