//! The elementary mask `neighborhood` in the form that planning evaluates: windows over grids.

use crate::sets::bounds::Bounds;
use crate::sets::frame::Frame;
use crate::sets::interval::IntervalSet;
use std::ops::Range;

/// Windows over a row-major grid of one to three dimensions. At an edge of the grid, a window is shifted inward.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Neighborhood {
    /// `[length, window, dilation]` of each of three dimensions. Neighbors in the last dimension have consecutive
    /// positions. If the grid has fewer dimensions, the values of the missing dimensions are 1 and come first.
    dims: [[i64; 3]; 3],
    /// The first position after the last key of the sequence. The grid may extend beyond this position.
    end: i64,
}

impl Neighborhood {
    pub(crate) fn new(grid: &[usize], size: &[usize], dilation: &[usize], end: i64) -> Self {
        let mut dims = [[1; 3]; 3];
        for (dim, i) in dims[3 - grid.len()..].iter_mut().zip(0..) {
            *dim = [grid[i] as i64, size[i] as i64, dilation[i] as i64];
        }
        Neighborhood { dims, end }
    }

    /// Returns (first coordinate, number of coordinates) of the window around coordinate `x` in dimension `dim`.
    /// Neighboring coordinates of the window are `dilation` apart.
    fn window(&self, dim: usize, x: i64) -> (i64, i64) {
        let [len, size, dilation] = self.dims[dim];
        let residue = x % dilation;
        let cells = (len - residue + dilation - 1) / dilation;
        let first = (x / dilation - size / 2).min(cells - size).max(0);
        (residue + first * dilation, size.min(cells))
    }

    /// Returns the number of grid cells.
    fn cells(&self) -> i64 {
        self.dims.iter().map(|dim| dim[0]).product()
    }

    /// Calls `line` for each grid line with keys in the window of the query at position `q`, in ascending order. The
    /// argument is the first position of the line.
    fn lines(&self, q: i64, mut line: impl FnMut(i64)) {
        let [[.., step0], [d1, _, step1], [d2, ..]] = self.dims;
        let (z0, n0) = self.window(0, q / (d1 * d2));
        let (z1, n1) = self.window(1, q / d2 % d1);
        for plane in (0..n0).map(|i| (z0 + i * step0) * d1 * d2).take_while(|plane| *plane < self.end) {
            let lines = (0..n1).map(|j| plane + (z1 + j * step1) * d2);
            lines.take_while(|first| *first < self.end).for_each(&mut line);
        }
    }

    pub(crate) fn row(&self, frame: &Frame, q: i64, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        let [width, _, step] = self.dims[2];
        if step == 1 || !(0..self.cells()).contains(&q) {
            return self.lines_of(frame, q, keys, emit);
        }
        let (first, count) = self.window(2, q % width);
        self.lines(q, |line| {
            (0..count).map(|i| line + first + i * step).for_each(|at| frame.emit(at, at + 1, keys, emit));
        });
    }

    /// Compares the windows of the query at position `q` and of the next queries in the same grid line. Returns (count,
    /// moves) for the next `count` queries, from `q` on. If `moves` is true, the window moves by one column from query
    /// to query; if false, all these queries have the same window columns. Returns `None` if `q` is outside the grid,
    /// or if the dilation along grid lines is not 1.
    pub(crate) fn same_window(&self, q: i64) -> Option<(i64, bool)> {
        let [width, size, step] = self.dims[2];
        if !(0..self.cells()).contains(&q) {
            return None;
        }
        let (x, size) = (q % width, size.min(width));
        // the columns in which the window moves
        let (from, to) = (size / 2, width - size + size / 2 + 1);
        match () {
            () if step != 1 => None,
            () if x < from => Some((from - x, false)),
            () if x < to => Some((to - x, true)),
            () => Some((width - x, false)),
        }
    }

    /// Calls `line` for each grid line that the query at position `q` reads. The arguments are (first position of the
    /// line, first column that the query reads, number of columns that the query reads, length of the line). The
    /// dilation along lines must be 1.
    pub(crate) fn window_lines(&self, q: i64, mut line: impl FnMut(i64, i64, i64, i64)) {
        let width = self.dims[2][0];
        let (first, count) = self.window(2, q % width);
        self.lines(q, |at| line(at, first, count, width));
    }

    /// Returns `[length, window, dilation]` of each of the three dimensions. Neighbors in the last dimension have
    /// consecutive positions.
    pub(crate) fn dims(&self) -> [[i64; 3]; 3] {
        self.dims
    }

    /// Returns the dilation in the last dimension: the distance between neighboring cells of a window along a grid
    /// line.
    pub(crate) fn step(&self) -> i64 {
        self.dims[2][2]
    }

    /// Returns a number that divides every distance from a query to a key that it reads. Returns 0 if each query reads
    /// only itself.
    pub(crate) fn modulus(&self) -> u64 {
        let [_, [d1, ..], [d2, ..]] = self.dims;
        let sizes = [d1 * d2, d2, 1];
        // no distance is a multiple of a product that overflows
        let steps = self.dims.iter().zip(sizes).filter(|(dim, _)| dim[1] > 1);
        steps.fold(0, |all, (dim, size)| gcd(all, dim[2].checked_mul(size).unwrap_or(0) as u64))
    }

    /// Calls `emit(start, end)` with the keys that the query at position `q` reads: one or more runs of key indices per
    /// grid line, cut to `keys.0..keys.1`. If the window is dilated along the line, a run also contains the keys in the
    /// gaps.
    pub(crate) fn lines_of(&self, frame: &Frame, q: i64, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        if (0..self.cells()).contains(&q) {
            let [width, _, step] = self.dims[2];
            let (first, count) = self.window(2, q % width);
            self.lines(q, |line| {
                frame.emit(line + first, line + first + (count - 1) * step + 1, keys, emit);
            });
        }
    }

    /// Returns bounds on the keys that the query rows `rows` read. The windows of queries in one grid line differ only
    /// in the last dimension, so the windows of the first and the last query give the bounds of the line. If windows
    /// are dilated along the line, the upper bound also contains the keys in the gaps, and the lower bound is empty.
    pub(crate) fn bounds(&self, frame: &Frame, rows: Range<u32>) -> Bounds {
        let [width, _, step] = self.dims[2];
        let mut bounds: Option<Bounds> = None;
        let (mut q, end) = (frame.query(rows.start), frame.query(rows.end));
        if q < 0 || end > self.cells() {
            // some rows are outside the grid and read no key
            bounds = Some(Bounds::exact(IntervalSet::new()));
            q = q.max(0);
        }
        while q < end.min(self.cells()) {
            let last = (q - q % width + width).min(end) - 1;
            let ((a, count), (z, _)) = (self.window(2, q % width), self.window(2, last % width));
            let reach = (count - 1) * step + 1;
            let (low, high) = (a.min(z) - step + 1, a.max(z) + reach + step - 1);
            let (mut any, mut all) = (Vec::new(), Vec::new());
            self.lines(q, |line| {
                frame.emit(line + low.max(0), line + high.min(width), (0, frame.kv_len), &mut |a, z| any.push(a..z));
                if step == 1 {
                    frame.emit(line + z, line + a + count, (0, frame.kv_len), &mut |a, z| all.push(a..z));
                }
            });
            let found = Bounds { upper: any.into_iter().collect(), lower: all.into_iter().collect() };
            bounds = Some(bounds.map_or_else(|| found.clone(), |before| before.any_of(&found)));
            q = last + 1;
        }
        bounds.unwrap_or_else(|| Bounds::exact(IntervalSet::new()))
    }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
