//! The atoms that carry tables of their own: trees, spans, levels, neighborhoods.

use crate::bounds::Bounds;
use crate::frame::Frame;
use crate::interval::IntervalSet;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Nodes at positions `start..start + len`; a node reads itself and its ancestors.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Tree {
    start: i64,
    parents: Vec<i64>,
    /// First node of the run `i, i - 1, ...` in which each is the parent of the next.
    run_start: Vec<u32>,
    /// Every parent comes before its children.
    ordered: bool,
}

impl Tree {
    pub(crate) fn new(parents: &[i64], start: u64) -> Self {
        let mut run_start: Vec<u32> = Vec::with_capacity(parents.len());
        for (i, &p) in parents.iter().enumerate() {
            run_start.push(if i > 0 && p == i as i64 - 1 { run_start[i - 1] } else { i as u32 });
        }
        let ordered = parents.iter().enumerate().all(|(i, &p)| p < i as i64);
        Tree { start: start as i64, parents: parents.to_vec(), run_start, ordered }
    }

    pub(crate) fn row(&self, frame: &Frame, q: i64, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        let mut node = q - self.start;
        if node >= self.parents.len() as i64 {
            return;
        }
        let lowest = if self.ordered && frame.runs.is_none() { i64::from(keys.0) } else { i64::MIN };
        while node >= 0 && self.start + node >= lowest {
            let first = self.run_start[node as usize];
            frame.emit(self.start + i64::from(first), self.start + node + 1, keys, emit);
            node = self.parents[first as usize];
        }
    }
}

impl Tree {
    /// Exact bounds of the rows at positions `queries`; `None` when a parent comes after its child.
    ///
    /// Rows of a tile share most ancestors, so all are walked up together, furthest node first: every ancestor is looked at
    /// once, whatever the number of rows below it.
    pub(crate) fn bounds(&self, frame: &Frame, queries: std::ops::Range<i64>) -> Option<Bounds> {
        if !self.ordered {
            return None;
        }
        let nodes = (queries.start - self.start).max(0)..(queries.end - self.start).min(self.parents.len() as i64);
        // a row outside the tree reads nothing, so no key is read by all
        let mut common = nodes.end - nodes.start == queries.end - queries.start;
        let mut heap: BinaryHeap<i64> = nodes.collect();
        let (mut upper, mut lower) = (Vec::new(), Vec::new());
        let emit = |first: i64, end: i64, out: &mut Vec<std::ops::Range<u32>>| {
            frame.emit(self.start + first, self.start + end, (0, frame.kv_len), &mut |a, z| out.push(a..z));
        };
        while let Some(node) = heap.pop() {
            let first = i64::from(self.run_start[node as usize]);
            emit(first, node + 1, &mut upper);
            let mut nearest = node;
            while let Some(&next) = heap.peek().filter(|next| **next >= first) {
                nearest = next;
                heap.pop();
            }
            if common && heap.is_empty() {
                emit(first, nearest + 1, &mut lower);
            }
            let parent = self.parents[first as usize];
            if parent >= 0 {
                heap.push(parent);
            } else {
                common = false;
            }
        }
        Some(Bounds { upper: upper.into_iter().collect(), lower: lower.into_iter().collect() })
    }
}

/// Position ranges, perhaps overlapping; a cell is allowed when one of them holds both.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Spans {
    /// `(start, end, furthest end so far)`, by start.
    list: Vec<(i64, i64, i64)>,
    /// Every start and end, ascending.
    borders: Vec<i64>,
}

impl Spans {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut list: Vec<(i64, i64, i64)> = ranges.into_iter().filter(|r| r.0 < r.1).map(|(a, z)| (a, z, z)).collect();
        list.sort_unstable();
        for i in 1..list.len() {
            list[i].2 = list[i].1.max(list[i - 1].2);
        }
        let mut borders: Vec<i64> = list.iter().flat_map(|s| [s.0, s.1]).collect();
        borders.sort_unstable();
        borders.dedup();
        Spans { list, borders }
    }

    pub(crate) fn row(&self, frame: &Frame, q: i64, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        let after = self.list.partition_point(|s| s.0 <= q);
        for &(start, end, _) in self.list[..after].iter().rev().take_while(|s| s.2 > q) {
            if q < end {
                frame.emit(start, end, keys, emit);
            }
        }
    }

    /// The first border after `q`.
    pub(crate) fn next_border(&self, q: i64) -> Option<i64> {
        self.borders.get(self.borders.partition_point(|&b| b <= q)).copied()
    }
}

/// Levels by position as runs; a query reads the keys whose level is at most its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Levels {
    /// `(first position, level)`, by position from 0.
    runs: Vec<(i64, i64)>,
    len: i64,
}

impl Levels {
    pub(crate) fn new(levels: &[i64]) -> Self {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for (at, &level) in levels.iter().enumerate() {
            if runs.last().is_none_or(|r| r.1 != level) {
                runs.push((at as i64, level));
            }
        }
        Levels { runs, len: levels.len() as i64 }
    }

    fn run_at(&self, position: i64) -> usize {
        self.runs.partition_point(|r| r.0 <= position) - 1
    }

    fn run_end(&self, run: usize) -> i64 {
        self.runs.get(run + 1).map_or(self.len, |r| r.0)
    }

    pub(crate) fn row(&self, frame: &Frame, q: i64, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        if !(0..self.len).contains(&q) {
            return;
        }
        let level = self.runs[self.run_at(q)].1;
        frame.pieces(keys, &mut |first, last, shift| {
            let (from, to) = (i64::from(first) + shift, (i64::from(last) + shift).min(self.len));
            if from >= to {
                return;
            }
            for run in self.run_at(from)..self.runs.len() {
                let (a, z) = (self.runs[run].0.max(from), self.run_end(run).min(to));
                if a >= z {
                    break;
                }
                if self.runs[run].1 <= level {
                    emit((a - shift) as u32, (z - shift) as u32);
                }
            }
        });
    }

    /// Exact bounds of some rows: those of the highest level read what any row does, those of the lowest what all do.
    pub(crate) fn bounds(&self, frame: &Frame, rows: impl Iterator<Item = u32>) -> Bounds {
        let mut ends: Option<[(i64, i64); 2]> = None;
        let mut outside = false;
        let mut next = i64::MIN;
        for q in rows.map(|row| frame.query(row)) {
            if !(0..self.len).contains(&q) {
                outside = true;
                continue;
            }
            if q < next {
                continue;
            }
            let run = self.run_at(q);
            next = self.run_end(run);
            let own = (self.runs[run].1, q);
            ends = Some(ends.map_or([own; 2], |[low, high]| [low.min(own), high.max(own)]));
        }
        let Some([low, high]) = ends else { return Bounds::exact(IntervalSet::new()) };
        let keys = |q: i64| {
            let mut keys: Vec<Range<u32>> = Vec::new();
            self.row(frame, q, (0, frame.kv_len), &mut |a, z| keys.push(a..z));
            keys.into_iter().collect::<IntervalSet>()
        };
        let upper = keys(high.1);
        let lower = match () {
            () if outside => IntervalSet::new(),
            () if low.0 == high.0 => upper.clone(),
            () => keys(low.1),
        };
        Bounds { upper, lower }
    }

    /// The first position after `q` whose level differs; positions outside the list have none.
    pub(crate) fn next_border(&self, q: i64) -> Option<i64> {
        match q {
            q if q < 0 => Some(0),
            q if q < self.len => Some(self.run_end(self.run_at(q))),
            _ => None,
        }
    }
}

/// Windows over a row-major grid of one to three dimensions, shifted inward at its edges.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Neighborhood {
    /// `[length, window, dilation]` of each dimension, always three, the first ones 1 where the grid has fewer.
    dims: [[i64; 3]; 3],
    /// Position after the last key: grids may be far larger than what is there.
    end: i64,
}

impl Neighborhood {
    pub(crate) fn new(grid: &[u64], size: &[u64], dilation: &[u64], end: i64) -> Self {
        let mut dims = [[1; 3]; 3];
        for (dim, i) in dims[3 - grid.len()..].iter_mut().zip(0..) {
            *dim = [grid[i] as i64, size[i] as i64, dilation[i] as i64];
        }
        Neighborhood { dims, end }
    }

    /// First coordinate and number of coordinates of the window around `x` in dimension `dim`; they are `dilation` apart.
    fn window(&self, dim: usize, x: i64) -> (i64, i64) {
        let [len, size, dilation] = self.dims[dim];
        let residue = x % dilation;
        let cells = (len - residue + dilation - 1) / dilation;
        let first = (x / dilation - size / 2).min(cells - size).max(0);
        (residue + first * dilation, size.min(cells))
    }

    /// Number of cells.
    fn cells(&self) -> i64 {
        self.dims.iter().map(|dim| dim[0]).product()
    }

    /// Calls `line` with the first position of each grid line with keys that the window around `q` reaches, ascending.
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
        if !(0..self.cells()).contains(&q) {
            return;
        }
        let [width, _, step] = self.dims[2];
        let (first, count) = self.window(2, q % width);
        self.lines(q, |line| match step {
            1 => frame.emit(line + first, line + first + count, keys, emit),
            _ => (0..count).map(|i| line + first + i * step).for_each(|at| frame.emit(at, at + 1, keys, emit)),
        });
    }

    /// How many rows from the query on have the same window, or one that moves along the line with them (true); `None` where
    /// each row has a window of its own kind.
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

    /// Calls `line` with the first position of each grid line that the query reads, the first column and the number of columns
    /// that it reads there, and the length of the line. Only where lines are not dilated.
    pub(crate) fn window_lines(&self, q: i64, mut line: impl FnMut(i64, i64, i64, i64)) {
        let width = self.dims[2][0];
        let (first, count) = self.window(2, q % width);
        self.lines(q, |at| line(at, first, count, width));
    }

    /// `[length, window, dilation]` of each of three dimensions, the slowest first.
    pub(crate) fn dims(&self) -> [[i64; 3]; 3] {
        self.dims
    }

    /// The dilation along a line.
    pub(crate) fn step(&self) -> i64 {
        self.dims[2][2]
    }

    /// A number that divides the distance from a query to every key it reads; 0 when it reads only itself.
    pub(crate) fn modulus(&self) -> u64 {
        let [_, [d1, ..], [d2, ..]] = self.dims;
        let sizes = [d1 * d2, d2, 1];
        // a product too large to hold is a distance that nothing has
        let steps = self.dims.iter().zip(sizes).filter(|(dim, _)| dim[1] > 1);
        steps.fold(0, |all, (dim, size)| gcd(all, dim[2].checked_mul(size).unwrap_or(0) as u64))
    }

    /// For each line that the query reads, the keys from the first to the last that it reads there.
    pub(crate) fn lines_of(&self, frame: &Frame, q: i64, keys: (u32, u32), emit: &mut impl FnMut(u32, u32)) {
        if (0..self.cells()).contains(&q) {
            let [width, _, step] = self.dims[2];
            let (first, count) = self.window(2, q % width);
            self.lines(q, |line| {
                frame.emit(line + first, line + first + (count - 1) * step + 1, keys, emit);
            });
        }
    }

    /// Bounds for the rows `rows`. Queries of one grid line differ in the last dimension only, where windows move with them,
    /// so the line's first and last query speak for all; a dilated line has the hull for an upper and no lower bound.
    pub(crate) fn bounds(&self, frame: &Frame, rows: Range<u32>) -> Bounds {
        let [width, _, step] = self.dims[2];
        let mut bounds: Option<Bounds> = None;
        let (mut q, end) = (frame.query(rows.start), frame.query(rows.end));
        if q < 0 || end > self.cells() {
            // some rows stand outside the grid and read nothing
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
            let (upper, lower): (IntervalSet, IntervalSet) = (any.into_iter().collect(), all.into_iter().collect());
            bounds = Some(match bounds {
                None => Bounds { upper, lower },
                Some(b) => Bounds { upper: b.upper.union(&upper), lower: b.lower.intersect(&lower) },
            });
            q = last + 1;
        }
        bounds.unwrap_or_else(|| Bounds::exact(IntervalSet::new()))
    }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
