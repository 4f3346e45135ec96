//! The order of query rows by patches of a grid, for `neighborhood(..)`. A patch is a small rectangle of grid tokens.
//! The rows of a patch are neighbors in every dimension of the grid, so they read mostly the same keys.
//!
//! Example: each query reads a window of 7 x 7 tokens (49 keys). A tile of 96 queries in one grid line reads 14 times
//! as many keys. A tile of 12 queries in a patch of 3 x 4 tokens reads less than twice as many.

use crate::mask::pattern::Pattern;
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use crate::sets::leaf::Neighborhood;
use crate::sets::order::Order;

/// The maximum number of query rows that are ordered by patches. The limit exists because an order stores one run for
/// each grid line of each patch.
const MOST_ROWS: u32 = 1 << 24;

/// The lengths of a grid of tokens, and the lengths of the patches (small rectangles) into which the grid is divided.
/// Neighbors in the last dimension have consecutive positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patches {
    pub(crate) grid: [i64; 3],
    pub(crate) patch: [i64; 3],
}

impl Patches {
    /// Returns the patches (small rectangles of a grid) for the query rows of the first usable `neighborhood(..)` in
    /// the operands of `&` and `|`. A neighborhood is usable if it has no dilation and its window has two or three
    /// dimensions. Chooses the largest patch that has at most `block_q` rows and whose rows together read fewer than
    /// twice as many keys as one row.
    ///
    /// Returns `None` if the pattern has no usable neighborhood, or if the frame has more than `MOST_ROWS` query rows.
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
        // less than twice, because patches at the borders of a sequence have fewer rows
        let limit = window * 31 / 16;
        let most = |dim: usize| dims[dim][0].min(i64::from(block_q)).min(64);
        // number of rows, negated number of keys that they read, and the patch
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

    /// Returns the order of query rows with one group for each patch. The rows outside of the grid are the first and
    /// the last group.
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
